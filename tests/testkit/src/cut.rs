//! Drops a future midway.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

/// Polls the future so many times, and then drops it: right after the last poll, or, if `late`, when
/// it would be polled once more. `None` if it was dropped.
///
/// # Cancel safety
/// As the future.
pub async fn cut<F: Future>(future: F, polls: usize, late: bool) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 && !late => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
