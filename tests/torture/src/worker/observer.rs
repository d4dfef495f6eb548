//! A process that only looks at locks.

use std::time::Duration;

use lockkit::{Locker, spi};
use tokio::time::sleep;

use super::{broken, handle::inspect, locks::Locks, parent::Parent, plan::seeds};
use crate::{
    child::Job,
    clock,
    error::Result,
    history::{Event, Holder, Lock, Mode, Writer},
};

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// The pause after an error.
const RECOVERY: Duration = Duration::from_millis(200);

/// Looks at the locks in turn until the parent leaves.
pub(super) async fn observe(
    parent: &Parent,
    job: &Job,
    locker: &Locker,
    history: &Writer,
) -> Result<()> {
    let locks = Locks::of(&job.workload, locker)?;
    let mut rng = seeds(job.seed, job.process, 0);
    let looking = async {
        loop {
            let rest = look(locker, locks.choose(&mut rng), history).await?;
            sleep(rest).await;
        }
    };
    tokio::select! {
        () = parent.leaves() => Ok(()),
        ended = looking => ended,
    }
}

/// Looks once, and returns the time of the next look.
async fn look(locker: &Locker, lock: &Lock, history: &Writer) -> Result<Duration> {
    let at = clock::now();
    let seen = match inspect(locker, lock).await {
        Ok(seen) => seen,
        Err(error) => return broken(&error).map(|()| RECOVERY),
    };
    let answered = clock::now();
    let holders = seen.holders.iter().map(holder).collect();
    history
        .write_at(at, Event::Seen { lock: lock.clone(), answered, holders, waiters: seen.waiters });
    Ok(BETWEEN_LOOKS)
}

fn holder(seen: &spi::Holder) -> Holder {
    Holder {
        op: seen.label.as_deref().and_then(|label| label.parse().ok()),
        token: seen.token.map(u64::from),
        mode: match seen.mode {
            spi::Mode::Permits { count, .. } => Mode::Permits(count.get()),
            spi::Mode::Shared => Mode::Shared,
            _ => Mode::Exclusive,
        },
    }
}
