//! Leader election: an exclusive lock whose label is the leader's address, and a look at it for
//! everybody else.

mod lead;
mod leader;
mod leadership;
#[cfg(test)]
mod tests;
mod watch;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use self::{lead::Candidacy, watch::Shared};
pub use self::{leader::Leader, leadership::Leadership, watch::LeaderWatch};
use crate::{
    error::{Error, ErrorKind, Result},
    handle::Handle,
    hold::Hold,
    locker::Locker,
    name::{Kind, LockName},
    naming::check_text,
    options::LockOptions,
    spi::{Inspection, Mode},
};

/// An election of one leader at a time among any number of candidates, in any number of processes.
///
/// A candidate [campaigns](Self::campaign) with a value, such as its address. The store writes that
/// value in the same step in which it makes the candidate the leader, so whoever
/// [asks](Self::leader) or [watches](Self::watch) sees it from then on. The candidates get their
/// turns in the order in which the store saw them, wherever it claims
/// [`fair`](crate::spi::Capabilities::fair).
///
/// Each leader has a [term](Leadership::term) above all before it. A leader that is paused after
/// its last check may act late; only a resource that compares terms and refuses a smaller one than
/// it has seen can stop it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = lockkit_core::Locker::memory();
/// let election = locker.election("scheduler")?;
/// let leadership = election.campaign("10.0.0.7:8080").await?;
/// assert!(leadership.is_leader());
/// let leader = election.leader().await?.expect("somebody leads");
/// assert_eq!((leader.value.as_str(), leader.term), ("10.0.0.7:8080", leadership.term()));
/// leadership.resign().await?;
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone)]
pub struct Election {
    handle: Handle,
    /// What its watches, and those of its clones, share.
    watches: Shared,
}

impl Locker {
    /// The election with this name. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], or [`ErrorKind::Unsupported`] if the backend has no exclusive
    /// locks, or can't show what their holders say of themselves.
    pub fn election(&self, name: &str) -> Result<Election> {
        self.require(self.capabilities().exclusive, "exclusive locks")?;
        self.require(self.capabilities().labels, "labels, which the values of leaders are")?;
        Ok(Election::new(Handle::new(self, Kind::Election, name)?))
    }
}

impl Election {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle, watches: Shared::default() }
    }

    /// Sets options of this election. An option that is not set stays as it is: at first the
    /// locker's default. The label is not used: the value takes its place.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if the options contradict each other.
    pub fn with_options(self, options: LockOptions) -> Result<Self> {
        Ok(Self::new(self.handle.with_options(options)?))
    }

    /// The checked name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// Waits for its turn to lead. `value` is what others shall see of this leader: 1 to 255 bytes
    /// of text without control characters.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a value that can't be used, [`ErrorKind::Timeout`] when
    /// [`LockOptions::wait`] has passed. A store that can't be reached is asked again; for how long
    /// is bounded by `wait`, or without one by the ttl. Anything else at once.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn campaign(&self, value: &str) -> Result<Leadership> {
        let guard = self.candidate(value)?.lock(Mode::Exclusive).await?;
        Ok(Leadership::new(guard, value))
    }

    /// Asks once; `None` if somebody leads, or is to lead before.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a value that can't be used, or whatever the store says.
    /// That somebody leads is no error.
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub async fn try_campaign(&self, value: &str) -> Result<Option<Leadership>> {
        let guard = self.candidate(value)?.try_lock(Mode::Exclusive).await?;
        Ok(guard.map(|guard| Leadership::new(guard, value)))
    }

    /// Waits at most `wait` for its turn, whatever bound the options set.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a value that can't be used, [`ErrorKind::Timeout`] when
    /// `wait` has passed, or whatever the store says, after asking again within the bound.
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub async fn campaign_timeout(&self, value: &str, wait: Duration) -> Result<Leadership> {
        let guard = self.candidate(value)?.lock_timeout(Mode::Exclusive, wait).await?;
        Ok(Leadership::new(guard, value))
    }

    /// Campaigns, and runs `work` for as long as it leads: whenever the leadership is lost, `work`
    /// is dropped where it stands, and called again once it leads again. Ends when `work` does, and
    /// resigns then.
    ///
    /// What `work` returned is returned if it led until its resignation, or if that got no answer.
    /// If the leadership was lost before, somebody else may have led by then: what `work` returned
    /// is dropped, and it is called again.
    ///
    /// While the store can't be used it pauses, for 20 ms at first and for 1 s at most, and
    /// campaigns again. So does a leadership that was lost within its first ttl.
    ///
    /// `work` is given a view of the leadership, whose
    /// [`fencing_token`](Hold::fencing_token) is the term. The future is `Send` if `work` and its
    /// future are.
    ///
    /// ```
    /// # async fn spawned(election: lockkit_core::Election) -> lockkit_core::Result<()> {
    /// let term = election.lead("node 7", |hold| async move { hold.fencing_token() }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What campaigning again can't mend: a bad value, a missing privilege, [`ErrorKind::Closed`]
    /// after a shutdown, [`ErrorKind::Timeout`] when [`LockOptions::wait`] has passed in one
    /// campaign.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the leadership is given up in the background.
    pub async fn lead<F: Future>(
        &self,
        value: &str,
        mut work: impl FnMut(Hold) -> F,
    ) -> Result<F::Output> {
        let mut candidacy = Candidacy::new(self, value);
        loop {
            let leadership = candidacy.win().await?;
            let done = leadership.run(work(leadership.hold())).await;
            if let Some(output) = candidacy.end(leadership, done).await {
                return Ok(output);
            }
        }
    }

    /// Asks the store who leads. `None` if nobody does, or a program that is not lockkit's: that
    /// has no term, and [`inspect`](Self::inspect) shows it.
    ///
    /// The leader itself knows it first when its lease ends: between that and the end by the
    /// store's time it is still told here.
    ///
    /// # Errors
    /// Whatever the store says.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        Ok(Leader::of(self.inspect().await?))
    }

    /// Watches who leads, without being a candidate. No I/O yet.
    #[must_use]
    pub fn watch(&self) -> LeaderWatch {
        LeaderWatch::new(&self.handle, &self.watches)
    }

    /// Tells who leads and how many wait for their turn.
    ///
    /// # Errors
    /// Whatever the store says.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn inspect(&self) -> Result<Inspection> {
        self.handle.inspect().await
    }

    fn candidate(&self, value: &str) -> Result<Handle> {
        check_text("the value of a candidate", value).map_err(|reason| {
            self.handle.explain(Error::new(ErrorKind::InvalidOption, reason), "campaign")
        })?;
        Ok(self.handle.labelled(Arc::from(value)))
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("handle", &self.handle).finish_non_exhaustive()
    }
}
