//! Whose turn it is. Files answer at once, so a task that locks again and again never waits by
//! itself: it would keep its thread for as long as its runtime lets it.

use std::{
    future::{Future as _, poll_fn},
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::Poll,
};

use tokio::task::coop::consume_budget;

/// What a change takes of a task's budget of 128, in which a message through a channel is one. A
/// pair is a turn.
const COST: u32 = 64;
/// The same where nobody waits: enough that most turns end here, where it is seen, and few enough
/// that they are long.
const COST_ALONE: u32 = 4;

/// How many tasks have used up their turn, and wait for the next.
#[derive(Debug, Default)]
pub(crate) struct Turns(AtomicUsize);

impl Turns {
    /// Waits while others have their turn, if this task had its own. A turn is short only where
    /// others wait, as to end it makes a runtime of several threads wake another one, which takes
    /// as long as a change.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn wait(&self) {
        let cost = if self.0.load(Relaxed) > 0 { COST } else { COST_ALONE };
        let mut turn = pin!(async {
            for _ in 0..cost {
                consume_budget().await;
            }
        });
        if poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await.is_pending() {
            let _waiting = Waiting::begin(&self.0);
            turn.await;
        }
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
