//! Runs one case on one store: its own runtime, a hard time limit, and the leak oracle at the end.

use std::{
    any::Any,
    panic::AssertUnwindSafe,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::runtime::{Builder, Runtime};

use crate::{
    case::Case,
    env::Env,
    harness::{BoxError, Store},
    lock::Flavor,
    oracle::{Baseline, store_is_clean},
};

/// The time after which a case counts as hanging.
const LIMIT: Duration = Duration::from_secs(300);

/// Why a case failed.
pub(crate) type Failure = String;

/// When the run counts the open files of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// At the end of each case, which runs alone.
    OfTheCase,
    /// Not per case, because other cases run beside this one.
    OfTheRun,
}

/// Runs a case on a thread of its own, so that the run can also give up a case that blocks.
pub(crate) fn execute(
    case: Case,
    store: &Arc<dyn Store>,
    flavor: Flavor,
    files: Files,
) -> Result<(), Failure> {
    execute_within(LIMIT, case, store, flavor, files)
}

fn execute_within(
    limit: Duration,
    case: Case,
    store: &Arc<dyn Store>,
    flavor: Flavor,
    files: Files,
) -> Result<(), Failure> {
    let (done, end) = mpsc::channel();
    let store = Arc::clone(store);
    let thread = thread::Builder::new().name(case.name.to_owned()).spawn(move || {
        let outcome =
            std::panic::catch_unwind(AssertUnwindSafe(|| run(case, &*store, flavor, files)));
        let outcome = outcome.unwrap_or_else(|panic| Err(text_of(&*panic)));
        // After the limit, the receiver is dropped, so the send may fail.
        let _ = done.send(outcome);
    });
    let thread = thread.map_err(|error| format!("no thread for the case: {error}"))?;
    match end.recv_timeout(limit) {
        Ok(outcome) => {
            thread.join().map_err(|panic| text_of(&*panic))?;
            outcome.map_err(|failure| format!("{failure}\ncatches: {}", case.catches))
        }
        Err(_) => Err(format!("it hangs: no end within {limit:?}\ncatches: {}", case.catches)),
    }
}

fn run(case: Case, store: &dyn Store, flavor: Flavor, files: Files) -> Result<(), Failure> {
    let baseline = (files == Files::OfTheCase).then(Baseline::of_the_process);
    let runtime = runtime().map_err(|error| format!("no runtime: {error}"))?;
    let outcome = runtime.block_on(inside(case, store, flavor));
    drop(runtime);
    outcome?;
    baseline.map_or(Ok(()), |baseline| baseline.check())
}

/// Two workers, so that a case's task and lockkit's background task really run side by side.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

async fn inside(case: Case, store: &dyn Store, flavor: Flavor) -> Result<(), Failure> {
    let failed = |what: &str, error: BoxError| format!("{what}: {error}");
    let harness = store.open().await.map_err(|e| failed("the store can't be opened", e))?;
    let env = Env::new(harness, store, flavor).await;
    let env = env.map_err(|e| failed("the store can't be asked", e))?;
    let outcome = AssertUnwindSafe((case.run)(env.clone())).catch_unwind().await;
    let mut outcome = outcome.map_err(|panic| text_of(&*panic));
    let shutdown = env.shut_faulty_lockers_down().await;
    if outcome.is_ok() {
        outcome = shutdown.and(store_is_clean(&env).await);
    }
    env.harness().close().await;
    drop(env);
    outcome?;
    crate::oracle::no_task_is_left().await
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a text")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{case::Needs, stores::MemoryStore};

    fn outcome(
        limit_ms: u64,
        run: fn(Env) -> std::pin::Pin<Box<dyn Future<Output = ()>>>,
    ) -> Failure {
        let case = Case { name: "c0_test", catches: "nothing", needs: Needs::MUTEX, run };
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        execute_within(
            Duration::from_millis(limit_ms),
            case,
            &store,
            Flavor::Mutex,
            Files::OfTheRun,
        )
        .unwrap_err()
    }

    #[test]
    fn a_hang_is_a_failure() {
        assert!(outcome(200, |_| Box::pin(std::future::pending())).starts_with("it hangs"));
        assert!(
            outcome(200, |_| Box::pin(async { thread::sleep(Duration::from_secs(60)) }))
                .starts_with("it hangs")
        );
    }

    #[test]
    fn a_panic_is_a_failure_with_its_text_and_what_it_catches() {
        // A panic with a backtrace can take a while to print.
        let outcome = outcome(60_000, |_| Box::pin(async { panic!("so it is {}", 1) }));
        assert_eq!(outcome, "so it is 1\ncatches: nothing");
    }
}
