//! The two families of locks, and the scripts of each.

use std::{fmt::Write as _, sync::LazyLock};

use crate::{
    script::Source,
    scripts::{counted, exclusive},
};

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
    /// Several attempts and releases at once.
    pub(crate) batch: Source,
    pub(crate) resume: Source,
    /// Only in the exclusive family.
    pub(crate) transfer: Option<Source>,
    pub(crate) write_note: Option<Source>,
    pub(crate) read_note: Option<Source>,
}

static EXCLUSIVE: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: Source::new(exclusive::ACQUIRE),
    extend: Source::new(exclusive::EXTEND),
    release: Source::new(exclusive::RELEASE),
    refresh: Source::new(exclusive::REFRESH),
    inspect: Source::new(exclusive::INSPECT),
    force_release: Source::new(exclusive::FORCE_RELEASE),
    raise_token: Source::new(exclusive::RAISE_TOKEN),
    batch: Source::new(exclusive::BATCH),
    resume: Source::new(exclusive::RESUME),
    transfer: Some(Source::new(exclusive::TRANSFER)),
    write_note: Some(Source::new(exclusive::WRITE_NOTE)),
    read_note: Some(Source::new(exclusive::READ_NOTE)),
});
static COUNTED: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: Source::new(counted::ACQUIRE),
    extend: Source::new(counted::EXTEND),
    release: Source::new(counted::RELEASE),
    refresh: Source::new(counted::REFRESH),
    inspect: Source::new(counted::INSPECT),
    force_release: Source::new(counted::FORCE_RELEASE),
    raise_token: Source::new(counted::RAISE_TOKEN),
    batch: Source::new(counted::BATCH),
    resume: Source::new(counted::RESUME),
    transfer: None,
    write_note: None,
    read_note: None,
});

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
