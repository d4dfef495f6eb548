//! The faults in the scripts for readers, writers and permits.

use super::{
    FALSE, LOCK_LEFT, Mutant, NOT_GIVEN, OVERTAKEN, PLACE_LEFT, TOO_LONG, TWO, UNTOLD, script,
};
use crate::{PERMITS, READERS, STEPPED};

const TOO_MANY: &str = "more permits are used than there are";
const WRONG_SUM: &str = "the sum of the used permits is wrong";
const WRONG_LIMIT: &str = "the limit is wrong";
const WRONG_LEASE: &str = "a grant's lease is not what was asked for";
const NO_LEASE: &str = "a lock without a lease";
const LAPSES: &str = "a key of the grants lapses before a lease";
const LAPSED: &str = "a lapsed grant is left";
const LEFT: &str = "a key is left although no claim uses the name";
const TAKEN: &str = "a client took another client's lock away";

/// Those that break a promise.
pub(super) fn all() -> Vec<Mutant> {
    let usual = [quick_grants(), quick_expiries(), quick_releases(), others(), leases()].concat();
    let usual = usual.into_iter().map(|mutant| Mutant { setting: Some(PERMITS), ..mutant });
    let readers =
        beside_lapsed().into_iter().map(|mutant| Mutant { setting: Some(READERS), ..mutant });
    let stepped =
        lost_limits().into_iter().map(|mutant| Mutant { setting: Some(STEPPED), ..mutant });
    usual.chain(readers).chain(stepped).collect()
}

/// Those in the parts that come first.
pub(super) fn first_parts() -> Vec<Mutant> {
    [
        quick_grants(),
        quick_expiries(),
        quick_releases(),
        beside_lapsed(),
        only_differ(),
        only_differ_in_releases(),
    ]
    .concat()
}

/// Faults beside a lease that has lapsed.
fn beside_lapsed() -> Vec<Mutant> {
    vec![
        script(
            "free permits beside a lease that has lapsed",
            &[("acquire", "redis.call('ZCOUNT', KEYS[4], '-inf', token) == 0", "true")],
            &[LAPSED],
        ),
        script(
            "a quick release beside a lease that has lapsed",
            &[(
                "release",
                "redis.call('ZCOUNT', KEYS[4], '-inf', time[1] .. string.sub('00000' .. time[2], -6)) == 0",
                "true",
            )],
            &[LAPSED],
        ),
    ]
}

fn lost_limits() -> Vec<Mutant> {
    vec![script(
        "a raised token that loses the limit",
        &[("raise_token", "if limit and used == 0 then keep_limit() end", "")],
        &[NOT_GIVEN],
    )]
}

/// Faults that break no promise of the model, because its clients never ask in that way, or because
/// its servers evict nothing.
fn only_differ() -> Vec<Mutant> {
    vec![
        script(
            "free permits under another limit",
            &[("acquire", "stored[2] == ARGV[10] and ", "stored[2] and ")],
            &[],
        ),
        script(
            "free permits whose counter is not written first",
            &[
                ("acquire", "    redis.call('SET', KEYS[1], token)\n", ""),
                (
                    "acquire",
                    "if kept < lease then\n      redis",
                    "redis.call('SET', KEYS[1], token)\n    if kept < lease then\n      redis",
                ),
            ],
            &[],
        ),
        script(
            "a token of other digits than the last one",
            &[("acquire", "#token == 16 and ", "")],
            &[],
        ),
        script(
            "a part that never grants",
            &[("acquire", "if there == 0 then\n    used", "if there == 3 then\n    used")],
            &[],
        ),
        script(
            "a part that never grants beside others",
            &[("acquire", "elseif there == 2 then", "elseif there == 4 then")],
            &[],
        ),
    ]
}

/// Faults of the same sort in releases.
fn only_differ_in_releases() -> Vec<Mutant> {
    vec![
        script(
            "a quick release that never frees",
            &[("release", "  if stored[1] then\n", "  if stored[3] then\n")],
            &[],
        ),
        script(
            "free permits beside holders whose grants were evicted",
            &[("acquire", "stored[1] ~= '0' and ", "")],
            &[],
        ),
        script("a token below a counter of 17 digits", &[("acquire", "#last == 16 and ", "")], &[]),
        script(
            "a quick release by a claim that waits",
            &[("release", "ARGV[2] == '' and ", "")],
            &[],
        ),
        script(
            "a quick release although an attempt may still arrive",
            &[("release", "ARGV[3] == '0' and ", "")],
            &[],
        ),
        script(
            "a quick release of all permits whose holders were evicted",
            &[(
                "release",
                "redis.call('DEL', KEYS[4], KEYS[5]) - 1",
                "redis.call('DEL', KEYS[4], KEYS[5]) and 1",
            )],
            &[],
        ),
        script(
            "a quick release of some permits whose holders were evicted",
            &[(
                "release",
                "redis.call('ZREM', KEYS[4], ARGV[1]) == 1",
                "redis.call('ZREM', KEYS[4], ARGV[1])",
            )],
            &[],
        ),
    ]
}

/// Grants without a look at something.
fn quick_grants() -> Vec<Mutant> {
    vec![
        script(
            "permits for an attempt that comes too late",
            &[("acquire", "if now > tonumber(ARGV[3]) then return {2, now} end", "")],
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        script(
            "free permits although a claim waits",
            &[("acquire", "'EXISTS', KEYS[2], KEYS[4], KEYS[5]", "'EXISTS', KEYS[4], KEYS[5]")],
            &[OVERTAKEN],
        ),
        script(
            "free permits if the queue is there and the holders are not",
            &[("acquire", "fits = kept > -2 and ", "fits = ")],
            &[OVERTAKEN, "a holder is still in the queue"],
        ),
        script(
            "permits for an owner that has some",
            &[("acquire", " and not stored[3] then", " then")],
            &["a retry changed the token", WRONG_SUM],
        ),
        script(
            "more permits than there are",
            &[("acquire", "sum and sum <= tonumber(ARGV[10])", "sum")],
            &[TOO_MANY, TWO],
        ),
        script(
            "a token of free permits that the counter does not record",
            &[("acquire", "redis.call('SET', KEYS[1], token)", "")],
            &[UNTOLD],
        ),
        script(
            "a token of free permits that does not rise",
            &[("acquire", "last < token)", "true)")],
            &["a grant didn't raise the token", "the token fell"],
        ),
    ]
}

/// Grants that are stored in a wrong form, or for a wrong time.
fn quick_expiries() -> Vec<Mutant> {
    vec![
        script(
            "free permits with a wrong lease",
            &[(
                "acquire",
                "'ZADD', KEYS[4], now + lease * 1000",
                "'ZADD', KEYS[4], now + lease * 2000",
            )],
            &[WRONG_LEASE, LAPSES],
        ),
        script(
            "free permits with a wrong count",
            &[("acquire", "ARGV[9] .. ':' .. token", "'1:' .. token")],
            &[WRONG_SUM],
        ),
        script(
            "free permits that do not count as used",
            &[("acquire", "'used', sum,", "'used', used,")],
            &[WRONG_SUM],
        ),
        script(
            "free permits that forget the others",
            &[("acquire", "if there == 0 then sum = ARGV[9] end", "sum = ARGV[9]")],
            &[WRONG_SUM],
        ),
        script(
            "free permits without a limit",
            &[("acquire", "'used', sum, 'limit', ARGV[10])", "'used', sum)")],
            &[WRONG_LIMIT],
        ),
        script(
            "free permits whose keys end with the lease of another",
            &[("acquire", "if kept < lease then\n      redis", "if there == 0 then\n      redis")],
            &[LAPSES],
        ),
        script(
            "free permits that end the keys before the lease of another",
            &[("acquire", "if kept < lease then\n      redis", "if true then\n      redis")],
            &[LAPSES],
        ),
        script(
            "free permits whose grants do not end",
            &[("acquire", "redis.call('PEXPIRE', KEYS[5], ARGV[2])", "")],
            &[NO_LEASE],
        ),
        script(
            "free permits whose holders do not end",
            &[("acquire", "redis.call('PEXPIRE', KEYS[4], ARGV[2])", "")],
            &[NO_LEASE],
        ),
    ]
}

/// Releases without a look at something, or that leave something.
fn quick_releases() -> Vec<Mutant> {
    vec![
        script(
            "a quick release of permits that ignores waiters",
            &[("release", " and redis.call('EXISTS', KEYS[2]) == 0", "")],
            &[NOT_GIVEN],
        ),
        script(
            "a quick release of all permits",
            &[("release", "if count == stored[2] then", "if true then")],
            &[TAKEN],
        ),
        script(
            "a quick release that leaves the holders",
            &[("release", "redis.call('DEL', KEYS[4], KEYS[5]) - 1", "redis.call('DEL', KEYS[5])")],
            &[LEFT],
        ),
        script(
            "a quick release that leaves the grant",
            &[("release", "redis.call('HDEL', KEYS[5], ARGV[1])", "")],
            &[WRONG_SUM],
        ),
        script(
            "a quick release whose permits still count as used",
            &[("release", "redis.call('HSET', KEYS[5], 'used', stored[2] - count)", "")],
            &[WRONG_SUM],
        ),
    ]
}

/// Faults that concern waiters.
fn others() -> Vec<Mutant> {
    vec![
        script(
            "a limit that lapses before the last waiter",
            &[("hand_over", "math.max(lease, redis.call('PTTL', queue))", "lease")],
            &[NOT_GIVEN],
        ),
        script(
            "a limit that is kept for waiters and never lapses",
            &[("hand_over", "    redis.call('PEXPIRE', grants, keep)\n", "")],
            &["a key of the name never lapses"],
        ),
        script(
            "a raised token that another grant has",
            &[("raise_token", "    raised = math.max(highest + 1, floor)\n", "")],
            &[UNTOLD, "the token fell"],
        ),
        script(
            "a raised token that the counter does not record",
            &[("raise_token", "redis.call('SET', counter, digits(raised))", "")],
            &[UNTOLD],
        ),
        script(
            "a release that leaves the permits",
            &[("release", "  take(ARGV[1], grant)", "")],
            &["the lock is held after its release", LOCK_LEFT],
        ),
        script(
            "a release of permits without a hand-over",
            &[("release", "hand_over(now, publish, channels, {})", "")],
            &[NOT_GIVEN],
        ),
        script(
            "a hand-over of more permits than are free",
            &[("hand_over", "used + count <= limit and next_token(now)", "next_token(now)")],
            &[TOO_MANY, TWO],
        ),
        script(
            "a light claim that passes a heavy waiter",
            &[("acquire", "if not others_first then", "if true then")],
            &[OVERTAKEN],
        ),
    ]
}

/// Faults that concern leases.
fn leases() -> Vec<Mutant> {
    vec![
        script(
            "a lease that lapses and still counts",
            &[(
                "hand_over",
                "if tonumber(first) > now then return stored[3] end",
                "do return stored[3] end",
            )],
            &[NOT_GIVEN, LAPSED, FALSE],
        ),
        script(
            "a renewal of permits that reports success and does nothing",
            &[(
                "extend",
                "if kept_until > deadline then redis.call('ZADD', holders, kept_until, owner) end",
                "",
            )],
            &[TOO_LONG, FALSE, TWO],
        ),
        script(
            "a renewal of permits whose keys end earlier",
            &[(
                "extend",
                "if longest < left then keep_grants(left) else",
                "if longest < 0 then keep_grants(left) else",
            )],
            &[LAPSES],
        ),
    ]
}
