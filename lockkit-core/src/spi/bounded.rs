//! Bounds a request to a store, and catches its panic.

use std::{
    any::Any,
    future::{Future, pending},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};

use super::Backend;
use crate::{
    error::{Error, ErrorKind, Result},
    name::LockName,
    within::within,
};

/// Drives a request to a store for at most `budget`, and catches its panic.
///
/// The core sends each request through this function. A backend needs it only if it has other
/// backends as members: a member that hangs or panics then harms no other member. A claim stays
/// usable after one of its requests ended like this.
///
/// # Errors
/// The error of the request itself, or an error of [unknown outcome](Error::is_outcome_unknown),
/// because the store may have applied the request. It is [`Unavailable`](ErrorKind::Unavailable) if
/// the request did not answer in time, and [`Unexpected`](ErrorKind::Unexpected) if it panicked.
///
/// # Cancel safety
/// As the request: if this future is dropped, the request is dropped.
pub async fn bounded<T>(budget: Duration, request: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(within(budget, request)).catch_unwind().await {
        Ok(Some(answer)) => answer,
        Err(panic) => {
            let text = format!("the backend panicked: {}", panic_text(&*panic));
            Err(Error::new(ErrorKind::Unexpected, text).with_outcome_unknown())
        }
        Ok(None) => {
            let text = format!(
                "the store did not answer within {budget:?}; is the store running and reachable?"
            );
            Err(Error::new(ErrorKind::Unavailable, text).with_outcome_unknown())
        }
    }
}

/// Completes when the store reports a change of a name. If the backend panics, it reports nothing.
pub(crate) fn change_of(backend: Arc<dyn Backend>, name: LockName) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        if AssertUnwindSafe(backend.changed(&name)).catch_unwind().await.is_err() {
            pending().await
        }
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
