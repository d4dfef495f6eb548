//! Offers work that is done once for each slot: a mutex, and a note beside it that says which slots
//! are finished.

mod outcome;
mod record;
#[cfg(test)]
mod tests;
mod turn;

use std::future::Future;

pub use self::outcome::{OnceOutcome, OnceRun};
use self::turn::{Turn, look};
use crate::{
    error::Result,
    handle::Handle,
    hold::Hold,
    locker::Locker,
    name::{Kind, LockName},
    options::LockOptions,
    spi::Mode,
};

/// Work that runs at most once per success for each slot, on whichever host comes first.
///
/// **A slot** is a number that only rises, such as the second of a tick of a schedule. Hosts whose
/// clocks differ give one tick the same number. A host whose clock is ahead runs the slot early,
/// and later hosts find it [done](OnceOutcome::Done). Slots go forward only: once a slot has begun,
/// no caller runs an older one. So a host that is ahead by more than a period may pass slots that
/// never ran. [`Locker::time`] is one clock for all hosts. A text is a name:
/// `locker.once("deploy/v1.7")?.run(0, …)`.
///
/// **The record** is the [note](Locker::note) beside the mutex with this name. It has the last
/// finished run, and a later one that has begun. The store writes it only for the present holder. A
/// slot is finished when its record is written, and not before. If a runner dies, fails, or loses
/// its lock, the next caller runs the slot again, and [hears](OnceOutcome::Ran) of the earlier run.
/// So the work should be safe to repeat, or write to a resource that compares
/// [tokens](Hold::fencing_token).
///
/// The record is as durable as the store. A failover to a replica that lags behind may lose it.
/// Then the slot is open again, and no outcome says so. There is one record for each name, and it
/// stays for good. If a slot was too large by mistake, lock the mutex and
/// [write](Hold::write_note) an empty note: all slots are open again. The command line's
/// `lockkit run` and `lockkit once` write other notes, so use different names.
///
/// ```
/// use lockkit_core::{Locker, OnceOutcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let once = locker.once("report")?;
/// let tick = 1_795_316_400; // 03:00, on every host
/// let first = once.run(tick, async |_, _| Ok::<_, std::io::Error>("the report")).await?;
/// assert!(matches!(first, OnceOutcome::Ran { output: "the report", earlier: None }));
/// let second = once.run(tick, async |_, _| Ok::<_, std::io::Error>("not again")).await?;
/// assert!(matches!(second, OnceOutcome::Done(run) if run.slot == tick));
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Once {
    handle: Handle,
}

impl Locker {
    /// Returns the work with this name, which is also the name of a mutex. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), or
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the backend has no exclusive
    /// locks, no notes, or no clock that it can report.
    pub fn once(&self, name: &str) -> Result<Once> {
        self.require(self.capabilities().exclusive, "exclusive locks")?;
        self.require(self.capabilities().notes, "notes, which record the finished slots")?;
        self.require(self.capabilities().time, "requests for the server's time")?;
        Ok(Once { handle: Handle::new(self, Kind::Mutex, name)? })
    }
}

impl Once {
    /// Sets options of the mutex. An option that is not set keeps its value, which is at first the
    /// locker's default. Other callers see the label in the record.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) if the options contradict each
    /// other.
    pub fn with_options(self, options: LockOptions) -> Result<Self> {
        Ok(Self { handle: self.handle.with_options(options)? })
    }

    /// The checked name of the mutex.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// Runs `work` under the lock, unless the slot needs no run.
    ///
    /// A slot that is done or passed is answered without the lock. Otherwise the call waits while
    /// another caller runs a slot, and takes over if that runner dies. After
    /// [`LockOptions::wait`] it gives up, and takes over no more: [`OnceOutcome::Busy`]. A wait of
    /// zero asks once.
    ///
    /// `work` gets a view of the lock, and the run that began before and that no record shows as
    /// finished. If that run has the same slot, its work may have been done in part or completely.
    /// If it has an older slot, no caller runs that slot any more. If the lock is lost, `work` is
    /// dropped at once. Work that never ends keeps its slot, unless
    /// [`LockOptions::with_max_hold`] ends it. `work` must neither write the note nor lock the same
    /// name. The future is `Send` if `work`, its future and its output are.
    ///
    /// ```
    /// # async fn spawned(once: lockkit_core::Once) -> lockkit_core::Result<()> {
    /// use lockkit_core::OnceOutcome;
    ///
    /// match once.run(42, |hold, earlier| async move { pay(hold.fencing_token(), earlier) }).await? {
    ///     OnceOutcome::Ran { earlier: None, .. } => println!("paid"),
    ///     OnceOutcome::Ran { earlier: Some(run), .. } => println!("paid, and perhaps by {run:?} too"),
    ///     OnceOutcome::Failed { error, .. } => println!("not paid, the next caller tries: {error}"),
    ///     OnceOutcome::Unrecorded { error, .. } => println!("paid, and perhaps once more: {error}"),
    ///     OnceOutcome::Done(run) => println!("{:?} paid before", run.label),
    ///     OnceOutcome::Passed(run) => println!("too late: slot {} has begun", run.slot),
    ///     OnceOutcome::Busy(_) => println!("another host pays now"),
    /// }
    /// # Ok(())
    /// # }
    /// # fn pay(_: lockkit_core::FencingToken, _: Option<lockkit_core::OnceRun>) -> std::io::Result<()> { Ok(()) }
    /// ```
    ///
    /// # Errors
    /// * [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lock was lost before `work` was done.
    ///   This run did not finish the slot.
    /// * [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) or
    ///   [`ErrorKind::NewerFormat`](crate::ErrorKind::NewerFormat) if the note is no record of
    ///   slots that this version knows. It stays as it is.
    /// * As [`Mutex::lock`](crate::Mutex::lock), except that a bound on waiting that has passed is
    ///   no error.
    ///
    /// After any error but `Lost`, `work` did not run. The next run may hear of it all the same.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the background task releases the lock. The slot stays open, unless
    /// the record of its end was sent already.
    pub async fn run<T, E, F: Future<Output = Result<T, E>>>(
        &self,
        slot: u64,
        work: impl FnOnce(Hold, Option<OnceRun>) -> F,
    ) -> Result<OnceOutcome<T, E>> {
        match look(&self.handle).await {
            Ok((_, record)) => {
                if let Some(settled) = record.settled(slot) {
                    return Ok(settled);
                }
            }
            // The wait for the lock also waits for the store.
            Err(error) if error.is_temporary() => {}
            Err(error) => return Err(error),
        }
        let bound = self.handle.bound();
        let Some(guard) = self.handle.acquire(Mode::Exclusive, bound).await? else {
            let (_, record) = look(&self.handle).await?;
            return Ok(record.settled(slot).unwrap_or(OnceOutcome::Busy(record.begun)));
        };
        let mut turn = Turn::new(&self.handle, guard).await?;
        if let Some(settled) = turn.record.settled(slot) {
            turn.end().await;
            return Ok(settled);
        }
        let earlier = turn.begin(slot).await?;
        let working = work(turn.guard.hold(), earlier.clone());
        let worked = turn.guard.run(working).await?;
        let outcome = match worked {
            Err(error) => OnceOutcome::Failed { error, earlier },
            Ok(output) => match turn.finish().await {
                Ok(()) => OnceOutcome::Ran { output, earlier },
                Err(error) => OnceOutcome::Unrecorded { output, earlier, error },
            },
        };
        turn.end().await;
        Ok(outcome)
    }

    /// The run of the latest slot that has begun, whether it is finished or not. `None` before the
    /// first run.
    ///
    /// # Errors
    /// As [`Locker::note`]; [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) or
    /// [`ErrorKind::NewerFormat`](crate::ErrorKind::NewerFormat) if the note is no record of slots
    /// that this version knows.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn last(&self) -> Result<Option<OnceRun>> {
        let (_, record) = look(&self.handle).await?;
        Ok(record.latest().cloned())
    }
}
