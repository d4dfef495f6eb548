//! How long a hold lasts: a bound on it, a warning before its end, a longer lease for one step, and
//! a lock that stays taken for a while after the work.
//!
//! `cargo run --example hold_limits` runs on the embedded memory store; give the URL of another one
//! as its argument. On ZooKeeper, where a lease is that of the session, it takes half a minute.

use std::{
    env,
    time::{Duration, Instant},
};

use lockkit::{
    ErrorKind, LockGuard, LockOptions, Locker, LossReason, Renewal, Result, spi::LeaseScope,
};

/// Works in steps until the hold is about to end, and leaves in order.
async fn work_in_steps(guard: LockGuard) -> Result<()> {
    let mut steps = 0;
    let warning = guard.expiring(guard.remaining() / 4);
    let left = loop {
        tokio::select! {
            left = warning.wait() => break left,
            () = tokio::time::sleep(Duration::from_millis(50)) => steps += 1, // a step of the work
        }
    };
    println!("{steps} steps are done, and {left:?} are left to tidy up");
    assert!(steps > 0 && (guard.is_held() || left.is_zero())); // a machine that stood still is warned too late
    println!("the release says: {:?}", guard.release().await?);
    Ok(())
}

/// Never comes to its end by itself.
async fn runs_away(guard: LockGuard) {
    let started = Instant::now();
    let error = guard.run(std::future::pending::<()>()).await.unwrap_err();
    println!("the one that ran away was stopped after {:?}: {error}", started.elapsed());
    assert_eq!(error.kind(), ErrorKind::Lost);
}

/// One step takes longer than the lease, and nothing can renew it meanwhile.
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

/// The job must not run again for a while, on whatever machine: nobody gives its lock back.
async fn once_in_a_while(locker: &Locker, options: LockOptions) -> Result<()> {
    let job = locker.mutex("limits/job")?.with_options(options.with_renewal(Renewal::Manual))?;
    let Some(guard) = job.try_lock().await? else { return Ok(()) };
    let lost = guard.leak();
    assert!(job.try_lock().await?.is_none(), "it has just run");
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
    // Elsewhere it would be held for as long as the session or connection lives.
    if locker.descriptor().lease_scope == LeaseScope::Claim {
        once_in_a_while(&locker, options).await?;
    }
    locker.shutdown().await
}
