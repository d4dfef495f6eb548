//! The texts of the scripts, as the model's mutants name them.

use crate::scripts;

const GRANT: &str = include_str!("../../src/scripts/counted/grant.lua");
const GIVE_BACK: &str = include_str!("../../src/scripts/counted/give_back.lua");
/// The parts with which two of the scripts for permits begin.
const FIRST_PARTS: [(&str, &[&str]); 2] = [
    ("acquire", &[GRANT, include_str!("../../src/scripts/counted/acquire_free.lua")]),
    ("release", &[GIVE_BACK, include_str!("../../src/scripts/counted/release_free.lua")]),
];

/// The values that the first part of an attempt for permits reads for the rest.
const READ: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[3]) then return {2, now} end
local last = redis.call('GET', KEYS[1])
";

/// The scripts for mutexes, by their names.
pub(crate) fn exclusive() -> Vec<(&'static str, String)> {
    named(scripts::exclusive::ALL)
}

/// The scripts for readers, writers and permits.
pub(crate) fn counted() -> Vec<(&'static str, String)> {
    named(scripts::counted::ALL)
}

fn named(all: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    all.iter().map(|(name, text)| (*name, (*text).to_owned())).collect()
}

/// The scripts for permits that have a first part, without it.
pub(crate) fn counted_without_first_parts() -> [(&'static str, String); 2] {
    let rest = |(of, first): (&str, &[&str])| {
        let (_, text) =
            scripts::counted::ALL.iter().find(|(name, _)| *name == of).expect("a script");
        text.strip_prefix(&*first.concat()).expect("it comes first")
    };
    let [acquire, release] = FIRST_PARTS.map(rest);
    [("acquire_rest", [READ, acquire].concat()), ("release_rest", release.to_owned())]
}

/// The answer of a first part that leaves a call to the rest.
pub(crate) const LEFT_OVER: i64 = -99;

/// The first parts alone: the script that each begins, a name, and a text.
pub(crate) fn counted_first_parts() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    let names = ["acquire_first", "release_first"];
    let alone = |((of, first), name): ((_, &[&str]), _)| {
        (of, name, format!("{}\nreturn {LEFT_OVER}", first.concat()))
    };
    FIRST_PARTS.into_iter().zip(names).map(alone)
}
