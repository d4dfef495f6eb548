//! The texts of the scripts, put together as the library does it.

const BATCH: &str = include_str!("../../src/scripts/exclusive/batch.lua");
const CLOCK: &str = include_str!("../../src/scripts/clock.lua");
const TOKEN: &str = include_str!("../../src/scripts/token.lua");
const QUEUE: &str = include_str!("../../src/scripts/queue.lua");
const PLACES: &str = include_str!("../../src/scripts/places.lua");
const TOUCH: &str = include_str!("../../src/scripts/touch.lua");

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

/// The first parts of two scripts of a family, and the same scripts without them.
pub(crate) fn parts_of_counted() -> Vec<(&'static str, String)> {
    let [(_, acquire), (_, release)] = COUNTED.free;
    let parts = [("acquire", "acquire_free", acquire), ("release", "release_free", release)];
    let texts = counted();
    let text = |of: &str| texts.iter().find(|(name, _)| *name == of).map(|(_, text)| text.clone());
    let both = parts.map(|(name, free, part)| {
        let rest = text(name).and_then(|text| text.strip_prefix(part).map(str::to_owned));
        [(free, part.to_owned()), (name, rest.expect("the part comes first"))]
    });
    both.concat()
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
