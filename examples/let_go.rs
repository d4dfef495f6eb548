//! A long job lets go of its lock when a deploy asks for it. Then the deploy gets the lock, and the
//! job continues after it.
//!
//! `cargo run --example let_go` runs on the embedded memory store, or on the store of its argument,
//! a URL.

use std::{env, pin::pin, time::Duration};

use lockkit::{Grants, LockGuard, LockOptions, Mutex, Result};
use tokio::time::sleep;

const STEP: Duration = Duration::from_millis(50);

/// Works until another process needs the lock. A step is always finished, and then the lock is
/// released. Returns the number of steps.
async fn work_until_asked(guard: LockGuard) -> Result<u32> {
    let mut steps = 0;
    let reason = loop {
        // `select!` drops only a reference to the step, so the step can continue after a request.
        let mut step = pin!(sleep(STEP));
        tokio::select! {
            // The background task looks for requests once a second, only while this waits.
            reason = guard.release_requested() => {
                guard.run(step).await?; // ends early if the lock is lost
                steps += 1;
                break reason?;
            }
            () = &mut step => steps += 1,
        }
    };
    println!("job: {steps} steps are done, and the lock is released, because {reason}");
    guard.release().await?;
    Ok(steps)
}

/// The job releases the lock when it is asked, waits for its next turn, and does the rest.
async fn job(mutex: Mutex, guard: LockGuard) -> Result<u32> {
    let mut steps = work_until_asked(guard).await?;
    let guard = mutex.lock().await?;
    println!("job: it has the lock again, with the token {}", guard.fencing_token());
    while steps < 30 {
        sleep(STEP).await;
        steps += 1;
    }
    guard.release().await?;
    Ok(steps)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    let ttl = Duration::from_secs(3).max(locker.descriptor().min_ttl);
    let locker = locker.with_defaults(LockOptions::new().with_ttl(ttl))?;
    let mutex = locker.mutex("example/let-go")?;
    let guard = mutex.lock().await?;
    let first = guard.fencing_token();
    let job = tokio::spawn(job(mutex.clone(), guard));

    // A deploy in another process does this. `lockkit unlock` does it for an operator.
    let grants = Grants::UpTo(first); // later holders are not asked
    let request = locker.request_release(mutex.name(), grants, "a deploy begins").await?;
    let guard = mutex.lock().await?; // the job may take its time, or ignore the request
    request.withdraw().await?;
    println!("deploy: it has the lock, with the token {}", guard.fencing_token());
    assert!(guard.fencing_token() > first);
    guard.release().await?;

    let steps = job.await.expect("the job does not panic")?;
    println!("job: all {steps} steps are done");
    locker.shutdown().await
}
