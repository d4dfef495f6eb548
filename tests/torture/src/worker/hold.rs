//! A held lock, from the grant to the end of the hold.

use std::{future::pending, time::Duration};

use futures_util::FutureExt as _;
use lockkit::{ErrorKind, LockGuard, LossReason, Note};
use tokio::time::{Instant, sleep, timeout};

use super::{
    broken,
    parent::Parent,
    plan::{End, Plan, Step},
};
use crate::{
    clock,
    ear::Signal,
    error::Result,
    history::{Event, Lock, Mode, Op, Outcome, Writer},
    register::Client,
};

/// The interval at which a holder checks its lock during long work.
const BETWEEN_CHECKS: Duration = Duration::from_millis(100);
/// The time for which a holder still listens for the loss signal after it knows of its loss, or
/// should know of it. This is longer than the bound on the signal.
const DISBELIEF: Duration = Duration::from_secs(3);

/// Two reads of the clock around one of the guard are closer than this, in ns.
const READ_IN_NS: u64 = 10_000_000;

/// A guard, and its use by the holder.
pub(super) struct Hold<'a> {
    op: Op,
    plan: &'a Plan,
    guard: LockGuard,
    signal: Signal,
    token: u64,
    parent: &'a Parent,
    history: &'a Writer,
    register: &'a mut Client,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    /// The parent has left, so the holder releases the lock.
    Leaving,
    Lost,
}

impl<'a> Hold<'a> {
    pub(super) fn new(
        op: Op,
        plan: &'a Plan,
        (guard, signal): (LockGuard, Signal),
        parent: &'a Parent,
        history: &'a Writer,
        register: &'a mut Client,
    ) -> Self {
        let token = guard.fencing_token().get();
        Self { op, plan, guard, signal, token, parent, history, register, state: State::Held }
    }

    pub(super) async fn work(mut self) -> Result<()> {
        self.begin();
        let op = self.op;
        let history = self.history;
        if self.plan.listens {
            let tell =
                |reason: LossReason| history.write(Event::Told { op, reason: reason.to_string() });
            self.signal.clone().beside(tell, self.live()).await?;
        } else {
            self.live().await?;
        }
        self.end().await
    }

    async fn live(&mut self) -> Result<()> {
        for step in &self.plan.steps {
            if self.state != State::Held {
                break;
            }
            self.step(*step).await?;
        }
        if self.state == State::Lost && self.plan.obstinate {
            self.write(true).await?;
        }
        if self.state == State::Lost {
            self.hear().await;
        }
        Ok(())
    }

    fn begin(&mut self) {
        let until = self.believes();
        let Self { op, token, .. } = *self;
        let owner = self.guard.owner().to_string();
        self.history.write(Event::Granted { op, owner, token, until: until.end });
        if self.plan.listens {
            self.history.write(Event::Listens { op });
        }
        if until.is_empty() {
            self.lose();
        }
    }

    async fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Check => {
                self.check();
            }
            Step::Extend(lease) => self.renew(Some(lease)).await?,
            Step::Note(time) => self.note(time).await?,
            Step::Oversleep(beyond) => self.oversleep(beyond).await?,
            Step::Renew => self.renew(None).await?,
            Step::Sleep(time) => self.sleep(time).await,
            Step::Work(time) => {
                let mut left = time;
                while !left.is_zero() && self.state == State::Held {
                    let now = left.min(BETWEEN_CHECKS);
                    left -= now;
                    self.sleep(now).await;
                    if self.state == State::Held {
                        self.check();
                    }
                }
            }
            Step::Write => {
                if self.check() {
                    self.write(false).await?;
                }
            }
        }
        Ok(())
    }

    /// Writes notes in sequence. Renewals must find time between the notes.
    async fn note(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        let mut note = Note::default();
        while Instant::now() < end && self.state == State::Held {
            note = note.next("busy");
            let guard = &self.guard;
            let parent = self.parent;
            let noted = tokio::select! {
                biased;
                () = parent.leaves() => {
                    self.state = State::Leaving;
                    return Ok(());
                }
                noted = guard.write_note(&note) => noted,
            };
            match noted {
                // Any answer counts: an earlier holder may have left a later note.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    let rest = end.saturating_duration_since(Instant::now());
                    self.sleep(rest).await;
                }
                Err(error) => {
                    self.check();
                    broken(&error)?;
                }
            }
        }
        if self.state == State::Held {
            self.check();
        }
        Ok(())
    }

    /// The time of the hold, as the guard reports it now.
    fn believes(&self) -> std::ops::Range<u64> {
        loop {
            // Reads the clock first, so that the computed end is not after the real end.
            let at = clock::now();
            let left = u64::try_from(self.guard.remaining().as_nanos()).unwrap_or(u64::MAX);
            // A busy machine may stop this thread between the two, and the end would be too early.
            if clock::now().saturating_sub(at) < READ_IN_NS {
                return at..at.saturating_add(left);
            }
        }
    }

    /// Checks whether the lock is still held, and records until when.
    fn check(&mut self) -> bool {
        let until = self.believes();
        if until.is_empty() {
            self.lose();
            return false;
        }
        self.history.write_at(until.start, Event::Holds { op: self.op, until: until.end });
        true
    }

    fn lose(&mut self) {
        let reason = self.signal.wait().now_or_never();
        self.lost_because(reason.map(|reason| reason.to_string()));
    }

    fn lost_because(&mut self, reason: Option<String>) {
        self.history.write(Event::Lost { op: self.op, reason });
        self.state = State::Lost;
    }

    async fn sleep(&mut self, time: Duration) {
        let lost =
            async { if self.plan.listens { self.signal.wait().await } else { pending().await } };
        tokio::select! {
            biased;
            () = self.parent.leaves() => self.state = State::Leaving,
            reason = lost => self.lost_because(Some(reason.to_string())),
            () = sleep(time) => {}
        }
    }

    /// Waits a while for the loss signal, if the holder listens.
    async fn hear(&mut self) {
        if self.plan.listens {
            // The history shows if the signal is absent.
            let _ = timeout(DISBELIEF, self.signal.wait()).await;
        }
    }

    /// Sleeps past the end of the lease, and then writes without a check.
    async fn oversleep(&mut self, beyond: Duration) -> Result<()> {
        let left = self.guard.remaining();
        if left == Duration::MAX {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = self.parent.leaves() => self.state = State::Leaving,
            () = sleep(left + beyond) => {
                self.write(true).await?;
                // A check could itself reveal the loss, so the holder waits for the signal first.
                self.hear().await;
                self.check();
            }
        }
        Ok(())
    }

    async fn renew(&mut self, lease: Option<Duration>) -> Result<()> {
        let op = self.op;
        self.history.write(Event::Renews { op, lease });
        let renewed = match lease {
            Some(lease) => self.guard.extend(lease).await.map(drop),
            None => self.guard.renew().await,
        };
        let error = renewed.as_ref().err().map(ToString::to_string);
        self.history.write(Event::Renewed { op, error });
        self.check();
        renewed.or_else(|error| broken(&error))
    }

    /// Only an exclusive holder writes. If two holders hold at the same time, the holder with the
    /// smaller token may correctly write last.
    async fn write(&mut self, careless: bool) -> Result<()> {
        let Plan { lock, mode, .. } = self.plan;
        let alone = match (mode, lock) {
            (Mode::Exclusive, _) => true,
            (Mode::Permits(count), Lock::Semaphore { limit, .. }) => count == limit,
            (Mode::Permits(_) | Mode::Shared, _) => false,
        };
        if alone {
            let op = self.op;
            self.history.write(Event::Writes { op, careless });
            let accepted = self.register.write(op, lock, self.token).await?.accepted;
            self.history.write(Event::Written { op, accepted });
        }
        Ok(())
    }

    async fn end(self) -> Result<()> {
        let Self { op, plan, guard, history, .. } = self;
        history.write(Event::Releases { op });
        let released = match plan.end {
            End::Drop => {
                drop(guard);
                None
            }
            End::Release => Some(guard.release().await),
            End::ReleaseWithin(time) => timeout(time, guard.release()).await.ok(),
        };
        let (outcome, end) = match released {
            None => (Outcome::Dropped, Ok(())),
            Some(Ok(())) => (Outcome::Freed, Ok(())),
            Some(Err(error)) if error.kind() == ErrorKind::Lost => (Outcome::NotHeld, Ok(())),
            Some(Err(error)) => {
                let text = error.to_string();
                let unknown = error.is_outcome_unknown();
                let outcome = if unknown { Outcome::Unknown(text) } else { Outcome::Failed(text) };
                (outcome, broken(&error))
            }
        };
        history.write(Event::Released { op, outcome });
        end
    }
}
