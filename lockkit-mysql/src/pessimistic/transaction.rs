//! Runs the user's own statements in the transaction that holds the lock.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use lockkit_core::{Clock, Error, ErrorKind, LockGuard, Result, spi::Attachment};
use mysql_async::Conn;
use tokio::sync::{Mutex, MutexGuard, Notify};

use super::row_lock::RowLock;
use crate::error;

/// The transaction that holds a lock of the pessimistic strategy, for statements of your own.
///
/// The release of the lock commits their changes, in one step. If the lock was lost, none of the
/// changes is committed. For data in the same database, that is a stronger fence than any token.
///
/// * [`LockGuard::release`] commits. `Freed` says that the changes were committed, `NotHeld` that
///   they were not.
/// * The transaction ends with its owner. When the lock is transferred to another owner of the
///   process, this handle can do nothing any more.
/// * If the guard is dropped, or the lock is lost, the transaction is rolled back.
/// * One [`run`](Self::run) must be shorter than the lock's ttl. While it is at work, no other
///   request can use this connection, and so the lease is not renewed. The server can't notice that
///   a holder is gone until the holder's statement ends. So a long statement keeps the row for as
///   long as it runs.
/// * A statement that ends the transaction loses the lock. Such statements are `COMMIT`,
///   `ROLLBACK`, `START TRANSACTION`, and all that change a table's form. A deadlock also loses the
///   lock, because the server resolves it by a rollback.
/// * The transaction is `READ COMMITTED`. A savepoint lasts until the end of its run, and so do
///   another current database and a `sql_select_limit`. A statement waits for a row for as long as
///   the ttl.
///
/// ```no_run
/// # async fn example(locker: &lockkit_core::Locker) -> Result<(), Box<dyn std::error::Error>> {
/// use lockkit_mysql::{LockTransaction, mysql_async::prelude::Queryable as _};
///
/// let guard = locker.mutex("stock/4711")?.lock().await?;
/// let transaction = LockTransaction::of(&guard).ok_or("not the pessimistic strategy")?;
/// transaction
///     .run(async |conn| conn.query_drop("UPDATE stock SET pieces = pieces - 1 WHERE item = 4711").await)
///     .await??;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LockTransaction {
    /// The claim has the hold. A handle that outlives the claim must not keep the lock.
    hold: Weak<Mutex<RowLock>>,
    /// The holder has released the lock.
    is_wanted: AtomicBool,
    /// The holder has dropped its guard, or is gone.
    is_dropped: AtomicBool,
    interrupt: Notify,
}

impl LockTransaction {
    pub(super) fn new(hold: &Arc<Mutex<RowLock>>) -> Self {
        let is_wanted = AtomicBool::new(false);
        let is_dropped = AtomicBool::new(false);
        Self { hold: Arc::downgrade(hold), is_wanted, is_dropped, interrupt: Notify::new() }
    }

    /// The transaction of a lock that is held; `None` if the lock is of another strategy or store.
    #[must_use]
    pub fn of(guard: &LockGuard) -> Option<Arc<Self>> {
        guard.attachment()
    }

    /// Runs statements in the transaction, one `run` at a time, and returns what `work` returned.
    /// An error of a statement undoes only that statement, and `work` handles the error itself.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the lock is lost, also because of what `work` did. Then nothing is
    /// committed, except what a statement of `work` has committed itself.
    ///
    /// # Cancel safety
    /// Not cancel safe. If the call is dropped before it is done, the statement in flight is killed
    /// and the lock is lost. The same happens if `work` drops a statement midway, by a timeout of
    /// its own.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&mut Conn) -> T) -> Result<T> {
        let hold = self
            .hold
            .upgrade()
            .ok_or_else(|| lost("its guard was released, or the lock was lost before"))?;
        let mut hold = hold.lock().await;
        let broken = |_| lost("its connection broke");
        // If the checkout is dropped with this future, or after an error, the connection is closed
        // and its running statement is killed.
        let mut checkout = hold.lend().await.ok_or_else(|| lost("its connection broke before"))?;
        if self.is_dropped.load(SeqCst) {
            return Err(lost("its guard was dropped"));
        }
        if !hold.is_used() {
            checkout.script(&hold.begin_use()).await.map_err(broken)?;
        }
        let conn = checkout.foreign().map_err(broken)?;
        let output = tokio::select! {
            biased;
            () = self.interrupt.notified() => return Err(lost("its guard was dropped while a \
                                                               statement ran")),
            output = work(&mut *conn) => output,
        };
        // This is the driver's own mark. The driver would take the answer that is still to come for
        // the answer to the next statement.
        if conn.is_disconnected() {
            return Err(lost(
                "the program dropped a statement in its transaction before the answer arrived",
            ));
        }
        checkout.settle_foreign();
        let asked = Clock::Boot.now();
        match checkout.script(&hold.check_use()).await {
            Ok(_) if checkout.in_transaction() => {
                hold.take_back(checkout, asked);
                Ok(output)
            }
            Err(error) if error::is_fatal(&error) => Err(broken(error)),
            Ok(_) | Err(_) => Err(lost(
                "a statement ended its transaction: COMMIT, ROLLBACK, a statement that alters a \
                 table, or a deadlock that the server resolved",
            )),
        }
    }

    /// Whether the changes in the transaction are to stay.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(SeqCst) && !self.is_dropped.load(SeqCst)
    }

    /// Whether the holder has decided what becomes of the changes.
    pub(super) fn is_settled(&self) -> bool {
        self.is_wanted.load(SeqCst) || self.is_dropped.load(SeqCst)
    }

    /// The hold, for its end. Waits for a `run` that is in order, and interrupts a `run` whose
    /// result is not wanted.
    pub(super) async fn seize<'a>(&self, hold: &'a Mutex<RowLock>) -> MutexGuard<'a, RowLock> {
        if !self.is_wanted() {
            self.guard_dropped();
        }
        hold.lock().await
    }
}

impl Attachment for LockTransaction {
    fn guard_dropped(&self) {
        self.is_dropped.store(true, SeqCst);
        self.interrupt.notify_one();
    }

    fn guard_released(&self) {
        self.is_wanted.store(true, SeqCst);
    }
}

fn lost(reason: &str) -> Error {
    let text = format!("the lock is lost, so a release will not commit its transaction: {reason}");
    error::ours(ErrorKind::Lost, text)
}
