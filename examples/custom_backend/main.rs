//! A custom store, registered under `table://`. lockkit adds waiting, renewal, deadlines, loss and
//! cancellation.
//!
//! Run it with `cargo run --example custom_backend`. The crate `lockkit-conformance` proves the
//! capabilities that such a backend claims.

mod claim;
mod table;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit::{
    Connector, ErrorKind, LockOptions, Registry, Renewal, Result, spi::Backend, url::StoreUrl,
};

use crate::table::Table;

struct Tables;

#[async_trait]
impl Connector for Tables {
    fn schemes(&self) -> &'static [&'static str] {
        &["table"]
    }

    async fn connect(&self, url: StoreUrl, _: &Registry) -> Result<Arc<dyn Backend>> {
        // An unknown parameter is an error. For `table://?tll=1s` the error asks whether the user
        // meant ttl.
        url.params.finish()?;
        Ok(Arc::new(Table::new()))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut registry = lockkit::registry();
    registry.register(Tables);
    // Without the gate of this process, the table itself answers each attempt.
    let locker = registry.connect("table://?ttl=200ms&process_gate=false").await?;
    let mutex = locker.mutex("orders/42")?;

    let guard = mutex.lock().await?;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(
        guard.is_held() && mutex.try_lock().await?.is_none(),
        "lockkit renews the lock, so no other owner gets it"
    );
    println!("held with token {} for three times its ttl", guard.fencing_token());
    guard.release().await?;

    let options = LockOptions::new().with_renewal(Renewal::Manual);
    let paused = mutex.clone().with_options(options)?.lock().await?;
    let next = mutex.lock().await?;
    assert!(!paused.is_held() && paused.fencing_token() < next.fencing_token(), "two holders");
    println!(
        "the lease with token {} ended, and token {} followed",
        paused.fencing_token(),
        next.fencing_token()
    );
    assert_eq!(paused.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.release().await?;

    let typo = registry.connect("table://?tll=1s").await.unwrap_err();
    println!("{typo}");
    locker.shutdown().await
}
