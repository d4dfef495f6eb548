//! Models the death of a process. A runtime of its own ends with all its tasks and connections, and
//! its locks are never given back.

use std::thread;

use lockkit_core::{
    LockOptions, OwnerId,
    spi::{Attempt, Mode, Wait},
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
};

use crate::env::Env;

/// Runs `life` on a runtime that dies with it. Nothing that it leaves can reach the store any more.
pub(crate) async fn doomed<T: Send + 'static>(
    life: impl FnOnce(&Runtime) -> T + Send + 'static,
) -> T {
    let (will, death) = oneshot::channel();
    thread::spawn(move || {
        let process = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let left = life(&process);
        drop(process);
        drop(will.send(left));
    });
    death.await.expect("it lived until its end")
}

/// Leaves a grant in the store whose owner is dead.
pub(crate) async fn dead_grant(env: &Env, name: &'static str, options: LockOptions, mode: Mode) {
    let env = env.clone();
    doomed(move |process| {
        process.block_on(async {
            let backend = env.backend().await;
            let mut claim = env.claim_of(&*backend, name, &options, OwnerId::random(), mode);
            let answer = claim.attempt(Wait::No).await.unwrap();
            assert!(matches!(answer, Attempt::Granted(_)), "{answer:?} of a free lock");
        });
    })
    .await;
}
