//! Puts the scripts of the two families together.

use std::{fmt::Write as _, sync::LazyLock};

use crate::script::Source;

/// How a lock is kept in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// One owner at a time, in a plain string.
    Exclusive,
    /// A number of permits: a reader takes one, a writer takes all.
    Counted,
}

/// The scripts of one family. Each script describes its keys and arguments.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Source,
    pub(crate) extend: Source,
    pub(crate) release: Source,
    pub(crate) refresh: Source,
    pub(crate) inspect: Source,
    pub(crate) force_release: Source,
    pub(crate) raise_token: Source,
    /// Only in the exclusive family.
    pub(crate) transfer: Option<Source>,
    pub(crate) write_note: Option<Source>,
    pub(crate) read_note: Option<Source>,
}

macro_rules! source {
    ($($part:literal),+) => {
        Source::new(concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+))
    };
}

static EXCLUSIVE: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: source!(
        "exclusive/acquire_free",
        "clock",
        "token",
        "queue",
        "places",
        "exclusive/hand_over",
        "exclusive/acquire"
    ),
    extend: source!("touch", "exclusive/extend"),
    release: source!(
        "exclusive/release_free",
        "clock",
        "token",
        "queue",
        "exclusive/hand_over",
        "exclusive/release"
    ),
    refresh: source!(
        "clock",
        "token",
        "queue",
        "places",
        "exclusive/hand_over",
        "exclusive/refresh"
    ),
    inspect: source!("clock", "exclusive/inspect"),
    force_release: source!(
        "clock",
        "token",
        "queue",
        "exclusive/hand_over",
        "exclusive/force_release"
    ),
    raise_token: source!("clock", "token", "touch", "exclusive/raise_token"),
    transfer: Some(source!("clock", "token", "queue", "exclusive/hand_over", "exclusive/transfer")),
    write_note: Some(source!("clock", "exclusive/write_note")),
    read_note: Some(source!("exclusive/read_note")),
});
static COUNTED: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: source!(
        "counted/acquire_free",
        "clock",
        "token",
        "queue",
        "places",
        "counted/hand_over",
        "counted/acquire"
    ),
    extend: source!("clock", "token", "queue", "counted/hand_over", "counted/extend"),
    release: source!(
        "counted/release_free",
        "clock",
        "token",
        "queue",
        "counted/hand_over",
        "counted/release"
    ),
    refresh: source!("clock", "token", "queue", "places", "counted/hand_over", "counted/refresh"),
    inspect: source!("clock", "token", "counted/inspect"),
    force_release: source!("clock", "token", "queue", "counted/hand_over", "counted/force_release"),
    raise_token: source!("clock", "token", "queue", "counted/hand_over", "counted/raise_token"),
    transfer: None,
    write_note: None,
    read_note: None,
});

/// Acquires and releases several exclusive locks.
pub(crate) static BATCH: LazyLock<Source> = LazyLock::new(|| source!("exclusive/batch"));

impl Family {
    pub(crate) fn scripts(self) -> &'static Scripts {
        match self {
            Self::Exclusive => &EXCLUSIVE,
            Self::Counted => &COUNTED,
        }
    }
}

/// How many permits a claim wants, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) count: u32,
    pub(crate) limit: u32,
}

/// All permits of a read/write lock.
pub(crate) const ALL: u32 = 0x7fff_ffff;

/// A waiter's entry in the store: `client:window in ms:owner`. In the counted family, the number of
/// permits comes before the owner.
pub(crate) fn waiter(
    client: &str,
    window_ms: i64,
    permits: Option<Permits>,
    owner: &str,
) -> String {
    let mut text = String::with_capacity(client.len() + owner.len() + 32);
    text.push_str(client);
    // Writing to a String can't fail.
    let _ = write!(text, ":{window_ms}:");
    if let Some(permits) = permits {
        let _ = write!(text, "{}:", permits.count);
    }
    text.push_str(owner);
    text
}
