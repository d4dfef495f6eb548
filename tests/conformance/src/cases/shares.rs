//! Helpers for the cases of locks that several owners hold at a time.

use lockkit_core::{LockGuard, Result, spi::Inspection};

use crate::{
    harness::{Faults, Link},
    wait::{eventually, soon, within},
};

/// Makes an attempt whose reply is lost, and returns the grant of its retry, which has the token of
/// the first attempt.
pub(super) async fn granted_by_a_retry(
    link: &dyn Link,
    attempt: impl Future<Output = Result<LockGuard>> + Send + 'static,
    inspect: impl AsyncFn() -> Result<Inspection>,
) -> LockGuard {
    link.set(Faults::LOST_REPLIES);
    let asking = tokio::spawn(attempt);
    let mut token = None;
    eventually(soon(), async || {
        token = inspect().await.unwrap().holders.first().and_then(|holder| holder.token);
        token.map(drop).ok_or_else(|| "the attempt was not applied".to_owned())
    })
    .await;
    link.cut();
    link.heal();
    let guard = within(soon(), "the retried grant", asking).await.unwrap().unwrap();
    assert_eq!(Some(guard.fencing_token()), token, "C5: of the first attempt");
    guard
}

/// Fails unless the store shows exactly these grants.
pub(super) fn assert_shown(seen: &Inspection, guards: &[LockGuard]) {
    assert_eq!(seen.holders.len(), guards.len());
    for guard in guards {
        let shown = seen.holders.iter().find(|holder| holder.owner == Some(guard.owner())).unwrap();
        assert_eq!((shown.mode, shown.token), (guard.mode(), Some(guard.fencing_token())));
    }
}
