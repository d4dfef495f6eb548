//! Calls that outlive their caller: the background task finishes a call that is dropped midway.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt as _, TryFutureExt as _, future::BoxFuture};

use super::agenda::{Agenda, Cleanup};
use crate::error::Result;

/// Runs a call that others wait for, such as a request with a claim. The background task polls it
/// as well as the caller, because the caller may keep the future without polling it.
pub(crate) async fn shared<T: Clone + Send + Sync + 'static>(
    agenda: &Agenda,
    call: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let call = call.map_err(Arc::new).boxed().shared();
    let same = call.clone();
    agenda.push(Cleanup::Finish(Box::pin(async move { drop(same.await) })));
    Finishing::new(agenda, call).await.map_err(|error| error.copy())
}

/// Polls its future inline. If it is dropped midway, the future moves to the background task, which
/// finishes it.
pub(crate) struct Finishing<'a, T: Send + 'static> {
    future: Option<BoxFuture<'static, T>>,
    agenda: &'a Agenda,
}

impl<'a, T: Send> Finishing<'a, T> {
    pub(crate) fn new(
        agenda: &'a Agenda,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        Self { future: Some(Box::pin(future)), agenda }
    }
}

impl<T: Send> Future for Finishing<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out first, so that a future that panics is dropped and never polled again.
        let Some(mut future) = self.future.take() else { return Poll::Pending };
        let poll = future.as_mut().poll(cx);
        if poll.is_pending() {
            self.future = Some(future);
        }
        poll
    }
}

impl<T: Send> Drop for Finishing<'_, T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            let rest = Box::pin(async move { drop(future.await) });
            self.agenda.push(Cleanup::Finish(rest));
        }
    }
}
