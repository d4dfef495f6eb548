//! Takes a real lock, as a test of the store.

use std::time::{Duration, Instant};

use lockkit::{
    ErrorKind, Result,
    spi::{Diagnostic, Severity},
};

use crate::store::Store;

/// All probes use one name, so that the store keeps data for only one name.
const NAME: &str = "lockkit-doctor";
/// Another doctor may hold the lock at the same time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes a lock, renews it and gives it back.
pub(super) async fn probe(store: &Store) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    if let Err(error) = steps(store, &mut diagnostics).await {
        let advice = "this store can't lock jobs";
        diagnostics.push(
            Diagnostic::new(Severity::Unsafe, "a lock", error.to_string()).with_advice(advice),
        );
    }
    diagnostics
}

async fn steps(store: &Store, diagnostics: &mut Vec<Diagnostic>) -> Result<()> {
    let mut tell = |what: &str, since: Instant| {
        diagnostics.push(Diagnostic::new(Severity::Good, what, format!("{:.1?}", since.elapsed())));
    };
    let since = Instant::now();
    let mutex = store.locker.mutex(&store.full(NAME))?;
    let guard = match mutex.lock_timeout(PATIENCE).await {
        Err(error) if error.kind() == ErrorKind::Timeout => {
            diagnostics.push(Diagnostic::new(
                Severity::Unknown,
                "a lock",
                format!("another client has {NAME:?}"),
            ));
            return Ok(());
        }
        answer => answer?,
    };
    tell("lock", since);
    let since = Instant::now();
    guard.renew().await?;
    tell("renew", since);
    let since = Instant::now();
    match guard.release().await {
        Ok(()) => tell("release", since),
        Err(error) if error.kind() == ErrorKind::Lost => {
            let advice = "a lock was lost at once; another program changes lockkit's records, or \
                          the server is not the one in the URL";
            diagnostics.push(
                Diagnostic::new(Severity::Unsafe, "release", "the lock was lost")
                    .with_advice(advice),
            );
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
