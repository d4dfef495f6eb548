//! A member that could not be reached when its quorum was made. It is connected when it is used.

use std::{
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{
    FutureExt as _,
    future::{self, BoxFuture, WeakShared},
};
use lockkit_core::{
    Clock, Error, ErrorKind, FencingToken, Kind, LockName, Registry, Result, Tick,
    spi::{
        Admin, Attempt, Backend, Claim, ClaimSpec, Descriptor, Diagnostic, Inspection, LossReason,
        Released, RenewalOutcome, Role, Wait, operator,
    },
    url::StoreUrl,
};
use tokio::runtime::{Handle, Id};

use crate::member::{NAME, lacking};

/// The pause after a failure, in which no caller tries again.
const PAUSE: Duration = Duration::from_millis(500);

/// A member that may be reached later. The quorum assumes that it is like another member of the
/// same scheme. If it turns out to lack something, it is refused then.
pub(crate) struct LateMember {
    link: Arc<Link>,
    descriptor: Descriptor,
}

struct Link {
    registry: Registry,
    url: StoreUrl,
    /// The descriptor that the quorum assumed for this member, because it was not connected.
    expected: Descriptor,
    backend: OnceLock<Arc<dyn Backend>>,
    /// At most one for each runtime.
    connecting: Mutex<Vec<Connecting>>,
    failed: Mutex<Option<(Tick, Arc<Error>)>>,
}

/// A connection that is being made. Its sockets and timers work only while this runtime runs.
struct Connecting {
    runtime: Option<Id>,
    future: WeakShared<BoxFuture<'static, Connected>>,
}

/// All waiters share an error.
type Connected = Result<Arc<dyn Backend>, Arc<Error>>;

impl LateMember {
    pub(crate) fn new(registry: Registry, url: StoreUrl, descriptor: Descriptor) -> Self {
        let backend = OnceLock::new();
        let connecting = Mutex::default();
        let failed = Mutex::default();
        let link =
            Link { registry, url, expected: descriptor.clone(), backend, connecting, failed };
        Self { link: Arc::new(link), descriptor }
    }
}

impl Link {
    async fn backend(self: &Arc<Self>) -> Result<&Arc<dyn Backend>> {
        if let Some(backend) = self.backend.get() {
            return Ok(backend);
        }
        match self.connecting().await {
            Ok(backend) => {
                let kept = self.backend.get_or_init(|| Arc::clone(&backend));
                if !Arc::ptr_eq(kept, &backend) {
                    // Another runtime was faster. No caller uses this backend.
                    let _ = backend.close().await;
                }
                Ok(kept)
            }
            Err(error) => {
                let copy = Error::new(error.kind(), error.context().to_owned())
                    .with_status(error.status());
                Err(copy.with_source(error))
            }
        }
    }

    /// The connection that this runtime makes, or the next one. Each waiter drives it, because the
    /// caller that began it may stop. That caller may have its lock from the other members, and
    /// asks nothing until it renews or releases.
    fn connecting(self: &Arc<Self>) -> future::Shared<BoxFuture<'static, Connected>> {
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let mut connecting = lock(&self.connecting);
        let begun = connecting.iter().filter(|begun| begun.runtime == runtime);
        let begun =
            begun.filter_map(|begun| begun.future.upgrade()).find(|begun| begun.peek().is_none());
        let link = Arc::clone(self);
        let next = begun.unwrap_or_else(|| connect(link).boxed().shared());
        connecting.retain(|begun| begun.runtime != runtime && begun.future.upgrade().is_some());
        connecting.extend(next.downgrade().map(|future| Connecting { runtime, future }));
        next
    }

    async fn connect(&self) -> Connected {
        let now = Clock::Boot.now();
        if let Some((at, error)) = &*lock(&self.failed)
            && at.until(now) < PAUSE
        {
            return Err(Arc::clone(error));
        }
        let connected = self.connect_now().await.map_err(Arc::new);
        connected.inspect_err(|error| {
            *lock(&self.failed) = Some((Clock::Boot.now(), Arc::clone(error)));
        })
    }

    async fn connect_now(&self) -> Result<Arc<dyn Backend>> {
        let connector = self.registry.connector(self.url.scheme())?;
        let backend = connector.connect(self.url.clone(), &self.registry).await?;
        let Some(lacking) = lacking(&self.expected, backend.descriptor()) else {
            return Ok(backend);
        };
        // The result of the close does not matter: the error below names the fault, and no caller
        // uses the backend.
        let _ = backend.close().await;
        let text = format!(
            "{} differs from the other members of its scheme: it has {lacking}; give all members \
             of a scheme the same parameters",
            self.url
        );
        Err(Error::new(ErrorKind::Unsupported, text).with_backend(NAME))
    }
}

async fn connect(link: Arc<Link>) -> Connected {
    // The timers of a runtime that has ended panic. The next connection has new timers.
    match AssertUnwindSafe(link.connect()).catch_unwind().await {
        Ok(connected) => connected,
        Err(_) => Err(Arc::new(Error::new(
            ErrorKind::Unavailable,
            "the backend panicked while it connected",
        ))),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Backend for LateMember {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        match self.link.backend.get() {
            Some(backend) => backend.claim(spec),
            None => Ok(Box::new(LateClaim { link: Arc::clone(&self.link), spec, claim: None })),
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.link.backend().await?.inspect(name).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.link.backend().await?.force_release(name, token).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        match self.link.backend.get() {
            Some(backend) => backend.close().await,
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Admin for LateMember {
    async fn probe(&self) -> Result<Role> {
        operator::probe(&**self.link.backend().await?).await
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        operator::names(&**self.link.backend().await?, kind, prefix).await
    }

    async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        operator::diagnose(&**self.link.backend().await?).await
    }
}

impl fmt::Debug for LateMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LateMember").field(&self.link.url).finish()
    }
}

/// A claim of a member that was not connected when the claim was made. It does nothing before its
/// first attempt.
struct LateClaim {
    link: Arc<Link>,
    spec: ClaimSpec,
    claim: Option<Box<dyn Claim>>,
}

#[async_trait]
impl Claim for LateClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        let claim = match &mut self.claim {
            Some(claim) => claim,
            None => {
                let claim = self.link.backend().await?.claim(self.spec.clone())?;
                self.claim.insert(claim)
            }
        };
        claim.attempt(wait).await
    }

    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome> {
        match &mut self.claim {
            Some(claim) => claim.renew(lease).await,
            None => Ok(RenewalOutcome::Lost(LossReason::Evicted)),
        }
    }

    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        match &mut self.claim {
            Some(claim) => claim.raise_token(floor).await,
            None => Ok(None),
        }
    }

    fn leave_grant(&mut self) {
        if let Some(claim) = &mut self.claim {
            claim.leave_grant();
        }
    }

    async fn release(&mut self) -> Result<Released> {
        match &mut self.claim {
            Some(claim) => claim.release().await,
            None => Ok(Released::NotHeld),
        }
    }
}

impl fmt::Debug for LateClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateClaim")
            .field("url", &self.link.url)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}
