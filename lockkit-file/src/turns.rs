//! Gives each task its turn. Files answer at once, so a task that locks again and again would never
//! wait. It would keep its thread for as long as its runtime allows.

use std::{
    future::{Future as _, poll_fn},
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::Poll,
};

use tokio::task::coop::consume_budget;

/// How much of a task's budget of 128 a change uses. A message through a channel uses 1. So a turn
/// is one lock and one release.
const COST: u32 = 64;
/// The cost if no task waits. It is large enough that most turns end here, where they are counted.
/// It is small enough that turns are long.
const COST_ALONE: u32 = 4;

/// How many tasks have used up their turn, and wait for the next one.
#[derive(Debug, Default)]
pub(crate) struct Turns(AtomicUsize);

impl Turns {
    /// Lets other tasks have their turn, if this task has used up its own. A turn is short only if
    /// others wait. The end of a turn makes a runtime of several threads wake another thread, which
    /// takes as long as a change.
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
