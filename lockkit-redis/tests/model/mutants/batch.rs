//! The faults in the scripts of batches.

use super::{LOCK_LEFT, Mutant, NOT_GIVEN, OVERTAKEN, UNTOLD, script};

/// Those in the batches for mutexes.
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

/// Those in the batches for permits that one request shows.
pub(super) fn permits() -> Vec<Mutant> {
    vec![
        script(
            "a batch that grants permits late",
            &[("batch", "now <= tonumber(ARGV[at + 2])", "true")],
            &[],
        ),
        script(
            "a batch that compares no token of permits",
            &[("batch", "local is_last_below = not last or", "local is_last_below = true or")],
            &[],
        ),
        script(
            "a batch that compares tokens of other lengths",
            &[("batch", "#last == 16 and ", "")],
            &[],
        ),
        script(
            "a batch that gives tokens of other lengths",
            &[("batch", "#time[1] == 10 and ", "")],
            &[],
        ),
        script(
            "a batch that a refused request ends",
            &[("batch", "pcall(free, ", "true, free(")],
            &[],
        ),
        script(
            "a batch that grants no permits",
            &[("batch", "acquire_free, ARGV[at]", "acquire_free, ARGV[at + 1]")],
            &[],
        ),
        script(
            "a batch that frees no permits",
            &[("batch", "release_free, ARGV[1 + i]", "release_free, ARGV[2 + i]")],
            &[],
        ),
        script(
            "a batch that answers nothing",
            &[("batch", "ran and (tonumber(done) or 0) or -1", "0")],
            &[],
        ),
    ]
}

/// Those in the batches for permits that several requests show.
pub(super) fn permits_of_several() -> Vec<Mutant> {
    vec![
        script("permits with one token", &[("batch", "text(i - releases - 1)", "text(0)")], &[]),
        script(
            "permits of a neighbour",
            &[("batch", "5 * i - 4 * releases - 3", "5 * i - 3 * releases - 3")],
            &[],
        ),
        script("the keys of a neighbour", &[("batch", "3 * i - 1", "2")], &[]),
        script(
            "a batch that a refused request ends",
            &[("batch", "pcall(free, ", "true, free(")],
            &[],
        ),
    ]
}
