//! Finds leftovers in the store after all processes have ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use lockkit::{
    Locker,
    spi::{Descriptor, Inspection},
};
use tokio::time::{Instant, sleep};

use super::{Arena, FAREWELL, Round, longest_ttl};
use crate::{
    clock,
    error::{Error, Result},
    history::{DIRECTOR, Event, Holder, Lock, Mode, Record, Writer, read},
    nemesis::Notes,
    worker::inspect,
};

const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

impl Arena {
    /// Waits until all leases have ended, and then records the leftovers.
    pub(super) async fn look_for_leaks(
        &self,
        round: &Round,
        locker: &Locker,
        descriptor: &Descriptor,
    ) -> Result<()> {
        let notes = Notes::new(Writer::create(&round.folder.join("leaks.jsonl"), DIRECTOR)?);
        let hot = hot_locks(&read(&round.folder)?);
        let end = Instant::now()
            + longest_ttl(&round.workload, descriptor) * 2
            + descriptor.takeover_delay
            + round.slack;
        for lock in hot {
            loop {
                let at = clock::now();
                let seen = look(locker, &lock).await?;
                let is_empty = seen.holders.is_empty() && seen.waiters.unwrap_or(0) == 0;
                if is_empty || Instant::now() > end {
                    let holders = seen.holders.iter().map(holder).collect();
                    let answered = clock::now();
                    notes.writer.write_at(
                        at,
                        Event::Seen { lock, answered, holders, waiters: seen.waiters },
                    );
                    break;
                }
                sleep(BETWEEN_LOOKS).await;
            }
        }
        if descriptor.capabilities.names {
            for name in
                self.lasting(end, async || names(locker, &round.workload.prefix).await).await?
            {
                notes.leaks(format!("{name} is still in use"));
            }
        }
        let left = async || {
            self.hands.work("could not list the leftovers in the store", |site| site.leaks()).await
        };
        for what in self.lasting(end, left).await? {
            notes.leaks(what);
        }
        Ok(())
    }

    /// Looks repeatedly, and returns the leftovers at the end of that time.
    async fn lasting(
        &self,
        end: Instant,
        look: impl AsyncFn() -> Result<Vec<String>>,
    ) -> Result<Vec<String>> {
        loop {
            let left = look().await?;
            if left.is_empty() || Instant::now() > end {
                return Ok(left);
            }
            sleep(BETWEEN_LOOKS).await;
        }
    }
}

/// The locks that more than one process has asked for.
fn hot_locks(records: &[Record]) -> BTreeSet<Lock> {
    let mut first = BTreeMap::new();
    let mut hot = BTreeSet::new();
    for record in records {
        if let Event::Asks { op, lock, .. } = &record.event
            && *first.entry(lock).or_insert(op.process) != op.process
        {
            hot.insert(lock.clone());
        }
    }
    hot
}

async fn look(locker: &Locker, lock: &Lock) -> Result<Inspection> {
    let seen = answered(async || inspect(locker, lock).await).await;
    seen.map_err(|error| Error::of("could not inspect a lock", error))
}

async fn names(locker: &Locker, prefix: &str) -> Result<Vec<String>> {
    let names = answered(async || locker.names(prefix).await).await;
    let names = names.map_err(|error| Error::of("could not list the names in use", error))?;
    Ok(names.into_iter().map(|name| name.to_string()).collect())
}

/// Retries for a while, because faults of the servers also break the director's own connection.
pub(super) async fn answered<T>(ask: impl AsyncFn() -> lockkit::Result<T>) -> lockkit::Result<T> {
    let end = Instant::now() + FAREWELL;
    loop {
        match ask().await {
            Err(error) if error.is_temporary() && Instant::now() < end => {
                sleep(BETWEEN_LOOKS).await
            }
            answer => return answer,
        }
    }
}

fn holder(holder: &lockkit::spi::Holder) -> Holder {
    let op = holder.label.as_ref().and_then(|label| label.parse().ok());
    let mode = match holder.mode {
        lockkit::spi::Mode::Shared => Mode::Shared,
        lockkit::spi::Mode::Permits { count, .. } => Mode::Permits(count.get()),
        _ => Mode::Exclusive,
    };
    Holder { op, token: holder.token.map(lockkit::FencingToken::get), mode }
}
