//! The length of a hold: a limit, a warning before its end, and a longer lease for one step. The
//! last part keeps a lock taken for a while after the work.
//!
//! `cargo run --example hold_limits` runs on the embedded memory store, or on the store of its
//! argument, a URL. On ZooKeeper the lease is the session, so the example takes half a minute.

use std::{
    env,
    time::{Duration, Instant},
};

use lockkit::{
    ErrorKind, LockGuard, LockOptions, Locker, LossReason, Renewal, Result, spi::LeaseScope,
};

/// Works in steps until the hold is about to end, and then releases the lock.
async fn work_in_steps(guard: LockGuard) -> Result<()> {
    let mut steps = 0;
    let warning = guard.expiring(guard.remaining() / 4);
    let left = loop {
        tokio::select! {
            left = warning.wait() => break left,
            () = tokio::time::sleep(Duration::from_millis(50)) => steps += 1, // a step of the work
        }
    };
    println!("{steps} steps are done, and {left:?} are left to clean up");
    assert!(steps > 0 && (guard.is_held() || left.is_zero())); // a pause delays the warning
    println!("the result of the release: {:?}", guard.release().await?);
    Ok(())
}

/// Runs work that never ends by itself.
async fn runs_away(guard: LockGuard) {
    let started = Instant::now();
    let error = guard.run(std::future::pending::<()>()).await.unwrap_err();
    println!("lockkit stopped the endless work after {:?}: {error}", started.elapsed());
    assert_eq!(error.kind(), ErrorKind::Lost);
}

/// Runs one step that takes longer than the lease, and cannot renew it.
async fn one_long_step(guard: LockGuard) -> Result<()> {
    match guard.extend(guard.remaining() * 3).await {
        Ok(left) => println!("the long step has {left:?}"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            println!("{error}");
        }
    }
    guard.release().await?;
    Ok(())
}

/// The job must not run again for a while, on any machine, so this never releases its lock.
async fn once_in_a_while(locker: &Locker, options: LockOptions) -> Result<()> {
    let job = locker.mutex("limits/job")?.with_options(options.with_renewal(Renewal::Manual))?;
    let Some(guard) = job.try_lock().await? else { return Ok(()) };
    let lost = guard.leak();
    assert!(job.try_lock().await?.is_none(), "the job has just run");
    if lost.await == LossReason::Expired {
        println!("the job may run again: {}", job.lock().await?.is_held());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    let ttl = Duration::from_millis(400).max(locker.descriptor().min_ttl);
    let options = LockOptions::new().with_ttl(ttl);
    let capped = locker.mutex("limits/a")?.with_options(options.clone().with_max_hold(ttl * 2))?;
    work_in_steps(capped.lock().await?).await?;
    runs_away(capped.lock().await?).await;
    one_long_step(capped.lock().await?).await?;
    // On other stores the lock would last as long as the session or connection.
    if locker.descriptor().lease_scope == LeaseScope::Claim {
        once_in_a_while(&locker, options).await?;
    }
    locker.shutdown().await
}
