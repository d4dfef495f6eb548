//! A lock over five stores. If two of them fail, the lock still works and its tokens continue to
//! rise.
//!
//! * `cargo run --features quorum --example quorum` runs on embedded memory stores, two of which
//!   fail.
//! * `cargo run --features quorum,redis --example quorum --
//! 'quorum://?member=redis://a/&member=redis://b/&member=redis://c/'`
//!   runs on Redis servers.

use std::{env, sync::Arc, time::Duration};

use lockkit::{
    LockOptions, Locker, Memory, Result,
    quorum::{Need, Quorum},
    spi::{Backend, ClaimSpec, Mode, Wait},
    {Kind, LockName, OwnerId},
};

/// Takes a lock at one member for another owner, which never releases it. For this lock, the
/// member has then failed.
async fn take_away(member: &Memory) -> Result<()> {
    let name = LockName::new(Kind::Mutex, "report")?;
    let ttl = Duration::from_secs(60);
    let spec = ClaimSpec::new(name, OwnerId::random(), Mode::Exclusive, ttl, ttl / 2);
    member.claim(spec)?.attempt(Wait::No).await.map(drop)
}

/// Takes the lock repeatedly, and returns the number of tokens that did not rise.
async fn rounds(locker: &Locker, last: &mut u64) -> Result<u32> {
    let options =
        LockOptions::new().with_ttl(Duration::from_secs(10)).with_wait(Duration::from_secs(5));
    let report = locker.mutex("report")?.with_options(options)?;
    let mut violations = 0;
    for _ in 0..3 {
        let guard = report.lock().await?;
        let token = guard.fencing_token().get();
        println!(
            "held with token {token}; another owner gets it: {}",
            report.try_lock().await?.is_some()
        );
        violations += u32::from(token <= *last);
        *last = token;
        guard.release().await?;
    }
    Ok(violations)
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut last = 0;
    let mut violations = 0;
    if let Some(url) = env::args().nth(1) {
        let locker = lockkit::connect(&url).await?;
        violations += rounds(&locker, &mut last).await?;
        locker.shutdown().await?;
    } else {
        let stores: Vec<_> = (0..5).map(|_| Memory::new()).collect();
        let member = |store: &Memory| -> Arc<dyn Backend> { Arc::new(store.clone()) };
        let members = || stores.iter().map(member).collect();
        let locker = Locker::new(Quorum::new(members())?);
        violations += rounds(&locker, &mut last).await?;
        take_away(&stores[0]).await?;
        take_away(&stores[3]).await?;
        println!("two of five members have failed");
        violations += rounds(&locker, &mut last).await?;
        let strict = Locker::new(Quorum::with_need(members(), Need::All)?);
        let all = strict.mutex("report")?.try_lock().await?;
        println!("all five members grant it: {}", all.is_some());
        violations += u32::from(all.is_some());
        locker.shutdown().await?;
        strict.shutdown().await?;
    }
    assert_eq!(violations, 0);
    Ok(())
}
