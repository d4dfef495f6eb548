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
        transfers(),
        turns(),
        raises(),
    ]
    .concat()
}

/// The faults in batches.
pub(super) fn batches() -> [Mutant; 9] {
    [
        script(
            "a batch that grants late",
            &[("batch", "now <= tonumber(ARGV[1])", "true")],
            &[LOCK_LEFT],
        ),
        script(
            "a batch that grants before a waiter",
            &[("batch", "not values[i] and not is_waited_for(i)", "not values[i]")],
            &[OVERTAKEN, "a holder is still in the queue"],
        ),
        script(
            "a batch that grants a lock that is taken",
            &[("batch", "not values[i] and ", ""), ("batch", ", 'NX')", ")")],
            &["someone else's lock is taken away"],
        ),
        script(
            "a batch that grants without an end",
            &[("batch", "'PX', ARGV[1 + owner], ", "")],
            &["a lock that never lapses"],
        ),
        script(
            "a batch that counts no token",
            &[("batch", "redis.call('SET', KEYS[1], token(#free))", "")],
            &[UNTOLD],
        ),
        script(
            "a batch whose tokens do not rise",
            &[("batch", "last < token(1)", "true")],
            &["a grant didn't raise the token", "the token fell"],
        ),
        script(
            "a batch that frees without compare",
            &[("batch", "values[i] == ARGV[2 + i]", "values[i]")],
            &["someone else's lock is taken away"],
        ),
        script(
            "a batch that frees before a waiter",
            &[("batch", "ARGV[2 + i] and not is_waited_for(i)", "ARGV[2 + i]")],
            &[NOT_GIVEN],
        ),
        script(
            "a batch that frees nothing",
            &[("batch", "redis.call('DEL', unpack(freed))", "")],
            &["released, and still held", LOCK_LEFT],
        ),
    ]
}

/// Late attempts, and hand-overs to the wrong waiter.
fn hand_overs() -> Vec<Mutant> {
    vec![
        script(
            "no not_after",
            &[("acquire", "if now > tonumber(ARGV[3]) then return {2, now} end", "")],
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        script(
            "not_after one tick late",
            &[("acquire", "now > tonumber(ARGV[3])", "now > ARGV[3] + 1e5")],
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        script(
            "a hand-over that never lapses",
            &[("hand_over", "':' .. owner, 'PX', lease)", "':' .. owner)")],
            &["a lock that never lapses"],
        ),
        script(
            "a hand-over for a whole lease",
            &[("acquire", "give(owner, token, window)", "give(owner, token, ARGV[2])")],
            &[WINDOW],
        ),
        script(
            "a hand-over to the dead",
            &[("hand_over", "tonumber(redis.call('ZSCORE', live, waiter) or 0) < now", "false")],
            &[DEAF],
        ),
        script(
            "a hand-over to the deaf",
            &[("hand_over", "if deaf[client] and not asking[waiter] then", "if false then")],
            &[DEAF],
        ),
        script(
            "a live waiter taken for dead",
            &[("hand_over", "tonumber(redis.call('ZSCORE', live, waiter) or 0) < now", "true")],
            &["a waiter lost its place"],
        ),
        script(
            "a passed-over waiter loses its place",
            &[("hand_over", "redis.call('ZADD', queue, unpack(away))", "forget(away[2])")],
            &["a waiter lost its place"],
        ),
    ]
}

/// Waiters and locks on a server that refuses writes or messages.
fn full_or_denied_servers() -> Vec<Mutant> {
    vec![
        script(
            "a waiter that is set aside for ever",
            &[
                ("acquire", "redis.call('ZADD', queue, digits(place - aside), waiter)", ""),
                ("refresh", "redis.call('ZADD', queue, digits(place - aside), waiter)", ""),
            ],
            &["a waiter that asks is still set aside", "a holder is still in the queue"],
        ),
        script(
            "a waiter that a full server keeps no place for",
            &[("refresh", "    write_though_full()\n  end\n  local last", "  end\n  local last")],
            &[REFUSED],
        ),
        script(
            "a lock that is freed for the dead",
            &[(
                "transfer",
                "redis.call('ZCOUNT', live, digits(now), '+inf') > 0",
                "redis.call('EXISTS', queue) == 1",
            )],
            &["handed over to nobody"],
        ),
        script(
            "a hand-over inside the process that a full server refuses",
            &[("transfer", "write_though_full()\ngive", "give")],
            &[REFUSED],
        ),
        script(
            "a token that a full server does not raise",
            &[("raise_token", "touch(KEYS[1], value, left)", "")],
            &[REFUSED, "not raised to what was asked for"],
        ),
        script(
            "a lock kept from one who can't be told",
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
            "a new owner still queued",
            &[("hand_over", "  forget(waiter)\n  give(", "  give(")],
            &["a holder is still in the queue"],
        ),
        script(
            "a token that is not counted",
            &[("hand_over", "redis.call('SET', counter, digits(token))", "")],
            &[UNTOLD],
        ),
        script(
            "a token of a free lock that is not counted",
            &[("acquire", "redis.call('SET', KEYS[2], token)", "")],
            &[UNTOLD],
        ),
        script(
            "a token of a free lock that does not rise",
            &[("acquire", "last < token)", "true)")],
            &["a grant didn't raise the token", "the token fell"],
        ),
        script(
            "a counter that lapses",
            &[("hand_over", "digits(token))", "digits(token), 'PX', 100)")],
            &["the counter lapses"],
        ),
        script(
            "a token that is only the time",
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
            "a release without compare",
            &[("release", "owner == string.match(ARGV[1], '^%d*:(.*)$')", "owner")],
            &["someone else's lock is taken away"],
        ),
        script(
            "a quick release without compare",
            &[("release", "redis.call('GET', KEYS[1]) == ARGV[1]", "redis.call('GET', KEYS[1])")],
            &["someone else's lock is taken away"],
        ),
        script(
            "a quick release that looks at no waiter",
            &[("release", " and redis.call('EXISTS', KEYS[3]) == 0", "")],
            &[NOT_GIVEN],
        ),
        script(
            "a quick grant that looks at no waiter",
            &[(
                "acquire",
                "redis.call('EXISTS', KEYS[1], KEYS[3])",
                "redis.call('EXISTS', KEYS[1])",
            )],
            &[OVERTAKEN, "a holder is still in the queue"],
        ),
        script(
            "a quick grant of a lock that is taken",
            &[(
                "acquire",
                "redis.call('EXISTS', KEYS[1], KEYS[3])",
                "redis.call('EXISTS', KEYS[3])",
            )],
            &["someone else's lock is taken away"],
        ),
        script(
            "a release that hands nothing over",
            &[("release", "redis.call('EXISTS', queue) == 1", "false")],
            &[NOT_GIVEN],
        ),
        script(
            "a release that stays in the queue",
            &[("release", "if ARGV[2] ~= '' then forget(ARGV[2]) end", "")],
            &[PLACE_LEFT, DEAF, "released, and still held"],
        ),
        script(
            "a release that is always final",
            &[("release", "clock() <= tonumber(ARGV[3])", "false")],
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        script(
            "a release that is final a moment early",
            &[("release", "clock() <= tonumber(ARGV[3])", "clock() < tonumber(ARGV[3])")],
            &[LOCK_LEFT, PLACE_LEFT],
        ),
    ]
}

/// Places in the queue.
fn places() -> Vec<Mutant> {
    vec![
        script(
            "a newcomer barges",
            &[(
                "acquire",
                "if last then first, all = hand_over(now, token, ARGV[7], ARGV[8], {[waiter] = true}) end",
                "",
            )],
            &[OVERTAKEN, "a holder is still in the queue"],
        ),
        script(
            "one who asks again goes to the end",
            &[
                ("acquire", "if waits and not waited", "if waits"),
                ("acquire", "'NX', new_place", "new_place"),
            ],
            &["the order of the queue changed"],
        ),
        script(
            "one who comes last goes first",
            &[("acquire", "new_place(now, last), waiter", "1, waiter")],
            &["a newcomer is not the last"],
        ),
        script(
            "places by the clock alone",
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
            "a retry that shortens",
            &[("acquire", "math.max(redis.call('PTTL', lock), lease)", "lease")],
            &["a lease was shortened"],
        ),
        script(
            "a retry that leaves the lease",
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
            "a renewal without compare",
            &[("extend", "string.match(value, '^%d+:(.*)$') == ARGV[1]", "true")],
            &["someone else's lease was changed"],
        ),
        script(
            "a renewal that re-creates",
            &[(
                "extend",
                "redis.call('DEL', lock)",
                "redis.call('SET', lock, '1:' .. ARGV[1], 'PX', ARGV[2])",
            )],
            &["a grant didn't raise the token", UNTOLD, LOCK_LEFT],
        ),
        script(
            "a renewal that is answered, and not done",
            &[("extend", "touch(KEYS[1], value, left)", "")],
            &[TOO_LONG, FALSE, TWO],
        ),
    ]
}

/// Refreshes, and the release by an operator.
fn refreshes() -> Vec<Mutant> {
    vec![
        script(
            "a refresh that re-creates",
            &[("refresh", "'XX', 'CH'", "'CH'")],
            &[DIFFER, PLACE_LEFT],
        ),
        script(
            "a refresh that keeps nobody alive",
            &[("refresh", "now + liveness * 1000", "now - 1")],
            &["a waiter lost its place"],
        ),
        script(
            "a refresh that leaves a lapsed lock",
            &[("refresh", "ttl == -2", "false")],
            &[NOT_GIVEN],
        ),
        script(
            "a forced release of whatever is there",
            &[("force_release", "hand_over(now, next_token(now), ARGV[2], ARGV[3], {})", "")],
            &[NOT_GIVEN],
        ),
    ]
}

/// Transfers that are done although they must not be, or with a wrong token.
fn transfers() -> Vec<Mutant> {
    vec![
        script(
            "a hand-over without compare",
            &[("transfer", "if owner ~= ARGV[1] then", "if not owner then")],
            &["someone else's lock is taken away", "a hand-over of what was not held"],
        ),
        script(
            "a hand-over that re-creates",
            &[("transfer", "if owner ~= ARGV[1] then", "if owner and owner ~= ARGV[1] then")],
            &["a hand-over of what was not held"],
        ),
        script(
            "a hand-over that is done late",
            &[("transfer", "if now > tonumber(ARGV[4]) then return {2, now} end", "")],
            &["a late hand-over was done"],
        ),
        script(
            "a hand-over with the old token",
            &[(
                "transfer",
                "give(ARGV[2], token, lease)",
                "give(ARGV[2], tonumber(string.match(redis.call('GET', counter), '^%d+')), lease)",
            )],
            &["a grant didn't raise the token"],
        ),
        script(
            "a hand-over that leaves the token with the previous owner",
            &[(
                "transfer",
                "give(ARGV[2], token, lease)",
                "redis.call('SET', lock, string.match(redis.call('GET', lock), '^%d+:') .. ARGV[2], 'PX', lease)",
            )],
            &["a grant didn't raise the token"],
        ),
    ]
}

/// Transfers that give the lock to the wrong owner, or for the wrong time.
fn turns() -> Vec<Mutant> {
    vec![
        script(
            "a hand-over of what is left of the lease",
            &[("transfer", "tonumber(ARGV[3])", "redis.call('PTTL', lock)")],
            &["a grant's lease is not what was asked for"],
        ),
        script(
            "a hand-over that passes those who wait over",
            &[("transfer", "ARGV[5] == '1' and", "false and")],
            &[PASSED_OVER],
        ),
        script(
            "a hand-over that always yields",
            &[("transfer", "ARGV[5] == '1' and", "")],
            &["given to one who was not to go first", "handed over to nobody"],
        ),
        script(
            "a hand-over that passes over those who can't be told",
            &[(
                "transfer",
                "if redis.call('ZCOUNT', live, digits(now), '+inf') > 0 then",
                "if false then",
            )],
            &[PASSED_OVER],
        ),
        script(
            "a release that leaves the new owner",
            &[("release", " or owner == ARGV[6]", "")],
            &[LOCK_LEFT, "released, and still held"],
        ),
    ]
}

/// Raised tokens.
fn raises() -> Vec<Mutant> {
    vec![
        script(
            "a token raised without compare",
            &[("raise_token", "owner == ARGV[1]", "owner")],
            &["a retry changed the token"],
        ),
        script(
            "a token raised for the asker, whoever holds",
            &[
                ("raise_token", "owner == ARGV[1]", "owner"),
                (
                    "raise_token",
                    "digits(raised) .. ':' .. owner",
                    "digits(raised) .. ':' .. ARGV[1]",
                ),
            ],
            &[WINDOW, "a retry changed the token", "someone else's lock is taken away"],
        ),
        script(
            "a token raised to less than was asked for",
            &[("raise_token", "tonumber(ARGV[2]))", "tonumber(ARGV[2]) - 1)")],
            &["not raised to what was asked for"],
        ),
        script(
            "a token that rises each time that it is asked for",
            &[("raise_token", "math.max(tonumber(token),", "math.max(tonumber(token) + 1,")],
            &["not raised to what was asked for"],
        ),
        script(
            "a raised token that is answered, and not kept",
            &[("raise_token", "redis.call('SET', KEYS[1], digits(raised) .. ':' .. owner)", "")],
            &[UNTOLD],
        ),
        script(
            "a raised token that is not counted",
            &[("raise_token", "redis.call('SET', KEYS[2], digits(raised))", "")],
            &[UNTOLD],
        ),
        script(
            "a raised token for ever",
            &[(
                "raise_token",
                "if left >= 0 then redis.call('PEXPIRE', KEYS[1], math.max(left, 1)) end",
                "",
            )],
            &["a lock that never lapses"],
        ),
    ]
}
