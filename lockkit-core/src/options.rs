//! Defines the options of a lock, and checks them in one place.

use std::{sync::Arc, time::Duration};

use crate::{
    error::{Error, ErrorKind, Result},
    naming::check_text,
};

/// The shortest lease. Below it the safety margin (1 % + 2 ms) would eat a large part of the lease.
pub const MIN_TTL: Duration = Duration::from_millis(10);
/// The longest lease. For a longer hold, renew the lease.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

const DEFAULT_TTL: Duration = Duration::from_secs(30);
const LONGEST_DEFAULT_OP_TIMEOUT: Duration = Duration::from_secs(3);

/// The choice between automatic and manual renewal of a held lock
/// ([C10](crate::contract#c10-renewal)).
///
/// ```
/// use std::time::Duration;
/// use lockkit_core::{LockOptions, Locker, Renewal};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let by_hand = LockOptions::new().with_ttl(Duration::from_secs(10)).with_renewal(Renewal::Manual);
/// let guard = locker.mutex("orders/42")?.with_options(by_hand)?.lock().await?;
/// guard.renew().await?; // counted anew from here
/// guard.release().await?;
/// # locker.shutdown().await
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// The locker's background task renews the lease for as long as the guard lives.
    #[default]
    Auto,
    /// Only [`Hold::renew`](crate::Hold::renew) and [`extend`](crate::Hold::extend) renew the
    /// lease. Without them the lock ends with its first lease.
    Manual,
}

/// Options of a lock.
///
/// Each option is set or not set. `with_options` lays the options that are set over those that the
/// lock already has. An option that is not set keeps its value.
///
/// A lock begins with the locker's defaults. They come from the URL and from
/// [`Locker::with_defaults`](crate::Locker::with_defaults), and begin with the list below. So if
/// one lock sets a bound on waiting, it keeps the ttl and the label of the URL.
///
/// A getter returns the value in force: the value that was set, or else the value in the list
/// below. So `LockOptions::new().ttl()` is 30 s.
///
/// With the cargo feature `serde`, options come from a file, too. Its keys and values are those of
/// `Settings`, without `url`, `token_base` and `process_gate`. A contradiction is an error of
/// `with_options`.
///
/// ```
/// use std::time::Duration;
/// use lockkit_core::{LockOptions, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let options = LockOptions::new()
///     .with_ttl(Duration::from_secs(10))        // free so long after a crash
///     .with_wait(Duration::from_secs(2))        // then `lock` is an error
///     .with_max_hold(Duration::from_secs(600))  // renewed until then
///     .with_label("nightly report");            // what others see
/// let guard = locker.mutex("report")?.with_options(options)?.lock().await?;
/// guard.release().await?;
/// # locker.shutdown().await
/// # }
/// ```
///
/// # Default
/// * `ttl`: 30 s
/// * `wait`: `None`, for ever
/// * `renewal`: [`Renewal::Auto`]
/// * `op_timeout`: `None`, which means 3 s or a third of `ttl`, whichever is shorter
/// * `label`: `None`
/// * `max_hold`: `None`, for as long as the guard lives
/// * `group`: `None`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOptions {
    ttl: Option<Duration>,
    /// [`Duration::MAX`] means for ever.
    wait: Option<Duration>,
    renewal: Option<Renewal>,
    op_timeout: Option<Duration>,
    pub(crate) label: Option<Arc<str>>,
    /// [`Duration::MAX`] means for ever.
    max_hold: Option<Duration>,
    pub(crate) group: Option<Arc<str>>,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LockOptions {
    /// Makes options of which none is set.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ttl: None,
            wait: None,
            renewal: None,
            op_timeout: None,
            label: None,
            max_hold: None,
            group: None,
        }
    }

    /// Sets the lease, from 10 ms to 24 h. The store keeps the lock for this long after the last
    /// renewal of its holder ([C9](crate::contract#c9-crash)).
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Bounds the wait of [`lock`](crate::Mutex::lock).
    #[must_use]
    pub const fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Lets [`lock`](crate::Mutex::lock) wait for ever.
    #[must_use]
    pub const fn without_wait_bound(mut self) -> Self {
        self.wait = Some(Duration::MAX);
        self
    }

    /// Sets how the lease is renewed.
    #[must_use]
    pub const fn with_renewal(mut self, renewal: Renewal) -> Self {
        self.renewal = Some(renewal);
        self
    }

    /// Bounds one request to the store: at most half of the ttl. If a locker's default is longer
    /// than half of a lock's own ttl, that lock ignores it.
    #[must_use]
    pub const fn with_op_timeout(mut self, op_timeout: Duration) -> Self {
        self.op_timeout = Some(op_timeout);
        self
    }

    /// Sets the text that inspection shows to humans: 1 to 255 bytes without control characters.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Ends each hold after this long, however often it is renewed. It must be at least the ttl. At
    /// that end the lock is [lost](crate::LossReason::MaxHold), and lockkit frees it in the store.
    ///
    /// A holder that dies shortly before that end leaves its last lease behind. Then the lock stays
    /// taken for at most `max_hold` + `ttl`. It stays taken longer if
    /// [`extend`](crate::Hold::extend) asked for a lease that ends later.
    #[must_use]
    pub const fn with_max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Lets a hold last for as long as its guard lives.
    #[must_use]
    pub const fn without_max_hold(mut self) -> Self {
        self.max_hold = Some(Duration::MAX);
        self
    }

    /// Sets the group under which metrics and traces file the lock, such as `orders`: 1 to 255
    /// bytes without control characters. Use few groups, because each group is its own time series.
    /// One time series for each lock name would be too many.
    #[must_use]
    pub fn with_group(mut self, group: impl Into<Arc<str>>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// The lease; 30 s if it is not set.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl.unwrap_or(DEFAULT_TTL)
    }

    /// The longest wait of [`lock`](crate::Mutex::lock). `None` means for ever, and is also the
    /// answer if the option is not set.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.wait.filter(|wait| *wait < Duration::MAX)
    }

    /// How the lease is renewed; [`Renewal::Auto`] if it is not set.
    #[must_use]
    pub fn renewal(&self) -> Renewal {
        self.renewal.unwrap_or_default()
    }

    /// The longest time for one request to the store. If it is not set, the answer is `None`, which
    /// means 3 s or a third of the ttl, whichever is shorter.
    #[must_use]
    pub const fn op_timeout(&self) -> Option<Duration> {
        self.op_timeout
    }

    /// The text that inspection shows, if one is set.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// The longest time for one hold. `None` means for as long as the guard lives, and is also the
    /// answer if the option is not set.
    #[must_use]
    pub fn max_hold(&self) -> Option<Duration> {
        self.max_hold.filter(|max_hold| *max_hold < Duration::MAX)
    }

    /// The group under which metrics and traces file the lock, if one is set.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// Takes each option that is not set here from `base`. In this way a lock takes the options
    /// that it does not set itself from its locker's defaults.
    #[must_use]
    pub fn over(self, base: &Self) -> Self {
        let ttl = self.ttl.or(base.ttl);
        let fits = |op_timeout: &Duration| ttl.is_none_or(|ttl| *op_timeout <= ttl / 2);
        Self {
            ttl,
            wait: self.wait.or(base.wait),
            renewal: self.renewal.or(base.renewal),
            op_timeout: self.op_timeout.or(base.op_timeout.filter(fits)),
            label: self.label.or_else(|| base.label.clone()),
            max_hold: self.max_hold.or(base.max_hold),
            group: self.group.or_else(|| base.group.clone()),
        }
    }

    /// Checks all options together, and computes the values that follow from other options.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`]; the text names the relation that does not hold.
    pub(crate) fn check(&self) -> Result<Limits> {
        let invalid = |reason: String| Err(Error::new(ErrorKind::InvalidOption, reason));
        let Self { op_timeout, label, max_hold, group, .. } = self;
        let ttl = self.ttl();
        if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
            return invalid(format!(
                "ttl is {ttl:?}, but it must be between {MIN_TTL:?} and 24 h; renewal keeps a lock \
                 for longer than its ttl"
            ));
        }
        let derived = LONGEST_DEFAULT_OP_TIMEOUT.min(ttl / 3);
        let op_timeout = op_timeout.unwrap_or(derived);
        if op_timeout < Duration::from_millis(1) {
            return invalid(format!("op_timeout is {op_timeout:?}, but it must be at least 1 ms"));
        }
        if op_timeout > ttl / 2 {
            return invalid(format!(
                "op_timeout is {op_timeout:?}, but it must be at most half of ttl ({ttl:?}); \
                 otherwise a lease can end before a first renewal has failed"
            ));
        }
        if let Some(group) = group
            && let Err(reason) = check_text("a group", group)
        {
            return invalid(reason);
        }
        if let Some(max_hold) = max_hold
            && *max_hold < ttl
        {
            return invalid(format!(
                "max_hold is {max_hold:?}, but it must be at least ttl ({ttl:?}); otherwise a dead \
                 holder keeps the lock longer than a living one"
            ));
        }
        if let Some(label) = label
            && let Err(reason) = check_text("a label", label)
        {
            return invalid(reason);
        }
        Ok(Limits { ttl, op_timeout, max_hold: max_hold.unwrap_or(Duration::MAX) })
    }
}

/// Options that were checked once, for locks that are taken often.
#[derive(Clone, Debug)]
pub(crate) struct CheckedOptions {
    pub(crate) options: LockOptions,
    pub(crate) limits: Limits,
}

impl CheckedOptions {
    pub(crate) fn new(options: LockOptions) -> Result<Self> {
        let limits = options.check()?;
        Ok(Self { options, limits })
    }
}

impl Default for CheckedOptions {
    fn default() -> Self {
        let ttl = DEFAULT_TTL;
        let op_timeout = LONGEST_DEFAULT_OP_TIMEOUT;
        let limits = Limits { ttl, op_timeout, max_hold: Duration::MAX };
        Self { options: LockOptions::new(), limits }
    }
}

/// The checked durations that the driver uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) ttl: Duration,
    pub(crate) op_timeout: Duration,
    /// [`Duration::MAX`] means for ever.
    pub(crate) max_hold: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn c13_contradicting_options_are_refused_with_the_relation() {
        let options = LockOptions::new();
        for (bad, reason) in [
            (options.clone().with_ttl(Duration::ZERO), "ttl is 0ns"),
            (options.clone().with_ttl(ms(9)), "between 10ms and 24 h"),
            (options.clone().with_ttl(MAX_TTL + ms(1)), "between 10ms and 24 h"),
            (options.clone().with_op_timeout(Duration::ZERO), "at least 1 ms"),
            (
                options.clone().with_ttl(ms(100)).with_op_timeout(ms(51)),
                "at most half of ttl (100ms)",
            ),
            (
                options.clone().with_ttl(ms(100)).with_max_hold(ms(99)),
                "max_hold is 99ms, but it must be at least ttl (100ms)",
            ),
            (options.clone().with_label(""), "a label must not be empty"),
            (options.clone().with_label("a\nb"), "control characters"),
            (options.clone().with_group(""), "a group must not be empty"),
        ] {
            let error = bad.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOption);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn unset_options_keep_the_other_values() {
        let all = LockOptions::new()
            .with_ttl(ms(100))
            .with_wait(ms(7))
            .with_renewal(Renewal::Manual)
            .with_op_timeout(ms(10))
            .with_label("a")
            .with_max_hold(ms(200))
            .with_group("g");
        assert_eq!(LockOptions::new().over(&all), all);
        assert_eq!(all.clone().over(&LockOptions::new()), all);
        let others =
            LockOptions::new().with_ttl(ms(300)).with_label("b").with_renewal(Renewal::Auto);
        let others = others.without_wait_bound().without_max_hold().over(&all);
        assert_eq!(
            (others.ttl(), others.label(), others.renewal()),
            (ms(300), Some("b"), Renewal::Auto)
        );
        assert_eq!((others.wait(), others.max_hold()), (None, None));
        assert_eq!((others.op_timeout(), others.group()), (Some(ms(10)), Some("g")));
        let short = LockOptions::new().with_ttl(ms(19));
        assert_eq!(
            short.clone().over(&all).op_timeout(),
            None,
            "it is longer than half of this ttl"
        );
        let both = short.with_op_timeout(ms(10)).over(&all);
        assert_eq!(both.check().unwrap_err().kind(), ErrorKind::InvalidOption);
    }

    #[test]
    fn op_timeout_follows_from_ttl() {
        let unchecked = CheckedOptions::default();
        assert_eq!(unchecked.options.check().unwrap(), unchecked.limits);
        assert_eq!(unchecked.limits.op_timeout, ms(3_000));
        assert_eq!(LockOptions::new().with_ttl(ms(600)).check().unwrap().op_timeout, ms(200));
    }
}
