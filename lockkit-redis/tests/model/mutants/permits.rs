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
            &[("acquire", "or redis.call('ZCOUNT', holders, '-inf', moment) > 0", "")],
            &[LAPSED],
        ),
        script(
            "a quick release beside a lease that has lapsed",
            &[("release", "or redis.call('ZCOUNT', holders, '-inf', moment) > 0", "")],
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
            &[("acquire", "stored[2] ~= limit", "not stored[2]")],
            &[],
        ),
        script(
            "free permits whose counter is not written first",
            &[
                ("acquire", "  redis.call('SET', KEYS[1], token)\n", ""),
                (
                    "acquire",
                    "  if kept < tonumber(lease) then",
                    "  redis.call('SET', KEYS[1], token)\n  if kept < tonumber(lease) then",
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
            &[("acquire", "if there == 0 then", "if there == 3 then")],
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
            &[("release", "if not stored[1] or", "if not stored[3] or")],
            &[],
        ),
        script(
            "free permits beside holders whose grants were evicted",
            &[("acquire", "or stored[1] == '0' ", "")],
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
            &[("release", " and ARGV[3] == '0'", "")],
            &[],
        ),
        script(
            "a quick release of all permits whose holders were evicted",
            &[(
                "release",
                "redis.call('DEL', holders, grants) - 1",
                "redis.call('DEL', holders, grants) and 1",
            )],
            &[],
        ),
        script(
            "a quick release of some permits whose holders were evicted",
            &[(
                "release",
                "redis.call('ZREM', holders, owner) == 0",
                "not redis.call('ZREM', holders, owner)",
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
            &[("acquire", "'EXISTS', queue, holders, grants", "'EXISTS', holders, grants")],
            &[OVERTAKEN],
        ),
        script(
            "free permits if the queue is there and the holders are not",
            &[("acquire", "kept == -2 or ", "")],
            &[OVERTAKEN, "a holder is still in the queue"],
        ),
        script(
            "permits for an owner that has some",
            &[("acquire", " or stored[3] then", " then")],
            &["a retry changed the token", WRONG_SUM],
        ),
        script(
            "more permits than there are",
            &[("acquire", "if sum > tonumber(limit) then return end", "")],
            &[TOO_MANY, TWO],
        ),
        script(
            "a token of free permits that the counter does not record",
            &[("acquire", "redis.call('SET', KEYS[1], token)", "")],
            &[UNTOLD],
        ),
        script(
            "a token of free permits that does not rise",
            &[("acquire", "last < token", "true")],
            &["a grant didn't raise the token", "the token fell"],
        ),
    ]
}

/// Grants that are stored in a wrong form, or for a wrong time.
fn quick_expiries() -> Vec<Mutant> {
    vec![
        script(
            "free permits with a wrong lease",
            &[("acquire", "moment + lease * 1000", "moment + lease * 2000")],
            &[WRONG_LEASE, LAPSES],
        ),
        script(
            "free permits with a wrong count",
            &[("acquire", "count .. ':' .. token", "'1:' .. token")],
            &[WRONG_SUM],
        ),
        script(
            "free permits that do not count as used",
            &[("acquire", "'used', sum,", "'used', sum - count,")],
            &[WRONG_SUM],
        ),
        script(
            "free permits that forget the others",
            &[("acquire", "sum = stored[1] + count", "sum = tonumber(count)")],
            &[WRONG_SUM],
        ),
        script(
            "free permits without a limit",
            &[("acquire", "'used', sum, 'limit', limit)", "'used', sum)")],
            &[WRONG_LIMIT],
        ),
        script(
            "free permits whose keys end with the lease of another",
            &[("acquire", "if kept < tonumber(lease) then", "if there == 0 then")],
            &[LAPSES],
        ),
        script(
            "free permits that end the keys before the lease of another",
            &[("acquire", "if kept < tonumber(lease) then", "if true then")],
            &[LAPSES],
        ),
        script(
            "free permits whose grants do not end",
            &[("acquire", "redis.call('PEXPIRE', grants, lease)", "")],
            &[NO_LEASE],
        ),
        script(
            "free permits whose holders do not end",
            &[("acquire", "redis.call('PEXPIRE', holders, lease)", "")],
            &[NO_LEASE],
        ),
    ]
}

/// Releases without a look at something, or that leave something.
fn quick_releases() -> Vec<Mutant> {
    vec![
        script(
            "a quick release of permits that ignores waiters",
            &[("release", "if redis.call('EXISTS', queue) == 1 then return end", "")],
            &[NOT_GIVEN],
        ),
        script(
            "a quick release of all permits",
            &[("release", "if count == stored[2] then", "if true then")],
            &[TAKEN],
        ),
        script(
            "a quick release that leaves the holders",
            &[("release", "redis.call('DEL', holders, grants) - 1", "redis.call('DEL', grants)")],
            &[LEFT],
        ),
        script(
            "a quick release that leaves the grant",
            &[("release", "redis.call('HDEL', grants, owner)", "")],
            &[WRONG_SUM],
        ),
        script(
            "a quick release whose permits still count as used",
            &[("release", "redis.call('HSET', grants, 'used', stored[2] - count)", "")],
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
