//! The faults in the script of batches.

use super::{LOCK_LEFT, Mutant, NOT_GIVEN, OVERTAKEN, UNTOLD, script};

/// All of them.
pub(super) fn all() -> [Mutant; 9] {
    [
        script(
            "a batch that grants late",
            &[("batch", "now <= tonumber(ARGV[owner_of(i) + 2])", "true")],
            &[LOCK_LEFT],
        ),
        script(
            "a batch that grants although a client waits",
            &[("batch", "not values[i] and not is_waited_for(i)", "not values[i]")],
            &[OVERTAKEN, "a holder is still in the queue"],
        ),
        script(
            "a batch that grants a held lock",
            &[("batch", "not values[i] and ", ""), ("batch", ", 'NX')", ")")],
            &["a client took another client's lock away"],
        ),
        script(
            "a batch that grants without a lease",
            &[("batch", "'PX', ARGV[owner + 1], ", "")],
            &["a lock without a lease"],
        ),
        script(
            "a batch that grants without a token",
            &[("batch", "if #free > 0 then redis.call('SET', KEYS[1], token(#free)) end", "")],
            &[UNTOLD],
        ),
        script(
            "a batch whose tokens do not rise",
            &[("batch", "last < token(1)", "true")],
            &["a grant didn't raise the token", "the token fell"],
        ),
        script(
            "a batch that frees without comparing the owner",
            &[("batch", "values[i] == ARGV[1 + i]", "values[i]")],
            &["a client took another client's lock away"],
        ),
        script(
            "a batch that frees although a client waits",
            &[("batch", "ARGV[1 + i] and not is_waited_for(i)", "ARGV[1 + i]")],
            &[NOT_GIVEN],
        ),
        script(
            "a batch that frees nothing",
            &[("batch", "redis.call('DEL', unpack(freed))", "")],
            &["the lock is held after its release", LOCK_LEFT],
        ),
    ]
}
