//! The thread that runs the runtime of a locker, and the way to block on that runtime.

use std::{fmt, future::Future, io, process, sync::Arc, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::{
    driver::keeper::until_ended,
    error::{Error, ErrorKind, Result},
    locker::Locker,
};

/// A runtime on a thread of its own. The thread runs the keeper task, the connections and all
/// timers. The future of a call is polled on the calling thread.
pub(super) struct Background {
    runtime: Handle,
    /// The process that has the thread.
    process: u32,
    /// The thread ends after its drop, because then no handle and no guard is left.
    _last: oneshot::Sender<()>,
}

impl Background {
    /// Connects on a new runtime, and then starts the thread that runs it.
    ///
    /// # Errors
    /// [`ErrorKind::InsideRuntime`], [`ErrorKind::NoRuntime`], or the error of `connecting`.
    pub(super) fn start(
        thread: thread::Builder,
        connecting: impl Future<Output = Result<Locker>>,
    ) -> Result<(Locker, Self)> {
        check_outside()?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let locker = runtime.block_on(connecting)?;
        let agenda = Arc::clone(locker.keeper.agenda());
        let (last, dropped) = oneshot::channel();
        let handle = runtime.handle().clone();
        let background = Self { runtime: handle, process: process::id(), _last: last };
        let run = move || {
            runtime.block_on(async move {
                // Nothing is sent, so this is the drop of the sender.
                let _ = dropped.await;
                // The keeper task still releases what dropped guards left behind.
                until_ended(&agenda).await;
            });
        };
        thread.spawn(run).map_err(no_thread)?;
        Ok((locker, background))
    }

    /// Runs a call on this thread until it ends.
    ///
    /// # Errors
    /// As [`check`](Self::check), or the error of `call`.
    #[expect(clippy::disallowed_methods, reason = "the check refuses threads inside a runtime")]
    pub(super) fn block_on<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.check()?;
        self.runtime.block_on(call)
    }

    /// Checks that a call may block here.
    ///
    /// # Errors
    /// [`ErrorKind::NoRuntime`] in a fork, [`ErrorKind::InsideRuntime`] inside a runtime.
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_here() {
            return Err(Error::new(
                ErrorKind::NoRuntime,
                "this process is a fork, and the locker's thread stayed in the parent process; \
                 make a new locker here",
            ));
        }
        check_outside()
    }

    /// False in a fork of the process, which has no copy of the thread.
    pub(super) fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// The background as a fork of this process has it.
    #[cfg(test)]
    pub(super) fn forked(&self) -> Arc<Self> {
        let (last, _) = oneshot::channel();
        let process = self.process.wrapping_add(1);
        Arc::new(Self { runtime: self.runtime.clone(), process, _last: last })
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("process", &self.process).finish_non_exhaustive()
    }
}

/// A thread of `spawn_blocking` might block, but tokio does not distinguish it from a worker.
fn check_outside() -> Result<()> {
    if Handle::try_current().is_err() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InsideRuntime,
        "a blocking call would stop the tasks of the tokio runtime here; use lockkit's async \
         interface inside a runtime",
    ))
}

fn no_thread(error: io::Error) -> Error {
    let text = format!("could not start the background thread of the locker: {error}");
    Error::new(ErrorKind::NoRuntime, text).with_source(error)
}
