//! Lets an operator take a lock from a running command before another command gets the lock.
//!
//! A store sends a holder no messages, but every process can look at a lock. So `lockkit unlock`
//! takes a mutex. Its name follows from the lock's name, and its label says which grants the
//! operator asks for. The lockkit that runs a command under a lock looks at that mutex again and
//! again. If it is asked, it first stops the command, and then gives the lock back.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use lockkit::{
    ErrorKind, Kind, LockGuard, LockName, LockOptions, Locker, MAX_NAME_BYTES, spi::Inspection,
};

use crate::error::{Error, Result};

const PREFIX: &str = "lockkit-unlock/";

/// The longest time between two looks of a holder at the mutex.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Which grants of a lock the operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantFilter {
    Exactly(u64),
    /// The grant with this token and all before it, so that the next holder is not asked.
    UpTo(u64),
}

impl GrantFilter {
    pub(crate) fn meets(self, token: u64) -> bool {
        match self {
            Self::Exactly(filter) => token == filter,
            Self::UpTo(filter) => token <= filter,
        }
    }
}

impl fmt::Display for GrantFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(token) => write!(f, "={token}"),
            Self::UpTo(token) => write!(f, "<={token}"),
        }
    }
}

/// Asks for a lock. The holders are asked for as long as the guard is held.
///
/// # Errors
/// Another operator asks for the same lock, or the store can't be used.
pub(crate) async fn ask(
    locker: &Locker,
    name: &LockName,
    filter: GrantFilter,
    reason: &str,
    patience: Duration,
) -> Result<LockGuard> {
    let options = LockOptions::new().with_label(label(filter, reason));
    let mutex = locker.mutex(&ask_name(name))?.with_options(options)?;
    match mutex.lock_timeout(patience).await {
        Err(error) if error.kind() == ErrorKind::Timeout => Err(Error::new(format!(
            "another `lockkit unlock` has been freeing {name} for {patience:?}; wait until it ends"
        ))),
        answer => Ok(answer?),
    }
}

/// Completes with the reason when an operator asks for this grant.
///
/// # Cancel safety
/// Cancel safe: it only looks.
pub(crate) async fn asked(locker: &Locker, guard: &LockGuard, ttl: Duration) -> String {
    let token = guard.fencing_token().get();
    let pause = (ttl / 3).min(LONGEST_PAUSE);
    let Ok(name) = LockName::new(Kind::Mutex, &ask_name(guard.name())) else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(pause).await;
        // If the store can't answer now, this asks again. The guard reports a loss meanwhile.
        if let Ok(inspection) = locker.inspect(&name).await
            && let Some(reason) = reason_for(token, &inspection)
        {
            return reason;
        }
    }
}

/// Whether a name is such a mutex, and not a lock of a user.
pub(crate) fn is_ask(name: &LockName) -> bool {
    name.kind() == Kind::Mutex && name.as_str().starts_with(PREFIX)
}

fn reason_for(token: u64, inspection: &Inspection) -> Option<String> {
    let labels = inspection.holders.iter().filter_map(|holder| holder.label.as_deref());
    let mut asks = labels.filter_map(parse).filter(|(filter, _)| filter.meets(token));
    asks.next().map(|(_, reason)| reason.to_owned())
}

fn label(filter: GrantFilter, reason: &str) -> String {
    let mut label = format!("{filter} ");
    for c in reason.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if label.len() + c.len_utf8() > MAX_NAME_BYTES {
            break;
        }
        label.push(c);
    }
    label
}

fn parse(label: &str) -> Option<(GrantFilter, &str)> {
    let (filter, reason) = label.split_once(' ')?;
    let exactly = || filter.strip_prefix('=')?.parse().ok().map(GrantFilter::Exactly);
    let up_to = || filter.strip_prefix("<=")?.parse().ok().map(GrantFilter::UpTo);
    Some((exactly().or_else(up_to)?, reason))
}

/// The name of the mutex: a 128-bit FNV-1a hash of kind and name, so that it is never too long for
/// a name. The hash never changes.
fn ask_name(name: &LockName) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = name.kind().as_str().bytes().chain([0]).chain(name.as_str().bytes());
    let hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    let mut text = PREFIX.to_owned();
    let _ = write!(text, "{hash:032x}");
    text
}

/// Whether a store can carry this protocol.
pub(crate) fn is_possible(locker: &Locker) -> Result<()> {
    if locker.capabilities().exclusive && locker.capabilities().labels {
        return Ok(());
    }
    let text =
        "this store shows no labels, so lockkit could not ask the holder; free the lock with --now";
    Err(lockkit::Error::new(ErrorKind::Unsupported, text).into())
}

#[cfg(test)]
mod tests {
    use lockkit::spi::{Holder, Mode};

    use super::*;

    #[test]
    fn an_ask_is_about_its_own_grants() {
        let seen = |label: String| {
            Inspection::new(vec![Holder::new(Mode::Exclusive).with_label(label)], None)
        };
        for (filter, met, left) in [
            (GrantFilter::Exactly(7), 7, 6),
            (GrantFilter::Exactly(7), 7, 8),
            (GrantFilter::UpTo(7), 3, 8),
        ] {
            let asked = seen(label(filter, "disk\nfull"));
            assert_eq!(reason_for(met, &asked).as_deref(), Some("disk full"));
            assert_eq!(reason_for(left, &asked), None);
        }
        for foreign in ["", "7", "7 a", "=x a", "lockkit pid 7"] {
            assert_eq!(reason_for(7, &seen(foreign.to_owned())), None, "{foreign}");
        }
        assert_eq!(reason_for(7, &Inspection::default()), None);
    }

    #[test]
    fn c11_names_and_labels_fit_whatever_they_are_made_of() {
        let name = |kind, text: &str| LockName::new(kind, text).unwrap();
        let longest = name(Kind::Mutex, &"é".repeat(127));
        assert!(is_ask(&name(Kind::Mutex, &ask_name(&longest))));
        assert_eq!(
            ask_name(&name(Kind::Mutex, "a")),
            "lockkit-unlock/116e64cd414ff78d769a730f48950c27".to_owned()
        );
        assert_ne!(ask_name(&name(Kind::Mutex, "a")), ask_name(&name(Kind::RwLock, "a")));
        let label = label(GrantFilter::UpTo(u64::MAX), &"é".repeat(300));
        assert!(label.len() <= 255 && LockName::new(Kind::Mutex, &label).is_ok());
    }
}
