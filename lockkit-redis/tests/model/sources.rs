//! The texts of the scripts, put together as the library does it.

const BATCH: &str = include_str!("../../src/scripts/exclusive/batch.lua");
const CLOCK: &str = include_str!("../../src/scripts/clock.lua");
const TOKEN: &str = include_str!("../../src/scripts/token.lua");
const QUEUE: &str = include_str!("../../src/scripts/queue.lua");
const PLACES: &str = include_str!("../../src/scripts/places.lua");
const TOUCH: &str = include_str!("../../src/scripts/touch.lua");

/// The values that the first part of an attempt for permits reads for the rest.
const READ: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[3]) then return {2, now} end
local last = redis.call('GET', KEYS[1])
";

/// The scripts of one family.
struct Family {
    hand_over: &'static str,
    /// The parts that come before everything else.
    free: [(&'static str, &'static str); 2],
    all: &'static [(&'static str, &'static str)],
}

macro_rules! read {
    ($family:literal: $($name:literal),+) => {
        &[$(($name, include_str!(concat!("../../src/scripts/", $family, "/", $name, ".lua")))),+]
    };
}

const EXCLUSIVE: Family = Family {
    hand_over: include_str!("../../src/scripts/exclusive/hand_over.lua"),
    free: [
        ("acquire", include_str!("../../src/scripts/exclusive/acquire_free.lua")),
        ("release", include_str!("../../src/scripts/exclusive/release_free.lua")),
    ],
    all: read!(
        "exclusive": "acquire", "extend", "force_release", "raise_token", "refresh", "release",
        "transfer"
    ),
};
const COUNTED: Family = Family {
    hand_over: include_str!("../../src/scripts/counted/hand_over.lua"),
    free: [
        ("acquire", include_str!("../../src/scripts/counted/acquire_free.lua")),
        ("release", include_str!("../../src/scripts/counted/release_free.lua")),
    ],
    all: read!(
        "counted": "acquire", "extend", "force_release", "raise_token", "refresh", "release"
    ),
};

/// The scripts for mutexes, by their names.
pub(crate) fn exclusive() -> Vec<(&'static str, String)> {
    let mut texts = EXCLUSIVE.texts(|name| match name {
        "extend" => TOUCH.to_owned(),
        "raise_token" => [TOKEN, TOUCH].concat(),
        _ => [TOKEN, QUEUE].concat(),
    });
    texts.push(("batch", BATCH.to_owned()));
    texts
}

/// The scripts for readers, writers and permits.
pub(crate) fn counted() -> Vec<(&'static str, String)> {
    COUNTED.texts(|_| [TOKEN, QUEUE].concat())
}

/// Two of these scripts without the part that comes first.
pub(crate) fn counted_without_first_parts() -> Vec<(&'static str, String)> {
    let texts = counted();
    let rest = |(of, first): (&str, &str)| {
        let (_, text) = texts.iter().find(|(name, _)| *name == of).expect("a script");
        text.strip_prefix(first).expect("it comes first").to_owned()
    };
    let [acquire, release] = COUNTED.free.map(rest);
    vec![("acquire_rest", [READ, &acquire].concat()), ("release_rest", release)]
}

/// The answer of a first part that leaves a call to the rest.
pub(crate) const LEFT_OVER: i64 = -99;

/// The first parts alone: the script that each begins, a name, and a text.
pub(crate) fn counted_first_parts() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    let names = ["acquire_first", "release_first"];
    let alone = |((of, first), name)| (of, name, format!("{first}\nreturn {LEFT_OVER}"));
    COUNTED.free.into_iter().zip(names).map(alone)
}

impl Family {
    fn texts(&self, front: impl Fn(&str) -> String) -> Vec<(&'static str, String)> {
        let text = |&(name, text): &(&'static str, &'static str)| {
            let free = self.free.iter().find(|(of, _)| *of == name).map_or("", |(_, text)| text);
            let places = if matches!(name, "acquire" | "refresh") { PLACES } else { "" };
            let front = front(name);
            let hand_over = if front.contains(QUEUE) { self.hand_over } else { "" };
            (name, [free, CLOCK, &front, places, hand_over, text].concat())
        };
        self.all.iter().map(text).collect()
    }
}
