//! What a caller may ask of a lock, checked in one place.

use std::{sync::Arc, time::Duration};

use crate::{
    error::{Error, ErrorKind, Result},
    naming::check_text,
};

/// The shortest lease. Below it the safety margin (1 % + 2 ms) would eat a large part of the lease.
pub const MIN_TTL: Duration = Duration::from_millis(10);
/// The longest lease. A longer hold is what renewal is for.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

const DEFAULT_TTL: Duration = Duration::from_secs(30);
const LONGEST_DEFAULT_OP_TIMEOUT: Duration = Duration::from_secs(3);

/// Who renews a held lock ([C10](crate::contract#c10-renewal)).
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
    /// The locker's keeper renews the lease for as long as the guard lives.
    #[default]
    Auto,
    /// Only [`Hold::renew`](crate::Hold::renew) and [`extend`](crate::Hold::extend)
    /// do; else the lock ends with its first lease.
    Manual,
}

/// Options of a lock.
///
/// Each option is set or not set. `with_options` lays the options that are set over those that the
/// lock has already; an option that is not set stays as it was. A lock begins with the locker's
/// defaults, which come from the URL and from
/// [`Locker::with_defaults`](crate::Locker::with_defaults), and these begin with the list below. So
/// a bound on waiting that is set for one lock keeps the ttl and the label of the URL.
///
/// A getter answers the value in force: what was set, or else what the list below says. So
/// `LockOptions::new().ttl()` is 30 s.
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
    /// [`Duration::MAX`] for ever.
    wait: Option<Duration>,
    renewal: Option<Renewal>,
    op_timeout: Option<Duration>,
    pub(crate) label: Option<Arc<str>>,
    /// [`Duration::MAX`] for ever.
    max_hold: Option<Duration>,
    pub(crate) group: Option<Arc<str>>,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl LockOptions {
    /// Options of which none is set.
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

    /// Sets the lease: how long the store keeps the lock for a holder that no longer renews it
    /// ([C9](crate::contract#c9-crash)). 10 ms to 24 h.
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

    /// Says who renews the lease.
    #[must_use]
    pub const fn with_renewal(mut self, renewal: Renewal) -> Self {
        self.renewal = Some(renewal);
        self
    }

    /// Bounds one request to the store: at most half of the ttl. A default that is longer than half
    /// of a lock's own ttl counts as not set for that lock.
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

    /// Ends each hold after this long, however often it is renewed; at least the ttl. At its end
    /// the lock is [lost](crate::LossReason::MaxHold) and freed in the store.
    ///
    /// A holder that dies shortly before that end leaves its last lease behind: for others the lock
    /// is taken for at most `max_hold` + `ttl`, or until the end of a longer lease that
    /// [`extend`](crate::Hold::extend) asked for.
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

    /// Sets what metrics and traces file the lock under, such as `orders`: 1 to 255 bytes without
    /// control characters. Use few of them: each is a time series of its own, which names would be
    /// too many for.
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

    /// How long [`lock`](crate::Mutex::lock) waits at most; `None`, which is for ever, also if it is
    /// not set.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.wait.filter(|wait| *wait < Duration::MAX)
    }

    /// Who renews the lease; [`Renewal::Auto`] if it is not set.
    #[must_use]
    pub fn renewal(&self) -> Renewal {
        self.renewal.unwrap_or_default()
    }

    /// How long one request to the store may take; `None` if it is not set, which is 3 s or a third
    /// of the ttl, whichever is shorter.
    #[must_use]
    pub const fn op_timeout(&self) -> Option<Duration> {
        self.op_timeout
    }

    /// The text that inspection shows, if one is set.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// How long one hold may last; `None`, which is for as long as the guard lives, also if it is
    /// not set.
    #[must_use]
    pub fn max_hold(&self) -> Option<Duration> {
        self.max_hold.filter(|max_hold| *max_hold < Duration::MAX)
    }

    /// What metrics and traces file the lock under, if it is set.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// These options, and where they are not set, those of `base`, as a lock takes what it does not
    /// set itself from its locker's defaults.
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

    /// Checks all options together and fills in what follows from others.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] with the relation that does not hold.
    pub(crate) fn check(&self) -> Result<Limits> {
        let invalid = |reason: String| Err(Error::new(ErrorKind::InvalidOption, reason));
        let Self { op_timeout, label, max_hold, group, .. } = self;
        let ttl = self.ttl();
        if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
            return invalid(format!(
                "ttl is {ttl:?}, it must be between {MIN_TTL:?} and 24 h; renewal keeps a lock for longer"
            ));
        }
        let derived = LONGEST_DEFAULT_OP_TIMEOUT.min(ttl / 3);
        let op_timeout = op_timeout.unwrap_or(derived);
        if op_timeout < Duration::from_millis(1) {
            return invalid(format!("op_timeout is {op_timeout:?}, it must be at least 1 ms"));
        }
        if op_timeout > ttl / 2 {
            return invalid(format!(
                "op_timeout is {op_timeout:?}, it must be at most half of ttl ({ttl:?}), else a lease can end \
                 before one renewal could have failed"
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
                "max_hold is {max_hold:?}, it must be at least ttl ({ttl:?}), else a holder that dies keeps the lock \
                 longer than one that lives"
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

/// The checked durations that the driver works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) ttl: Duration,
    pub(crate) op_timeout: Duration,
    /// [`Duration::MAX`] for ever.
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
                "max_hold is 99ms, it must be at least ttl (100ms)",
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
    fn what_is_not_set_is_left_to_the_others() {
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
