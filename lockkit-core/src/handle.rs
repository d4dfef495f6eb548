//! Holds the common parts of mutex, read/write lock, semaphore and election: a name, a locker and
//! options.

use std::{sync::Arc, time::Duration};

use tracing::{Instrument as _, field::Empty};

use crate::{
    clock::Clock,
    driver::{
        acquire::{acquire, stale_ticket},
        held::Held,
        request::{Bound, Request},
    },
    error::{Error, ErrorKind, Result},
    guard::LockGuard,
    locker::Locker,
    name::{Kind, LockName},
    options::{CheckedOptions, Limits, LockOptions},
    spi::{GrantId, Inspection, Mode, Released},
    ticket::Ticket,
    token::FencingToken,
};

#[derive(Clone, Debug)]
pub(crate) struct Handle {
    locker: Locker,
    name: LockName,
    options: Arc<CheckedOptions>,
}

impl Handle {
    /// Makes a handle with the defaults of the locker.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`].
    pub(crate) fn new(locker: &Locker, kind: Kind, name: &str) -> Result<Self> {
        let name = LockName::new(kind, name)?;
        Ok(Self { locker: locker.clone(), name, options: Arc::clone(&locker.defaults) })
    }

    pub(crate) fn with_options(mut self, options: LockOptions) -> Result<Self> {
        self.options = Arc::new(CheckedOptions::new(options.over(&self.options.options))?);
        Ok(self)
    }

    /// Returns the same lock with another label, which must have been checked.
    pub(crate) fn labelled(&self, label: Arc<str>) -> Self {
        let mut options = CheckedOptions::clone(&self.options);
        options.options.label = Some(label);
        Self { options: Arc::new(options), ..self.clone() }
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    pub(crate) fn locker(&self) -> &Locker {
        &self.locker
    }

    pub(crate) fn limits(&self) -> Limits {
        self.options.limits
    }

    pub(crate) fn label(&self) -> Option<&str> {
        self.options.options.label()
    }

    /// Waits for as long as the options say.
    pub(crate) async fn lock(&self, mode: Mode) -> Result<LockGuard> {
        self.lock_within(mode, self.bound()).await
    }

    pub(crate) async fn lock_timeout(&self, mode: Mode, wait: Duration) -> Result<LockGuard> {
        self.lock_within(mode, Bound::Within(wait)).await
    }

    async fn lock_within(&self, mode: Mode, bound: Bound) -> Result<LockGuard> {
        self.acquire(mode, bound).await?.ok_or_else(|| self.timeout(bound))
    }

    /// Makes the error for a wait whose bound has passed.
    pub(crate) fn timeout(&self, bound: Bound) -> Error {
        let wait = if let Bound::Within(wait) = bound { wait } else { Duration::ZERO };
        let timeout =
            Error::new(ErrorKind::Timeout, format!("the lock was not free within {wait:?}"));
        self.explain(timeout, "lock")
    }

    /// Makes one more guard of the same hold. All guards but one must be disarmed.
    pub(crate) fn another_guard(&self, held: Arc<Held>) -> LockGuard {
        LockGuard::new(held, Arc::clone(&self.locker.keeper))
    }

    pub(crate) fn ensure_runtime(&self) -> Result<()> {
        self.locker.keeper.ensure().map_err(|error| self.explain(error, "lock"))
    }

    pub(crate) async fn try_lock(&self, mode: Mode) -> Result<Option<LockGuard>> {
        self.acquire(mode, Bound::Try).await
    }

    pub(crate) async fn inspect(&self) -> Result<Inspection> {
        self.locker.inspect(&self.name).await
    }

    pub(crate) async fn force_release(&self, token: FencingToken) -> Result<Released> {
        self.locker.force_release(&self.name, token).await
    }

    pub(crate) fn explain(&self, error: Error, operation: &'static str) -> Error {
        self.locker.explain(error, operation, &self.name)
    }

    /// The bound on waiting that the options set.
    pub(crate) fn bound(&self) -> Bound {
        self.options.options.wait().map_or(Bound::Forever, Bound::Within)
    }

    pub(crate) fn op_timeout(&self) -> Duration {
        self.options.limits.op_timeout
    }

    pub(crate) fn clock(&self) -> Clock {
        self.locker.keeper.locker().clock
    }

    pub(crate) fn acquire(
        &self,
        mode: Mode,
        bound: Bound,
    ) -> impl Future<Output = Result<Option<LockGuard>>> {
        let bound = if matches!(bound, Bound::Within(Duration::ZERO)) { Bound::Try } else { bound };
        self.ask(mode, bound, None)
    }

    /// Continues the grant of a ticket, with the ttl of the ticket.
    pub(crate) async fn resume(self, ticket: &Ticket) -> Result<LockGuard> {
        let handle = self.with_options(LockOptions::new().with_ttl(ticket.ttl))?;
        let guard = handle.ask(ticket.mode, Bound::Forever, Some(&ticket.grant)).await?;
        guard.ok_or_else(|| handle.explain(stale_ticket(), "resume"))
    }

    async fn ask(
        &self,
        mode: Mode,
        bound: Bound,
        resumes: Option<&GrantId>,
    ) -> Result<Option<LockGuard>> {
        let request = Request {
            backend: &*self.locker.backend,
            keeper: &self.locker.keeper,
            // The gate is for tasks that compete.
            gated: self.locker.gated && resumes.is_none(),
            name: &self.name,
            mode,
            options: &self.options,
            resumes,
        };
        let span = tracing::debug_span!(
            "lockkit.acquire",
            lock.name = self.name.as_str(),
            lock.kind = self.name.kind().as_str(),
            lock.mode = ?mode,
            backend = self.locker.descriptor().name,
            group = self.options.options.group.as_deref(),
            token = Empty,
            attempts = Empty,
            outcome = Empty,
        );
        let Some(held) = acquire(request, bound).instrument(span).await? else { return Ok(None) };
        let guard = LockGuard::new(held, Arc::clone(&self.locker.keeper));
        // Only now is it certain that a background task sees the hold: the task that is ending, or
        // the next one.
        if !self.locker.keeper.agenda().is_attended() {
            self.locker.keeper.ensure()?;
        }
        Ok(Some(guard))
    }
}
