//! The faults in the scripts that resume a grant.

use super::{FALSE, Mutant, REFUSED, UNTOLD, script};
use crate::{PERMIT_TICKETS, TICKETS};

const TAKEN: &str = "a client took another client's lock away";
const SAME_TOKEN: &str = "a grant didn't raise the token";
const LATE: &str = "a grant was resumed after not_after";
const NOT_WHOLE: &str = "a resumed grant has no whole lease";
const NOT_RESUMED: &str = "a grant was not resumed";

pub(super) fn all() -> Vec<Mutant> {
    let locks = locks().into_iter().map(|mutant| Mutant { setting: Some(TICKETS), ..mutant });
    let permits =
        permits().into_iter().map(|mutant| Mutant { setting: Some(PERMIT_TICKETS), ..mutant });
    locks.chain(permits).collect()
}

fn locks() -> [Mutant; 9] {
    [
        script(
            "a resume without comparing the former owner",
            &[("resume", "string.sub(owner, 1, 32) == ARGV[4] and ", "")],
            &[TAKEN, SAME_TOKEN],
        ),
        script(
            "a resume that compares the label, too",
            &[("resume", "string.sub(owner, 1, 32) == ARGV[4]", "owner == ARGV[4]")],
            &[NOT_RESUMED],
        ),
        script(
            "a resume after not_after",
            &[("resume", "if now > tonumber(ARGV[3]) then return {2, now} end", "")],
            &[LATE],
        ),
        script(
            "a resume that takes a free lock",
            &[(
                "resume",
                "if not there then return {0, now, -1} end",
                "if not there and value then return {0, now, -1} end\ntoken = token or ARGV[5]",
            )],
            &[SAME_TOKEN, UNTOLD],
        ),
        script(
            "a resume with the rest of the lease",
            &[("resume", "math.max(left, tonumber(ARGV[2]))", "left")],
            &[NOT_WHOLE],
        ),
        script(
            "a resume without a lease",
            &[("resume", "ARGV[1], 'PX', lease)", "ARGV[1])")],
            &["a lock without a lease"],
        ),
        script(
            "a resume with another token",
            &[("resume", "token .. ':' .. ARGV[1]", "digits(now) .. ':' .. ARGV[1]")],
            &[UNTOLD],
        ),
        script(
            "a resume that leaves the lock to the former owner",
            &[("resume", "token .. ':' .. ARGV[1]", "token .. ':' .. owner")],
            &[NOT_RESUMED, FALSE],
        ),
        script(
            "a resume that a full server refuses",
            &[("resume", "touch(KEYS[1], value, left)", "")],
            &[REFUSED],
        ),
    ]
}

fn permits() -> [Mutant; 7] {
    [
        script(
            "resumed permits that the former owner keeps, too",
            &[("resume", "redis.call('HDEL', grants, former)", "")],
            &["the sum of the used permits is wrong"],
        ),
        script(
            "resumed permits without an end of their lease",
            &[("resume", "redis.call('ZADD', holders, deadline, owner)", "")],
            &[TAKEN],
        ),
        script(
            "a resume of the permits of any owner",
            &[("resume", "string.sub(former, 1, 32) == ARGV[4] and ", "")],
            &[TAKEN, SAME_TOKEN, "a retry changed the token"],
        ),
        script(
            "a resume of permits that compares the label, too",
            &[("resume", "string.sub(former, 1, 32) == ARGV[4]", "former == ARGV[4]")],
            &[NOT_RESUMED],
        ),
        script(
            "a resume of permits after not_after",
            &[("resume", "if now > tonumber(ARGV[3]) then return {2, now} end", "")],
            &[LATE],
        ),
        script(
            "resumed permits with the rest of their lease",
            &[("resume", "restart(owner, now, tonumber(ARGV[2]))", "restart(owner, now, 0)")],
            &[NOT_WHOLE],
        ),
        script(
            "a resume of permits that a full server refuses",
            &[(
                "resume",
                "write_though_full()\n      redis.call('ZADD', holders",
                "redis.call('ZADD', holders",
            )],
            &[REFUSED],
        ),
    ]
}
