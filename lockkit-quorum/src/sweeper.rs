//! Takes back the parts of ballots at members that did not answer in time.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use lockkit_core::{
    Clock, Result, Tick,
    spi::{ClaimSpec, LeaseScope, bounded},
};
use tokio::{runtime::Handle, sync::Notify, task::unconstrained, time};

use crate::{member::Member, vote::Vote};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How many parts are worked on at once for one member. More would flood a member that comes back.
const AT_ONCE: usize = 16;
/// How many parts wait for one member. If there are more, the oldest are left to their leases.
const MOST: usize = 4_096;
/// The longest time that a close waits for silent members.
const LAST_CHANCE: Duration = Duration::from_secs(5);

/// Runs one task while there is work. It survives the end of its runtime as the keeper of a locker
/// does. Parts that were left then are taken back once another runtime gives the sweeper more work.
pub(crate) struct Sweeper {
    state: Mutex<State>,
    /// Wakes the task.
    signal: Notify,
    /// Wakes the close.
    idle: Notify,
    /// For each member, whether its grants end with the member's session, and not by themselves.
    lasting: Vec<bool>,
}

struct State {
    /// The waiting parts, by member.
    left: Vec<VecDeque<Leftover>>,
    working: Vec<usize>,
    attended: bool,
    /// The remaining parts are left to their leases.
    abandoned: bool,
    /// Long enough for the claim with the longest requests.
    patience: Duration,
}

struct Leftover {
    vote: Vote,
    clock: Clock,
    budget: Duration,
    /// The part has ended by then.
    until: Tick,
}

impl Sweeper {
    pub(crate) fn new(members: &[Member]) -> Arc<Self> {
        let of_session =
            |member: &Member| member.backend.descriptor().lease_scope == LeaseScope::Session;
        let lasting = members.iter().map(of_session).collect();
        let state = State {
            left: members.iter().map(|_| VecDeque::new()).collect(),
            working: vec![0; members.len()],
            attended: false,
            abandoned: false,
            patience: Duration::ZERO,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            signal: Notify::new(),
            idle: Notify::new(),
            lasting,
        })
    }

    /// Takes over the parts that a ballot left, and returns how many there were.
    pub(crate) fn take(
        self: &Arc<Self>,
        votes: impl Iterator<Item = Vote>,
        spec: &ClaimSpec,
    ) -> usize {
        let mut count = 0;
        for vote in votes {
            // A request that was sent at the end of the ballot may be applied at the end of the
            // request's own time.
            let lasting = self.lasting.get(vote.place).is_some_and(|lasting| *lasting);
            let lapse = spec.clock.now().after(spec.ttl.saturating_add(spec.op_timeout));
            let until = if lasting { Tick::NEVER } else { vote.lapse(lapse) };
            self.put(Leftover { vote, clock: spec.clock, budget: spec.op_timeout / 2, until });
            count += 1;
        }
        if count > 0 {
            let mut state = self.lock();
            state.patience = state.patience.max(spec.op_timeout.min(LAST_CHANCE));
            drop(state);
            self.ensure();
        }
        count
    }

    fn put(&self, leftover: Leftover) {
        let too_old = {
            let mut state = self.lock();
            let Some(queue) = state.left.get_mut(leftover.vote.place) else { return };
            queue.push_back(leftover);
            if queue.len() > MOST { queue.pop_front() } else { None }
        };
        // Dropped outside the lock, because the drop of a claim runs the backend's code.
        drop(too_old);
        self.signal.notify_one();
    }

    fn ensure(self: &Arc<Self>) {
        // Outside of a runtime the part waits for the next runtime, and its lease ends it anyhow.
        let Ok(runtime) = Handle::try_current() else { return };
        let attended = std::mem::replace(&mut self.lock().attended, true);
        if !attended {
            #[expect(clippy::disallowed_methods, reason = "the one background task of a quorum")]
            runtime.spawn(Attendance { sweeper: Arc::clone(self), retired: false }.work());
        }
    }

    /// Waits until no part is left, or for about as long as a request may take. Returns false if a
    /// part was left to its lease.
    pub(crate) async fn close(self: &Arc<Self>) -> bool {
        if !self.lock().is_empty() {
            self.ensure();
        }
        let patience = self.lock().patience;
        let swept = bounded(patience, self.until_idle()).await.is_ok();
        if !swept {
            self.lock().abandoned = true;
            self.signal.notify_one();
            // The running requests are dropped with the task, when the task is next polled.
            let _ = bounded(LAST_CHANCE, self.until_idle()).await;
            let left = self.lock().left.iter_mut().map(std::mem::take).collect::<Vec<_>>();
            drop(left);
            self.lock().abandoned = false;
        }
        swept
    }

    async fn until_idle(&self) -> Result<()> {
        loop {
            let idle = self.idle.notified();
            if !self.lock().attended {
                return Ok(());
            }
            idle.await;
        }
    }

    /// Takes the parts that may be worked on now.
    fn next(&self) -> Vec<Leftover> {
        let mut state = self.lock();
        let State { left, working, .. } = &mut *state;
        let mut taken = Vec::new();
        for (queue, working) in left.iter_mut().zip(working) {
            let room = AT_ONCE.saturating_sub(*working).min(queue.len());
            *working += room;
            taken.extend(queue.drain(..room));
        }
        taken
    }

    fn done(&self, place: usize) {
        if let Some(working) = self.lock().working.get_mut(place) {
            *working = working.saturating_sub(1);
        }
    }

    /// Returns true if the task must end. A caller that adds a part after this starts a new task.
    fn retire(&self) -> bool {
        let mut state = self.lock();
        let ends = state.abandoned || state.is_empty();
        if ends {
            state.attended = false;
        }
        ends
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.left.iter().all(VecDeque::is_empty) && self.working.iter().all(|working| *working == 0)
    }
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sweeper")
    }
}

/// Marks that the task runs. When it is dropped, also with its runtime, another task may start.
struct Attendance {
    sweeper: Arc<Sweeper>,
    retired: bool,
}

impl Attendance {
    async fn work(mut self) {
        let sweeper = &self.sweeper;
        let mut sweeps = FuturesUnordered::new();
        loop {
            sweeps.extend(sweeper.next().into_iter().map(|left| {
                let sweep = Sweep {
                    sweeper: Arc::clone(sweeper),
                    place: left.vote.place,
                    left: Some(left),
                };
                unconstrained(sweep.run())
            }));
            if sweeper.retire() {
                self.retired = true;
                return;
            }
            tokio::select! {
                Some(()) = sweeps.next() => {}
                () = sweeper.signal.notified() => {}
            }
        }
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        // If the task has retired, the next task may already run.
        if !self.retired {
            self.sweeper.lock().attended = false;
        }
        self.sweeper.idle.notify_waiters();
    }
}

/// One part at work. If it is dropped before it is done, the part goes back to the queue.
struct Sweep {
    sweeper: Arc<Sweeper>,
    place: usize,
    left: Option<Leftover>,
}

impl Sweep {
    async fn run(mut self) {
        if let Some(left) = &mut self.left {
            left.take_back().await;
        }
        self.left = None;
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        self.sweeper.done(self.place);
        if let Some(left) = self.left.take()
            && !self.sweeper.lock().abandoned
        {
            self.sweeper.put(left);
        }
    }
}

impl Leftover {
    async fn take_back(&mut self) {
        let mut pause = FIRST_PAUSE;
        for call in 1.. {
            poll_fn(|cx| self.vote.poll(cx)).await;
            if !self.vote.dirty || self.clock.now() >= self.until {
                return;
            }
            self.vote.release(self.budget, call);
            poll_fn(|cx| self.vote.poll(cx)).await;
            if !self.vote.dirty {
                return;
            }
            time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
