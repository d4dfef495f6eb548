//! A process that takes locks. Each of its tasks sends its own requests.

use std::{future::pending, time::Duration};

use lockkit::{ErrorKind, LockGuard, LockOptions, Locker};
use tokio::{task::JoinSet, time::sleep};

use super::{
    broken,
    handle::Handle,
    hold::Hold,
    locks::Locks,
    parent::Parent,
    plan::{Plan, Planner, seeds},
    pulse,
};
use crate::{
    child::Job,
    ear::{Ear, Signal},
    error::{Error, Result},
    history::{Event, Op, Patience, Refusal, Renewal, Writer},
    register::Client,
};

/// The pause of a task after an error, in addition to its rest.
const RECOVERY: Duration = Duration::from_millis(100);

/// Lets all tasks work until the parent leaves and the tasks have released their locks.
pub(super) async fn hold(
    parent: &Parent,
    job: &Job,
    locker: &Locker,
    history: &Writer,
) -> Result<()> {
    let locks = Locks::of(&job.workload, locker)?;
    let leases = (locker.descriptor().min_ttl, locker.capabilities().extend);
    let mut tasks = JoinSet::new();
    let mut pulse = JoinSet::new();
    pulse.spawn(pulse::beat(history.clone()));
    for number in 0..job.workload.tasks {
        let seeds = seeds(job.seed, job.process, number);
        let task = Task {
            planner: Planner::new(locks.clone(), &job.workload, leases, seeds),
            next: Op { process: job.process, number: u64::from(number) + 1 },
            step: u64::from(job.workload.tasks),
            parent: parent.clone(),
            locker: locker.clone(),
            history: history.clone(),
            register: Client::connect(job.register).await?,
            ear: job.workload.ear,
        };
        tasks.spawn(task.run());
    }
    // The first task that can't continue ends all tasks.
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Error::of("a task panicked", error))??;
    }
    Ok(())
}

struct Task {
    planner: Planner,
    /// With the same seed, the same claims get the same numbers.
    next: Op,
    step: u64,
    parent: Parent,
    locker: Locker,
    history: Writer,
    register: Client,
    ear: Ear,
}

impl Task {
    async fn run(mut self) -> Result<()> {
        while !self.parent.has_left() {
            let plan = self.planner.next();
            let op = self.next;
            self.next.number += self.step;
            let mut rest = plan.rest;
            match self.ask(op, &plan).await? {
                Ok(guard) => {
                    let Self { parent, history, register, ear, .. } = &mut self;
                    let signal = Signal::new(guard.lost(), *ear);
                    Hold::new(op, &plan, (guard, signal), parent, history, register).work().await?;
                }
                Err(Refusal::Failed(_) | Refusal::Unknown(_)) => rest += RECOVERY,
                Err(Refusal::Busy | Refusal::Cancelled | Refusal::TimedOut) => {}
            }
            tokio::select! {
                () = self.parent.leaves() => {}
                () = sleep(rest) => {}
            }
        }
        Ok(())
    }

    async fn ask(&self, op: Op, plan: &Plan) -> Result<Result<LockGuard, Refusal>> {
        let Plan { lock, mode, ttl, renewal, patience, max_hold, .. } = plan.clone();
        let handle = Handle::new(&self.locker, &lock, mode, options(op, plan)).map_err(unusable)?;
        self.history.write(Event::Asks { op, lock, mode, ttl, renewal, patience, max_hold });
        let asking = handle.ask(patience);
        // In each case this drops the request before the next record.
        let answer = tokio::select! {
            biased;
            () = self.parent.leaves() => None,
            () = dropped_after(patience) => None,
            answer = asking => Some(answer),
        };
        let (why, end) = match answer {
            Some(Ok(Some(guard))) => return Ok(Ok(guard)),
            Some(Ok(None)) if patience == Patience::No => (Refusal::Busy, Ok(())),
            Some(Ok(None)) => (Refusal::TimedOut, Ok(())),
            Some(Err(error)) => (refusal(&error), broken(&error)),
            None => (Refusal::Cancelled, Ok(())),
        };
        self.history.write(Event::Refused { op, why: why.clone() });
        end.map(|()| Err(why))
    }
}

async fn dropped_after(patience: Patience) {
    match patience {
        Patience::UntilDropped(after) => sleep(after).await,
        Patience::For(_) | Patience::No | Patience::Unbounded => pending().await,
    }
}

fn options(op: Op, plan: &Plan) -> LockOptions {
    let mut options = LockOptions::new().with_ttl(plan.ttl).with_label(op.to_string());
    if let Some(max_hold) = plan.max_hold {
        options = options.with_max_hold(max_hold);
    }
    if let Some(op_timeout) = plan.op_timeout {
        options = options.with_op_timeout(op_timeout);
    }
    options.with_renewal(match plan.renewal {
        Renewal::Auto => lockkit::Renewal::Auto,
        Renewal::Manual => lockkit::Renewal::Manual,
    })
}

fn refusal(error: &lockkit::Error) -> Refusal {
    match error.kind() {
        _ if error.is_outcome_unknown() => Refusal::Unknown(error.to_string()),
        ErrorKind::Timeout => Refusal::TimedOut,
        _ => Refusal::Failed(error.to_string()),
    }
}

fn unusable(error: lockkit::Error) -> Error {
    Error::of("could not create a lock of the plan", error)
}
