//! The faults in the scripts.

use super::{
    DEAF, DIFFER, FALSE, LOCK_LEFT, Mutant, NOT_GIVEN, OVERTAKEN, PASSED_OVER, PLACE_LEFT, REFUSED,
    SHORT_LIVED, TOO_LONG, TWO, WINDOW, script,
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
            &[(
                "hand_over",
                "redis.call('SET', lock, owner, 'PX', lease)",
                "redis.call('SET', lock, owner)",
            )],
            &["a lock that never lapses"],
        ),
        script(
            "a hand-over for a whole lease",
            &[("acquire", "give(owner, token, now, window)", "give(owner, token, now, ARGV[2])")],
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
            &[("raise_token", "if left > 0 then redis.call('PEXPIRE', KEYS[1], left) end", "")],
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
            "the lock written before the token",
            &[
                (
                    "hand_over",
                    "  redis.call('SET', fence_key, digits(token) .. ':' .. owner, 'PX', keep)\n",
                    "",
                ),
                (
                    "hand_over",
                    "redis.call('SET', lock, owner, 'PX', lease)",
                    "redis.call('SET', lock, owner, 'PX', lease) if not KEYS[9] then return end",
                ),
            ],
            &["a lock without a token of its own"],
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
                "hand_over(now, tonumber(string.match(redis.call('GET', fence_key), '^%d+')), ARGV[4]",
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
            &[("release", "owner == ARGV[1]", "owner")],
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
            &[("acquire", "granted_to == owner", "false")],
            &["a retry changed the token"],
        ),
        script(
            "a renewal without compare",
            &[("extend", "owner ~= ARGV[1]", "not owner")],
            &["someone else's lease was changed"],
        ),
        script(
            "a renewal that re-creates",
            &[
                ("extend", "if owner ~= ARGV[1] then\n", "if owner and owner ~= ARGV[1] then\n"),
                (
                    "extend",
                    "redis.call('PEXPIRE', KEYS[1], left) == 0",
                    "not redis.call('SET', KEYS[1], ARGV[1], 'PX', left)",
                ),
            ],
            &["a grant didn't raise the token", "a lock without a token of its own", LOCK_LEFT],
        ),
        script(
            "a renewal that shortens the life of a raised token",
            &[("extend", "kept ~= -1 and kept < keep", "true")],
            &[SHORT_LIVED],
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
                "give(ARGV[2], token, now, lease)",
                "give(ARGV[2], tonumber(string.match(redis.call('GET', fence_key), '^%d+')), now, lease)",
            )],
            &["a grant didn't raise the token"],
        ),
        script(
            "a hand-over that leaves the token with the previous owner",
            &[(
                "transfer",
                "give(ARGV[2], token, now, lease)",
                "redis.call('SET', lock, ARGV[2], 'PX', lease)",
            )],
            &["a lock without a token of its own", "a grant didn't raise the token"],
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
            &[("raise_token", "if owner ~= ARGV[1] then", "if not owner then")],
            &["a retry changed the token"],
        ),
        script(
            "a token raised for the asker, whoever holds",
            &[
                ("raise_token", "if owner ~= ARGV[1] then", "if false then"),
                ("raise_token", "':' .. owner", "':' .. ARGV[1]"),
                ("raise_token", "granted_to == owner", "granted_to == ARGV[1]"),
            ],
            &["a retry changed the token", "a lock without a token of its own"],
        ),
        script(
            "a floor that is written as it is",
            &[
                ("raise_token", "if granted_to == owner and token >= floor then", "if false then"),
                ("raise_token", "math.max(token + 1, floor)", "floor - 1"),
            ],
            &["the token fell", "not raised to what was asked for"],
        ),
        script(
            "a token that rises each time that it is asked for",
            &[("raise_token", "if granted_to == owner and token >= floor then", "if false then")],
            &["not raised to what was asked for"],
        ),
        script(
            "a raised token that is answered, and not kept",
            &[(
                "raise_token",
                "redis.call('SET', KEYS[2], digits(token) .. ':' .. owner,",
                "redis.pcall('NOTHING',",
            )],
            &["not raised to what was asked for"],
        ),
        script(
            "a raised token that is forgotten before its time",
            &[("raise_token", "'PX', ahead + ", "'PX', ")],
            &[SHORT_LIVED],
        ),
        script(
            "a raised token of nobody",
            &[("raise_token", "digits(token) .. ':' .. owner", "digits(token) .. ':'")],
            &["a lock without a token of its own"],
        ),
    ]
}
