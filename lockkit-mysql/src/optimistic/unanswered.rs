//! Keeps track of the requests whose answer never came.

use std::time::Duration;

use lockkit_core::{Clock, Tick};

use crate::{pool::Pool, server::Server};

/// How long a statement may wait after it has read the time: for the table (`lock_wait_timeout`),
/// then for the row (`innodb_lock_wait_timeout`), and a reserve.
const LATEST: Duration = Duration::from_secs(3 + 1 + 1);

/// The requests that one claim has sent and that got no answer.
///
/// Such a request may still be applied, even after a later release, because a proxy can deliver a
/// request after its client is gone. It can't be applied once its connection has ended on the
/// server, or long after its not-after time.
#[derive(Debug, Default)]
pub(crate) struct UnansweredRequests {
    sent: Vec<Sent>,
    /// A request that has ended may have been applied before.
    is_due: bool,
}

#[derive(Debug)]
struct Sent {
    server: Server,
    /// The end of the request in local time, which is later than on the server.
    until: Tick,
}

impl UnansweredRequests {
    /// True if a lock of this owner may be in the store, or may still come there.
    pub(crate) fn is_any(&self) -> bool {
        self.is_due || !self.sent.is_empty()
    }

    /// Call before an attempt is sent.
    pub(crate) fn attempt(&mut self, server: &Server, not_after: Tick) {
        self.sent.push(Sent { server: server.clone(), until: not_after.after(LATEST) });
    }

    /// Call when the last attempt did nothing, and its answer says nothing about the earlier
    /// attempts. One of them may be a lock.
    pub(crate) fn refused(&mut self) {
        self.sent.pop();
    }

    /// Call when the last attempt, which was sent at `asked`, was answered. The answer covers all
    /// requests that had ended by then.
    pub(crate) fn answered(&mut self, asked: Tick) {
        self.sent.pop();
        self.sent.retain(|sent| sent.until >= asked);
    }

    /// Makes sure that no request is under way any more. False if that can't be known yet.
    pub(crate) async fn end(&mut self, pool: &Pool, patience: Duration) -> bool {
        while let Some(sent) = self.sent.last() {
            let has_passed = Clock::Boot.now() > sent.until;
            if !has_passed && !pool.end(&sent.server, patience).await.unwrap_or(false) {
                return false;
            }
            self.sent.pop();
            self.is_due = true;
        }
        true
    }

    /// Call when a release has taken back the effects of ended requests.
    pub(crate) fn taken_back(&mut self) {
        self.is_due = false;
    }
}
