//! Faults in the transfers inside the process.

use super::{Mutant, OVERTAKEN, PASSED_OVER, UNTOLD, script};

pub(super) fn all() -> Vec<Mutant> {
    [transfers(), quick_transfers()].concat()
}

/// Transfers that are done although they must not be, or with a wrong token.
fn transfers() -> Vec<Mutant> {
    vec![
        script(
            "a transfer without comparing the owner",
            &[("transfer", "if owner ~= ARGV[1] then", "if not owner then")],
            &[
                "a client took another client's lock away",
                "a client transferred a lock that it did not hold",
            ],
        ),
        script(
            "a transfer that creates a deleted lock again",
            &[("transfer", "if owner ~= ARGV[1] then", "if owner and owner ~= ARGV[1] then")],
            &["a client transferred a lock that it did not hold"],
        ),
        script(
            "a transfer after not_after",
            &[("transfer", "if now > tonumber(ARGV[4]) then return {2, now} end", "")],
            &["a transfer was done after not_after"],
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
            "a transfer that does not move the token",
            &[(
                "transfer",
                "give(ARGV[2], token, lease)",
                "redis.call('SET', lock, string.match(redis.call('GET', lock), '^%d+:') .. ARGV[2], 'PX', lease)",
            )],
            &["a grant didn't raise the token"],
        ),
    ]
}

/// The same for transfers past which no waiter goes.
fn quick_transfers() -> Vec<Mutant> {
    vec![
        script(
            "a quick transfer of another owner's lock",
            &[(
                "transfer",
                "redis.call('GET', KEYS[1]) == ARGV[8] .. ':' .. ARGV[1]",
                "redis.call('EXISTS', KEYS[1]) == 1",
            )],
            &[
                "a client took another client's lock away",
                "a client transferred a lock that it did not hold",
            ],
        ),
        script(
            "a quick transfer after not_after",
            &[("transfer", "now <= tonumber(ARGV[4]) and ", "")],
            &["a transfer was done after not_after"],
        ),
        script(
            "a quick transfer that passes waiters over",
            &[("transfer", "(ARGV[5] == '0' or redis.call('EXISTS', KEYS[3]) == 0)", "true")],
            &[PASSED_OVER, OVERTAKEN],
        ),
        script(
            "a quick transfer whose token the counter does not record",
            &[("transfer", "redis.call('SET', KEYS[2], token)", "")],
            &[UNTOLD],
        ),
        script(
            "a quick transfer whose token does not rise",
            &[("transfer", "last < token and #ARGV[8] == 16 and ARGV[8] < token", "true")],
            &["a grant didn't raise the token", "the token fell"],
        ),
        script(
            "a quick transfer with a longer lease",
            &[("transfer", "'PX', ARGV[3])", "'PX', ARGV[3] * 2)")],
            &["a grant's lease is not what was asked for"],
        ),
    ]
}
