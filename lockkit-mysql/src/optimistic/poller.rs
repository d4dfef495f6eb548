//! Asks the server on behalf of all who wait for one lock in this process.

use std::{sync::Arc, time::Duration};

use lockkit_core::{ErrorKind, LockName, Result, spi::Mode};
use tokio::{runtime::Handle, time};

use super::{
    holders::WANTED,
    record::{Form, Look},
    store::Store,
};
use crate::error;

/// The pauses between two looks: short while the lock is on the move, longer while somebody keeps it.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);
/// A server in trouble is not asked more often than that.
const TROUBLED: Duration = Duration::from_millis(250);

/// Sees to it that somebody polls for those who wait for a lock: one task for each lock, for as long as somebody waits.
/// It reads, as a write takes the row from the one who wants to release it, and writes now and then only: that somebody
/// waits.
///
/// `left`: how long the lease of the present holder still lasts, if that is known.
pub(crate) fn poll(
    store: &Arc<Store>,
    name: &LockName,
    form: Form,
    left: Option<Duration>,
    op_timeout: Duration,
) {
    // Without a runtime nobody waits either.
    let Ok(runtime) = Handle::try_current() else { return };
    let Some(number) = store.waiters.attend(name, runtime.id()) else { return };
    let attendance = Attendance { store: Arc::clone(store), name: name.clone(), number };
    #[expect(
        clippy::disallowed_methods,
        reason = "one task for each lock that is waited for, whoever waits"
    )]
    runtime.spawn(attendance.work(form, left, op_timeout * 3 / 4));
}

/// The task's own presence: when it goes, also by a runtime that is shut down, the next waiter starts another.
struct Attendance {
    store: Arc<Store>,
    name: LockName,
    number: u64,
}

impl Drop for Attendance {
    fn drop(&mut self) {
        self.store.waiters.abandon(&self.name, self.number);
    }
}

impl Attendance {
    async fn work(self, form: Form, mut left: Option<Duration>, patience: Duration) {
        let Self { store, name, number } = &self;
        let (mut pause, mut version) = (SHORTEST, 0);
        while let Some(before) = store.waiters.look(name, *number) {
            let wait = pause.mul_f64(0.75 + 0.5 * rand::random::<f64>()).min(left.unwrap_or(Duration::MAX));
            time::sleep(wait.max(SHORTEST)).await;
            pause = (pause * 2).min(LONGEST);
            let Some(line) = store.waiters.look(name, *number) else { return };
            // Somebody here was called meanwhile, and finds out by himself.
            if line.calls != before.calls {
                pause = SHORTEST;
                left = None;
                continue;
            }
            match look(store, name, form, patience).await {
                Ok(mut look) => {
                    store.waiters.report(name, None);
                    if look.version != version {
                        (version, pause) = (look.version, SHORTEST);
                    }
                    if line.modes.first() == Some(&Mode::Exclusive)
                        && look.is_read()
                        && look.wanted < WANTED / 2
                    {
                        // To say that it still waits. New readers would come in, one after the other.
                        store.waiters.call_next(name);
                    }
                    if line.modes.first() == Some(&Mode::Shared) && look.is_kept_for_a_writer() {
                        // It may be one of this very line, behind the reader whom it keeps away.
                        store.waiters.call_next_in(name, Mode::Exclusive);
                    }
                    if form == Form::Row && !look.holders.is_empty() && look.wanted < WANTED / 2 {
                        want(store, name, patience).await;
                    }
                    for mode in line.modes {
                        // One who was called and does not ask must not hold up the rest: the next one is called, too.
                        if !look.fits(mode) || !store.waiters.call_next(name) {
                            break;
                        }
                        look.add(mode);
                    }
                    left = look.next_end();
                }
                Err(error) => {
                    store.waiters.report(name, Some(error.context().to_owned()));
                    (pause, left) = (TROUBLED, None);
                }
            }
        }
    }
}

/// One who can't say that it waits, waits nevertheless: the next look finds out what is wrong.
async fn want(store: &Store, name: &LockName, patience: Duration) {
    let said = time::timeout(patience, store.want(name, patience)).await;
    if let Ok(Err(error)) = said {
        tracing::debug!(%name, "others are not told that this process waits: {error}");
    }
}

/// A server that has fallen silent is one in trouble: those who wait shall hear of it.
async fn look(store: &Store, name: &LockName, form: Form, patience: Duration) -> Result<Look> {
    time::timeout(patience, store.look(name, form, patience)).await.unwrap_or_else(|_| {
        Err(error::ours(ErrorKind::Unavailable, format!("the server did not answer within {patience:?}")))
    })
}
