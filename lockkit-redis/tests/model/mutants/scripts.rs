//! The faults in the scripts.

use super::{
    DEAF, DIFFER, FALSE, LOCK_LEFT, Mutant, NOT_GIVEN, OVERTAKEN, PASSED_OVER, PLACE_LEFT, REFUSED,
    TOO_LONG, TWO, UNTOLD, WINDOW, script,
};

/// All of them, in the order in which the model looks for them.
pub(super) fn all() -> Vec<Mutant> {
    [
        hand_overs(),
        full_or_denied_servers(),
        tokens(),
        releases(),
        places(),
        leases(),
        refreshes(),
        turns(),
        raises(),
    ]
    .concat()
}

/// Late attempts, and hand-overs to the wrong waiter.
fn hand_overs() -> Vec<Mutant> {
    vec![
        script(
            "an attempt without not_after",
            &[("acquire", "if now > tonumber(ARGV[3]) then return {2, now} end", "")],
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        script(
            "an attempt one tick after not_after",
            &[("acquire", "now > tonumber(ARGV[3])", "now > ARGV[3] + 1e5")],
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        script(
            "a hand-over without a lease",
            &[("hand_over", "':' .. owner, 'PX', lease)", "':' .. owner)")],
            &["a lock without a lease"],
        ),
        script(
            "a hand-over for a whole lease, not the claim window",
            &[("acquire", "give(owner, token, window)", "give(owner, token, ARGV[2])")],
            &[WINDOW],
        ),
        script(
            "a hand-over to a dead waiter",
            &[("hand_over", "tonumber(redis.call('ZSCORE', live, waiter) or 0) < now", "false")],
            &[DEAF],
        ),
        script(
            "a hand-over to a waiter without a connection",
            &[("hand_over", "if deaf[client] and not asking[waiter] then", "if false then")],
            &[DEAF],
        ),
        script(
            "a live waiter that counts as dead",
            &[("hand_over", "tonumber(redis.call('ZSCORE', live, waiter) or 0) < now", "true")],
            &["a waiter lost its place"],
        ),
        script(
            "a waiter that is passed over and loses its place",
            &[("hand_over", "redis.call('ZADD', queue, unpack(away))", "forget(away[2])")],
            &["a waiter lost its place"],
        ),
    ]
}

/// Waiters and locks on a server that refuses writes or messages.
fn full_or_denied_servers() -> Vec<Mutant> {
    vec![
        script(
            "a waiter that is passed over for ever",
            &[
                ("acquire", "redis.call('ZADD', queue, digits(place - aside), waiter)", ""),
                ("refresh", "redis.call('ZADD', queue, digits(place - aside), waiter)", ""),
            ],
            &["a waiter that asks is still passed over", "a holder is still in the queue"],
        ),
        script(
            "a refresh that a full server refuses",
            &[("refresh", "    write_though_full()\n  end\n  local last", "  end\n  local last")],
            &[REFUSED],
        ),
        script(
            "a transfer that yields to dead waiters",
            &[(
                "transfer",
                "redis.call('ZCOUNT', live, digits(now), '+inf') > 0",
                "redis.call('EXISTS', queue) == 1",
            )],
            &["the lock is free after a transfer, and no client waits"],
        ),
        script(
            "a transfer that a full server refuses",
            &[("transfer", "redis.call('ZREM', KEYS[4], '')", "")],
            &[REFUSED],
        ),
        script(
            "a raise that a full server refuses",
            &[("raise_token", "touch(KEYS[1], value, left)", "")],
            &[REFUSED, "the token is below the requested one"],
        ),
        script(
            "a transfer that yields and keeps the lock",
            &[(
                "transfer",
                "    redis.call('DEL', lock)\n    return {4, now}",
                "    return {4, now}",
            )],
            &[LOCK_LEFT, NOT_GIVEN, DEAF],
        ),
    ]
}

/// Grants with a wrong token or place.
fn tokens() -> Vec<Mutant> {
    vec![
        script(
            "a new owner that stays in the queue",
            &[("hand_over", "  forget(waiter)\n  give(", "  give(")],
            &["a holder is still in the queue"],
        ),
        script(
            "a token that the counter does not record",
            &[("hand_over", "redis.call('SET', counter, digits(token))", "")],
            &[UNTOLD],
        ),
        script(
            "a token of a free lock that the counter does not record",
            &[("acquire", "redis.call('SET', KEYS[2], token)", "")],
            &[UNTOLD],
        ),
        script(
            "a token of a free lock that does not rise",
            &[("acquire", "last < token)", "true)")],
            &["a grant didn't raise the token", "the token fell"],
        ),
        script(
            "a counter that expires",
            &[("hand_over", "digits(token))", "digits(token), 'PX', 100)")],
            &["the counter expires"],
        ),
        script(
            "a token that is only the clock",
            &[(
                "hand_over",
                "math.max((last and tonumber(string.match(last, '^%d+')) or 0) + 1, now)",
                "now",
            )],
            &["a grant didn't raise the token"],
        ),
        script(
            "a hand-over with the old token",
            &[(
                "release",
                "hand_over(now, next_token(now), ARGV[4]",
                "hand_over(now, tonumber(string.match(redis.call('GET', counter), '^%d+')), ARGV[4]",
            )],
            &["a grant didn't raise the token"],
        ),
    ]
}

/// Releases that free too much or too little.
fn releases() -> Vec<Mutant> {
    vec![
        script(
            "a release without comparing the owner",
            &[("release", "owner == string.match(ARGV[1], '^%d*:(.*)$')", "owner")],
            &["a client took another client's lock away"],
        ),
        script(
            "a quick release without comparing the owner",
            &[("release", "redis.call('GET', KEYS[1]) == ARGV[1]", "redis.call('GET', KEYS[1])")],
            &["a client took another client's lock away"],
        ),
        script(
            "a quick release that ignores waiters",
            &[("release", " and redis.call('EXISTS', KEYS[3]) == 0", "")],
            &[NOT_GIVEN],
        ),
        script(
            "a quick grant that ignores waiters",
            &[(
                "acquire",
                "redis.call('EXISTS', KEYS[1], KEYS[3])",
                "redis.call('EXISTS', KEYS[1])",
            )],
            &[OVERTAKEN, "a holder is still in the queue"],
        ),
        script(
            "a quick grant of a held lock",
            &[(
                "acquire",
                "redis.call('EXISTS', KEYS[1], KEYS[3])",
                "redis.call('EXISTS', KEYS[3])",
            )],
            &["a client took another client's lock away"],
        ),
        script(
            "a release without a hand-over",
            &[("release", "redis.call('EXISTS', queue) == 1", "false")],
            &[NOT_GIVEN],
        ),
        script(
            "a release that leaves its owner in the queue",
            &[("release", "if ARGV[2] ~= '' then forget(ARGV[2]) end", "")],
            &[PLACE_LEFT, DEAF, "the lock is held after its release"],
        ),
        script(
            "a release that always reports a final outcome",
            &[("release", "clock() <= tonumber(ARGV[3])", "false")],
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        script(
            "a release that reports a final outcome too early",
            &[("release", "clock() <= tonumber(ARGV[3])", "clock() < tonumber(ARGV[3])")],
            &[LOCK_LEFT, PLACE_LEFT],
        ),
    ]
}

/// Places in the queue.
fn places() -> Vec<Mutant> {
    vec![
        script(
            "a newcomer that overtakes the queue",
            &[(
                "acquire",
                "if last then first, all = hand_over(now, token, ARGV[7], ARGV[8], {[waiter] = true}) end",
                "",
            )],
            &[OVERTAKEN, "a holder is still in the queue"],
        ),
        script(
            "a waiter that loses its place when it asks again",
            &[
                ("acquire", "if waits and not waited", "if waits"),
                ("acquire", "'NX', new_place", "new_place"),
            ],
            &["the order of the queue changed"],
        ),
        script(
            "a queue that serves the last waiter first",
            &[("acquire", "new_place(now, last), waiter", "1, waiter")],
            &["a newcomer is not the last"],
        ),
        script(
            "places that follow only the clock",
            &[("acquire", "new_place(now, last), waiter", "now, waiter")],
            &["a newcomer is not the last"],
        ),
        script(
            "a waiter without liveness",
            &[("acquire", "redis.call('ZADD', live, now + ARGV[6] * 1000, waiter)", "")],
            &[DIFFER],
        ),
    ]
}

/// Retries and renewals.
fn leases() -> Vec<Mutant> {
    vec![
        script(
            "a retry that shortens the lease",
            &[("acquire", "math.max(redis.call('PTTL', lock), lease)", "lease")],
            &["a lease was shortened"],
        ),
        script(
            "a retry that does not extend the lease",
            &[("acquire", "redis.call('PEXPIRE', lock, left)", "")],
            &[TOO_LONG, FALSE, TWO],
        ),
        script(
            "a retry with a new token",
            &[(
                "acquire",
                "redis.call('PEXPIRE', lock, left)",
                "token = next_token(now) give(owner, token, left)",
            )],
            &["a retry changed the token"],
        ),
        script(
            "a renewal without comparing the owner",
            &[("extend", "string.match(value, '^%d+:(.*)$') == ARGV[1]", "true")],
            &["someone else's lease was changed"],
        ),
        script(
            "a renewal that creates a deleted lock again",
            &[(
                "extend",
                "redis.call('DEL', lock)",
                "redis.call('SET', lock, '1:' .. ARGV[1], 'PX', ARGV[2])",
            )],
            &["a grant didn't raise the token", UNTOLD, LOCK_LEFT],
        ),
        script(
            "a renewal that reports success and does nothing",
            &[("extend", "touch(KEYS[1], value, left)", "")],
            &[TOO_LONG, FALSE, TWO],
        ),
    ]
}

/// Refreshes, and the release by an operator.
fn refreshes() -> Vec<Mutant> {
    vec![
        script(
            "a refresh that adds a missing entry",
            &[("refresh", "'XX', 'CH'", "'CH'")],
            &[DIFFER, PLACE_LEFT],
        ),
        script(
            "a refresh that does not keep the waiter alive",
            &[("refresh", "now + liveness * 1000", "now - 1")],
            &["a waiter lost its place"],
        ),
        script(
            "a refresh that ignores an expired lock",
            &[("refresh", "ttl == -2", "false")],
            &[NOT_GIVEN],
        ),
        script(
            "a forced release without a hand-over",
            &[("force_release", "hand_over(now, next_token(now), ARGV[2], ARGV[3], {})", "")],
            &[NOT_GIVEN],
        ),
    ]
}

/// Transfers that give the lock to the wrong owner, or for the wrong time.
fn turns() -> Vec<Mutant> {
    vec![
        script(
            "a hand-over with the remaining lease",
            &[("transfer", "tonumber(ARGV[3])", "redis.call('PTTL', lock)")],
            &["a grant's lease is not what was asked for"],
        ),
        script(
            "a hand-over that ignores waiters",
            &[("transfer", "ARGV[5] == '1' and", "false and")],
            &[PASSED_OVER],
        ),
        script(
            "a hand-over that always goes to a waiter",
            &[("transfer", "ARGV[5] == '1' and", "")],
            &[
                "the lock went to a waiter that is not the first",
                "the lock is free after a transfer, and no client waits",
            ],
        ),
        script(
            "a transfer that ignores waiters without a connection",
            &[(
                "transfer",
                "if redis.call('ZCOUNT', live, digits(now), '+inf') > 0 then",
                "if false then",
            )],
            &[PASSED_OVER],
        ),
        script(
            "a release that forgets the new owner",
            &[("release", " or owner == ARGV[6]", "")],
            &[LOCK_LEFT, "the lock is held after its release"],
        ),
    ]
}

/// Raised tokens.
fn raises() -> Vec<Mutant> {
    vec![
        script(
            "a raise without comparing the owner",
            &[("raise_token", "owner == ARGV[1]", "owner")],
            &["a retry changed the token"],
        ),
        script(
            "a raise for any owner",
            &[
                ("raise_token", "owner == ARGV[1]", "owner"),
                (
                    "raise_token",
                    "digits(raised) .. ':' .. owner",
                    "digits(raised) .. ':' .. ARGV[1]",
                ),
            ],
            &[WINDOW, "a retry changed the token", "a client took another client's lock away"],
        ),
        script(
            "a raise to a smaller token than requested",
            &[("raise_token", "tonumber(ARGV[2]))", "tonumber(ARGV[2]) - 1)")],
            &["the token is below the requested one"],
        ),
        script(
            "a raise that raises the token at each retry",
            &[("raise_token", "math.max(tonumber(token),", "math.max(tonumber(token) + 1,")],
            &["the token is below the requested one"],
        ),
        script(
            "a raise that reports success and does nothing",
            &[("raise_token", "redis.call('SET', KEYS[1], digits(raised) .. ':' .. owner)", "")],
            &[UNTOLD],
        ),
        script(
            "a raise that the counter does not record",
            &[("raise_token", "redis.call('SET', KEYS[2], digits(raised))", "")],
            &[UNTOLD],
        ),
        script(
            "a raised token without an expiry",
            &[(
                "raise_token",
                "if left >= 0 then redis.call('PEXPIRE', KEYS[1], math.max(left, 1)) end",
                "",
            )],
            &["a lock without a lease"],
        ),
    ]
}
