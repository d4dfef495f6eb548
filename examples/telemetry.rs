//! The reports of a locker: metrics by backend and group, the health of its store, and the view and
//! actions of operators.
//!
//! * `cargo run --features metrics --example telemetry` runs on the embedded memory store.
//! * `cargo run --features metrics,redis --example telemetry -- redis://127.0.0.1/` runs on Redis.
//!   Other stores run with their URLs.

use std::{env, time::Duration};

use lockkit::{LockOptions, Released, Result};
use metrics_util::debugging::DebuggingRecorder;
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // An application installs the exporter of its choice instead, for Prometheus or others.
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().expect("this is the only recorder");

    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let options = LockOptions::new().with_group("stock").with_label("worker 7");
    let locker = lockkit::builder(&url).await?.metrics().build().with_defaults(options)?;

    let health = locker.health().await?;
    println!("the store is healthy: {} answered within {:?}", health.role, health.round_trip);

    let shelf = locker.mutex("stock/shelf 1")?;
    let guard = shelf.lock().await?;
    assert!(shelf.try_lock().await?.is_none());
    sleep(Duration::from_millis(20)).await;

    if locker.capabilities().names {
        for name in locker.names("stock/").await? {
            let seen = locker.inspect(&name).await?;
            for holder in &seen.holders {
                println!("{name} is held by {:?}, token {:?}", holder.label, holder.token);
            }
        }
    }
    // An operator ends exactly this grant, and its holder learns of it.
    assert_eq!(locker.force_release(shelf.name(), guard.fencing_token()).await?, Released::Freed);
    guard.renew().await.expect_err("this owner no longer has the lock");
    println!("the holder got the loss signal: {}", guard.lost().await);
    drop(guard);
    locker.shutdown().await?;

    let mut lines: Vec<_> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels: Vec<_> =
                key.key().labels().map(|l| format!("{}={:?}", l.key(), l.value())).collect();
            format!("{}{{{}}} {value:?}", key.key().name(), labels.join(","))
        })
        .collect();
    lines.sort_unstable();
    assert!(
        lines.iter().any(|line| line.starts_with("lockkit_lost_total")),
        "the loss was not counted"
    );
    for line in lines {
        println!("{line}");
    }
    Ok(())
}
