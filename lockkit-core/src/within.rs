//! A timeout that costs nothing when the answer is there at the first poll.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use tokio::time;

use crate::clock::sleep;

/// Drives `future` for at most `budget`; returns `None` when that time has passed.
///
/// Unlike `tokio::time::timeout`, this builds its timer only after the first poll was pending. That
/// saves about 0.2 µs of an uncontended lock on a fast store. If the future moves to another
/// runtime, the rest of the budget still counts there.
pub(crate) async fn within<F: Future>(budget: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    if let Poll::Ready(output) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        return Some(output);
    }
    if budget == Duration::MAX {
        return Some(future.await);
    }
    let mut left = budget;
    loop {
        let begun = time::Instant::now();
        tokio::select! {
            biased;
            output = future.as_mut() => return Some(output),
            in_time = sleep(left) => if in_time { return None },
        }
        left = left.saturating_sub(begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn a_ready_future_needs_no_runtime() {
        let answer =
            futures_util::FutureExt::now_or_never(within(Duration::from_secs(1), ready(7)));
        assert_eq!(answer, Some(Some(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_future_ends_at_its_budget() {
        let start = time::Instant::now();
        assert_eq!(within(Duration::from_secs(1), pending::<()>()).await, None);
        assert!((1_000..1_010).contains(&start.elapsed().as_millis()));
    }
}
