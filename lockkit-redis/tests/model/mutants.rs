//! Puts faults into the scripts and into the client. The model must find each of them.

use crate::{CLOCK_STEPS, DENIED, drain::HANGS, rules::Flaw, world::Setting};

/// A piece of a script, and its replacement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    pub(crate) script: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

impl Edit {
    /// The text of a script with these edits.
    pub(crate) fn all(edits: &[Self], script: &str, text: &str) -> String {
        let ours = |edit: &&Self| {
            edit.script == script
                || edit.script == "hand_over" && !matches!(script, "extend" | "raise_token")
        };
        edits.iter().filter(ours).fold(text.to_owned(), |text, edit| {
            assert!(text.contains(edit.from), "{script} has nothing to replace for {edit:?}");
            text.replace(edit.from, edit.to)
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    pub(crate) edits: Vec<Edit>,
    pub(crate) flaw: Option<Flaw>,
    /// The setting that shows the fault, if not every setting does.
    pub(crate) setting: Option<Setting>,
    /// The promises that the fault breaks.
    pub(crate) breaks: &'static [&'static str],
}

fn script(
    name: &'static str,
    edits: &[(&'static str, &'static str, &'static str)],
    breaks: &'static [&'static str],
) -> Mutant {
    let edits = edits.iter().map(|&(script, from, to)| Edit { script, from, to }).collect();
    Mutant { name, edits, flaw: None, setting: None, breaks }
}

fn client(flaw: Flaw, name: &'static str, breaks: &'static [&'static str]) -> Mutant {
    Mutant { name, edits: Vec::new(), flaw: Some(flaw), setting: None, breaks }
}

const TWO: &str = "two believe that they hold";
const FALSE: &str = "one believes that it holds, and doesn't";
const TOO_LONG: &str = "a holder counts on too long a lease";
const LOCK_LEFT: &str = "a lock is left of one who gave up";
const PLACE_LEFT: &str = "a place is left of one who gave up";
const WINDOW: &str = "a hand-over's lease is not the claim window";
const OVERTAKEN: &str = "a waiter was overtaken";
const NOT_GIVEN: &str = "the lock is free, and a waiter was not given it";
const DEAF: &str = "given to a waiter who is dead or deaf";
const PASSED_OVER: &str = "one who was to go first was passed over";
const SHORT_LIVED: &str = "a token that is kept for less than a day past its time";
const REFUSED: &str = "a full server refused what takes no memory";
const DIFFER: &str = "queue and liveness differ";

pub(crate) fn mutants() -> Vec<Mutant> {
    let mut mutants = [scripts(), transfers(), raises()].concat();
    mutants.extend([
        client(
            Flaw::ProofFromReceipt,
            "a proof that counts from the receipt",
            &[TOO_LONG, FALSE, TWO],
        ),
        client(Flaw::ProofBeforeAnchor, "a proof from a later anchor", &[TOO_LONG, FALSE, TWO]),
        client(
            Flaw::ProofOfLittle,
            "a proof of a window that is nearly over",
            &["a proof of less than half a window"],
        ),
        client(Flaw::DeadlineFromReply, "a lease counted from the reply", &[TOO_LONG, FALSE, TWO]),
        client(
            Flaw::UnansweredForgotten,
            "a release that is final although an unanswered attempt may arrive",
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        client(Flaw::CancelOnlyLeaves, "a cancel that gives nothing back", &[LOCK_LEFT]),
        client(Flaw::OnlyListens, "a waiter that only listens", &[HANGS]),
        client(
            Flaw::TransferWithUnanswered,
            "a hand-over though an attempt may still arrive",
            &[LOCK_LEFT, PLACE_LEFT],
        ),
        client(
            Flaw::SuccessorForgotten,
            "a new owner who is forgotten",
            &[LOCK_LEFT, "released, and still held"],
        ),
        client(Flaw::PreviousBelieves, "a previous owner who believes on", &[FALSE, TWO]),
        client(Flaw::CancelSilent, "a cancel that tells nobody", &[LOCK_LEFT, PLACE_LEFT]),
    ]);
    let clock = client(
        Flaw::ProofWithoutClock,
        "a proof without a look at the clock",
        &["a proof reaches into the future"],
    );
    mutants.push(Mutant { setting: Some(CLOCK_STEPS), ..clock });
    let refused = script(
        "a hand-over that ends where a message is refused",
        &[("hand_over", "redis.pcall(", "redis.call(")],
        &[REFUSED, NOT_GIVEN],
    );
    mutants.push(Mutant { setting: Some(DENIED), ..refused });
    mutants
}

fn scripts() -> Vec<Mutant> {
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
