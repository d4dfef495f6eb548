//! Records one run under its lock: first that it has begun, and later that it is finished.

use std::time::Duration;

use super::{outcome::OnceRun, record::Record};
use crate::{
    clock::Tick,
    error::{Error, ErrorKind, Result},
    guard::LockGuard,
    handle::Handle,
    spi::{Note, Noted},
};

/// The operation in errors.
const OPERATION: &str = "run once";

/// Reads the note and its record.
///
/// # Errors
/// The store can't be read, or another program or a newer lockkit wrote the note.
pub(super) async fn look(handle: &Handle) -> Result<(Note, Record)> {
    let note = handle.locker().note(handle.name()).await?;
    let record = Record::parse(&note.text).map_err(|error| handle.explain(error, OPERATION))?;
    Ok((note, record))
}

/// A caller that holds the lock, and the record as it was last read or written.
pub(super) struct Turn<'a> {
    handle: &'a Handle,
    pub(super) guard: LockGuard,
    note: Note,
    pub(super) record: Record,
    /// When the store's time of the beginning was known.
    begun: Tick,
}

impl<'a> Turn<'a> {
    /// Reads the record under the lock, because another run may have ended just before.
    pub(super) async fn new(handle: &'a Handle, guard: LockGuard) -> Result<Self> {
        let (note, record) = look(handle).await?;
        Ok(Self { handle, guard, note, record, begun: Tick::NEVER })
    }

    /// Records that a run of this slot has begun. Returns a run that began before and that no
    /// record shows as finished.
    pub(super) async fn begin(&mut self, slot: u64) -> Result<Option<OnceRun>> {
        let begun = self.handle.locker().time().await?;
        self.begun = self.handle.clock().now();
        let label = self.handle.label().map(str::to_owned);
        let token = self.guard.fencing_token();
        let earlier = self.record.begin(OnceRun { slot, token, label, begun, finished: None });
        self.write(self.handle.op_timeout() * 2).await?;
        Ok(earlier)
    }

    /// Records that the run is finished. Without this record the work runs again, so this asks
    /// until the lease ends, and where there is no lease, for one ttl.
    pub(super) async fn finish(&mut self) -> Result<()> {
        self.record.finish(self.begun.until(self.handle.clock().now()));
        self.write(self.handle.limits().ttl).await
    }

    /// Gives the lock back. The record already says what was done under it, so the result of the
    /// release does not matter.
    pub(super) async fn end(self) {
        let _ = self.guard.release().await;
    }

    /// Writes the record, if the lock is still held.
    async fn write(&mut self, bound: Duration) -> Result<()> {
        let next = self.note.next(self.record.to_string());
        match self.guard.write_note_within(&next, bound).await? {
            Noted::Written => {
                self.note = next;
                Ok(())
            }
            Noted::NotHeld | Noted::Outdated => {
                let error = Error::new(
                    ErrorKind::WrongType,
                    "another client wrote the note beside the lock during the run; write no note \
                     of your own under this name",
                );
                Err(self.handle.explain(error, OPERATION))
            }
        }
    }
}
