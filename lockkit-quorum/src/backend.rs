//! The quorum as a backend: its members as one store of locks.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::{self, BoxFuture};
use lockkit_core::{
    Error, ErrorKind, FencingToken, Kind, LockName, Result,
    spi::{
        Admin, Backend, Claim, ClaimSpec, Descriptor, Diagnostic, Holder, Inspection, Mode,
        Released, Role, Severity, operator,
    },
};
use tokio::time;

use crate::{
    claim::QuorumClaim,
    gather::{Answers, gather, good, too_few},
    inspect,
    member::{Member, NAME, describe},
    members::Members,
    need::Need,
    sweeper::Sweeper,
};

/// Pauses before an inspection asks the members again. A ballot takes some round trips, and is
/// usually decided by one of these looks.
const BETWEEN_LOOKS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(40)];

/// A lock over several independent stores; see the [crate](crate).
///
/// ```
/// use std::sync::Arc;
/// use lockkit_core::{Locker, Memory, spi::Backend};
/// use lockkit_quorum::{Need, Quorum};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let member = || -> Arc<dyn Backend> { Arc::new(Memory::new()) };
/// let majority = Quorum::new(vec![member(), member(), member()])?; // outlives the loss of one
/// let locker = Locker::new(majority);
/// locker.mutex("report")?.lock().await?.release().await?;
///
/// let all = Quorum::with_need(vec![member(), member()], Need::All)?; // stands in each of them
/// # Locker::new(all).shutdown().await?;
/// # locker.shutdown().await
/// # }
/// ```
pub struct Quorum {
    members: Arc<Members>,
    descriptor: Descriptor,
}

impl Quorum {
    /// A lock that a majority of the members must grant.
    ///
    /// The members must be stores that do not depend on each other. Two members may be one store,
    /// such as two connections to one server. They then refuse each other's half of every ballot,
    /// and the quorum cannot detect that.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if there is no member, or a member is there twice. The same
    /// error if a member is a quorum itself, has no exclusive locks, or cannot raise the token of a
    /// grant (ZooKeeper).
    pub fn new(members: Vec<Arc<dyn Backend>>) -> Result<Self> {
        Self::with_need(members, Need::Majority)
    }

    /// A lock that `need` of the members must grant.
    ///
    /// # Errors
    /// As for [`new`](Self::new). With [`Need::All`], a member that cannot raise tokens is
    /// accepted, and its tokens are not raised.
    pub fn with_need(members: Vec<Arc<dyn Backend>>, need: Need) -> Result<Self> {
        let members =
            members.into_iter().enumerate().map(|(place, backend)| Member::new(place, backend));
        Self::of(members.collect(), need)
    }

    /// Adds `token_base` to the tokens of the first member, and makes its token the token of the
    /// grant.
    ///
    /// This is for a live move to or from a store that cannot raise tokens, such as ZooKeeper. The
    /// base must be above all tokens of the other members, now and for as long as the quorum is
    /// used. The quorum refuses a grant for which the base is too small.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] unless all members are needed, the first member cannot raise
    /// tokens, and `token_base` is at most 2^62.
    pub fn with_first_token_base(self, token_base: u64) -> Result<Self> {
        let mut all = self.members.all.clone();
        all.iter_mut().take(1).for_each(|first| first.token_base = Some(token_base));
        Self::of(all, self.members.need)
    }

    pub(crate) fn of(all: Vec<Member>, need: Need) -> Result<Self> {
        let descriptor = describe(&all, need)?;
        let sweeper = Sweeper::new(&all);
        Ok(Self { members: Arc::new(Members { all, need, sweeper }), descriptor })
    }

    fn need(&self) -> usize {
        self.members.need.of(self.members.all.len())
    }

    /// This many members have a member in common with every quorum. If none of them knows an owner,
    /// no quorum holds the lock for that owner.
    fn touch(&self) -> usize {
        self.members.all.len() - self.need() + 1
    }

    fn ask<'a, T>(
        &'a self,
        ask: impl Fn(&'a Member) -> BoxFuture<'a, Result<T>>,
    ) -> Vec<BoxFuture<'a, Result<T>>> {
        self.members.all.iter().map(ask).collect()
    }

    fn check<T>(&self, answers: &Answers<T>, need: usize) -> Result<()> {
        too_few(answers, need, |place| &self.members.all[place].label).map_or(Ok(()), Err)
    }

    /// Inspects the members, and computes the holders. A running ballot looks like a ballot with
    /// hidden members, so the members are asked again a little later.
    async fn look(
        &self,
        name: &LockName,
        settled: impl Fn(&Answers<Inspection>) -> bool,
    ) -> Result<(Answers<Inspection>, Vec<Holder>)> {
        let mut pauses = BETWEEN_LOOKS.iter();
        loop {
            let looks = self.ask(|member| member.inspect(name));
            let answers = gather(looks, self.need(), &settled).await;
            self.check(&answers, self.need())?;
            let unclear = match inspect::holders(&answers, &self.members.all, self.members.need) {
                Ok(holders) => return Ok((answers, holders)),
                Err(error) => error,
            };
            let Some(pause) = pauses.next() else { return Err(unclear) };
            time::sleep(*pause).await;
        }
    }
}

#[async_trait]
impl Backend for Quorum {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        if spec.mode != Mode::Exclusive {
            // Half of the members of two readers could be half of the members of a writer. And n
            // permits on each of five stores make more than n permits for two majorities.
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a quorum supports only exclusive locks",
            )
            .with_backend(NAME));
        }
        Ok(Box::new(QuorumClaim::new(Arc::clone(&self.members), spec)?))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let Members { all, need, .. } = &*self.members;
        let (_, holders) =
            self.look(name, |answers| inspect::is_settled(answers, all, *need)).await?;
        Ok(Inspection::new(holders, None))
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        // Waits for all members that answer, because each member that shows the holder must free
        // it.
        let (seen, holders) = self.look(name, |_| false).await?;
        let Some(owner) = holders.iter().find(|it| it.token == Some(token)).and_then(|it| it.owner)
        else {
            return Ok(Released::NotHeld);
        };
        let holding = inspect::tokens(&seen, owner);
        let requests = holding
            .iter()
            .map(|(place, shown)| self.members.all[*place].free(name, owner, *shown, token));
        let answers = gather(requests.collect(), self.need(), |_| false).await;
        // The lock is free once enough members are without it that another client can get it. The
        // old grant then has too few members left as well.
        let elsewhere = good(&seen).count() - holding.len();
        let freed = good(&answers).filter(|(_, is_free)| **is_free).count();
        let without = elsewhere + freed;
        // A member that still shows the owner has a larger token than the named one. The owner's
        // ballot may then win with members that grant later.
        let is_raised = freed < good(&answers).count();
        if !is_raised && without >= self.need() && without >= self.touch() {
            return Ok(Released::Freed);
        }
        let label = |at: usize| &*self.members.all[holding[at].0].label;
        let error = too_few(&answers, answers.len(), label).unwrap_or_else(|| {
            let text = if is_raised {
                "the token of the grant was raised meanwhile; inspect again".to_owned()
            } else {
                format!(
                    "{without} of {} members no longer have the lock, and {} must confirm that",
                    seen.len(),
                    self.need()
                )
            };
            Error::new(ErrorKind::Unavailable, text)
        });
        Err(error.with_outcome_unknown())
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        if !self.members.sweeper.close().await {
            tracing::warn!(
                "closed a quorum while some members did not answer; records there end with their \
                 leases"
            );
        }
        let closing = self.members.all.iter().map(|member| async {
            let closed = member.backend.close().await;
            closed.map_err(|error| (error.kind(), format!("{}: {}", member.label, error.context())))
        });
        let failed: Vec<_> =
            future::join_all(closing).await.into_iter().filter_map(Result::err).collect();
        let Some((kind, _)) = failed.first() else { return Ok(()) };
        let texts: Vec<_> = failed.iter().map(|(_, text)| text.as_str()).collect();
        Err(Error::new(*kind, texts.join("; ")))
    }
}

#[async_trait]
impl Admin for Quorum {
    async fn probe(&self) -> Result<Role> {
        let need = self.need();
        let answers = gather(
            self.ask(|member| Box::pin(operator::probe(&*member.backend))),
            need,
            |answers| good(answers).count() >= need,
        )
        .await;
        self.check(&answers, need)?;
        Ok(Role::Member)
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        let lists = self.ask(|member| Box::pin(operator::names(&*member.backend, kind, prefix)));
        let answers = gather(lists, self.touch(), |_| false).await;
        self.check(&answers, self.touch())?;
        let mut names: Vec<_> = good(&answers).flat_map(|(_, names)| names).cloned().collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Diagnoses all members one by one, because a quorum is only as good as its members.
    async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        let looks = self.members.all.iter().map(|member| async {
            let diagnostics = operator::diagnose(&*member.backend).await.unwrap_or_else(|error| {
                let unknown = Diagnostic::new(Severity::Unknown, "state", "not told");
                vec![unknown.with_advice(error.context().to_owned())]
            });
            diagnostics.into_iter().map(|mut diagnostic| {
                diagnostic.what = format!("{} of {}", diagnostic.what, member.label);
                diagnostic
            })
        });
        Ok(future::join_all(looks).await.into_iter().flatten().collect())
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = self.members.all.iter().map(|member| &member.label).collect();
        f.debug_struct("Quorum")
            .field("need", &self.members.need)
            .field("members", &labels)
            .finish()
    }
}
