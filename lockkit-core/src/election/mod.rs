//! Offers leader election: an exclusive lock whose label is the leader's address, and watches that
//! read it.

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
/// value in the same step in which it makes the candidate the leader. So each process that
/// [asks](Self::leader) or [watches](Self::watch) sees the value from then on. Where the store
/// claims [`fair`](crate::spi::Capabilities::fair), the candidates get their turns in the order in
/// which the store saw them.
///
/// Each leader has a [term](Leadership::term) above all terms before it. A leader that is paused
/// after its last check may act late. Only a resource that compares terms, and refuses a smaller
/// term than it has seen, can stop it.
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
    /// The state that its watches share with the watches of its clones.
    watches: Shared,
}

impl Locker {
    /// Returns the election with this name. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], or [`ErrorKind::Unsupported`] if the backend has no exclusive
    /// locks, or can't show the labels of their holders.
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

    /// Sets options of this election. An option that is not set keeps its value, which is at first
    /// the locker's default. The election ignores the label, because the value of the candidate
    /// replaces it.
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

    /// Waits for this candidate's turn to lead. `value` is the text that others see of this leader:
    /// 1 to 255 bytes without control characters.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a value that can't be used. [`ErrorKind::Timeout`] when
    /// [`LockOptions::wait`] has passed. If the store can't be reached, the call asks again until
    /// `wait` has passed. Without `wait`, it asks again for the ttl. It returns any other error at
    /// once.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn campaign(&self, value: &str) -> Result<Leadership> {
        let guard = self.candidate(value)?.lock(Mode::Exclusive).await?;
        Ok(Leadership::new(guard, value))
    }

    /// Asks once. Returns `None` if another candidate leads, or is to lead first.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a value that can't be used, or any error of the store. It
    /// is no error if another candidate leads.
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub async fn try_campaign(&self, value: &str) -> Result<Option<Leadership>> {
        let guard = self.candidate(value)?.try_lock(Mode::Exclusive).await?;
        Ok(guard.map(|guard| Leadership::new(guard, value)))
    }

    /// Waits at most `wait` for this candidate's turn to lead. This bound replaces the bound of the
    /// options.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a value that can't be used. [`ErrorKind::Timeout`] when
    /// `wait` has passed. Otherwise any error of the store, after the call has asked again within
    /// the bound.
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub async fn campaign_timeout(&self, value: &str, wait: Duration) -> Result<Leadership> {
        let guard = self.candidate(value)?.lock_timeout(Mode::Exclusive, wait).await?;
        Ok(Leadership::new(guard, value))
    }

    /// Continues the leadership of a ticket, which
    /// [`LockGuard::into_ticket`](crate::LockGuard::into_ticket) has made of a leadership's
    /// [guard](Leadership::into_guard) in any process. The term stays the same, and others see
    /// `value` from now on. Otherwise as [`Locker::resume`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a value that can't be used, or for a ticket that is not of
    /// this election. Otherwise as [`Locker::resume`].
    ///
    /// # Cancel safety
    /// As [`Locker::resume`].
    pub async fn resume(&self, value: &str, ticket: &str) -> Result<Leadership> {
        let candidate = self.candidate(value)?;
        let ticket = self.handle.locker().checked_ticket(ticket)?;
        if ticket.name != *self.name() {
            let text = format!("the ticket is of {}, and not of this election", ticket.name);
            let error = Error::new(ErrorKind::InvalidOption, text);
            return Err(self.handle.explain(error, "resume"));
        }
        Ok(Leadership::new(candidate.resume(&ticket).await?, value))
    }

    /// Campaigns, and runs `work` while this candidate leads.
    ///
    /// If the leadership is lost, `work` is dropped at once, and is called again when the candidate
    /// leads again. When `work` ends, the candidate resigns and the call returns.
    ///
    /// The call returns the output of `work` if the candidate led until its resignation, or if the
    /// resignation got no answer. If the leadership was lost before, another candidate may have led
    /// meanwhile. Then the call drops the output and calls `work` again.
    ///
    /// While the store can't be used, the call pauses before it campaigns again, for 20 ms at first
    /// and for 1 s at most. It also pauses like this after a leadership that was lost within its
    /// first ttl.
    ///
    /// `work` gets a view of the leadership, whose [`fencing_token`](Hold::fencing_token) is the
    /// term. The future is `Send` if `work` and its future are.
    ///
    /// ```
    /// # async fn spawned(election: lockkit_core::Election) -> lockkit_core::Result<()> {
    /// let term = election.lead("node 7", |hold| async move { hold.fencing_token() }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An error that another campaign can't mend: a bad value, a missing privilege, or
    /// [`ErrorKind::Closed`] after a shutdown. [`ErrorKind::Timeout`] when [`LockOptions::wait`]
    /// has passed in one campaign.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the background task gives up the leadership.
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

    /// Asks the store for the present leader. Returns `None` if there is no leader, or if the
    /// leader is a program that is not lockkit's. Such a program has no term;
    /// [`inspect`](Self::inspect) shows it.
    ///
    /// When its lease ends, the leader itself notices it first. Until the lease ends by the store's
    /// time, this call still returns that leader.
    ///
    /// # Errors
    /// Any error of the store.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        Ok(Leader::of(self.inspect().await?))
    }

    /// Makes a watch of the leader, without being a candidate. Does no I/O yet.
    #[must_use]
    pub fn watch(&self) -> LeaderWatch {
        LeaderWatch::new(&self.handle, &self.watches)
    }

    /// Reports the leader and the number of candidates that wait.
    ///
    /// # Errors
    /// Any error of the store.
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
