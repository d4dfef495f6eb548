//! Keeps track of the requests that got no answer.

/// The requests that one claim has sent and that got no answer.
///
/// A reply that says who has the lock settles everything that was sent before it on the same
/// connection. But a connection may fall silent or break. A request on it may still reach the
/// server, even after a release on the next connection. The reason is a proxy, which can deliver a
/// request although its client is gone. A release is not final until the request's not-after time
/// has passed.
#[derive(Debug, Default)]
pub(crate) struct UnansweredRequests {
    current: Option<Sent>,
    /// An earlier request was not answered either.
    earlier: bool,
    /// Until when an earlier request may still be applied, in server time; 0 if it can't be.
    may_apply_until: i64,
}

#[derive(Debug)]
struct Sent {
    connection: u64,
    not_after: i64,
    /// The same for earlier unanswered requests on this connection; 0 if there are none.
    earlier_not_after: i64,
}

impl UnansweredRequests {
    /// True if a lock of this owner may be in the store.
    pub(crate) fn is_any(&self) -> bool {
        self.current.is_some() || self.earlier
    }

    /// Call before an attempt is sent.
    pub(crate) fn attempt(&mut self, connection: u64, not_after: i64) {
        self.switch_to(connection);
        self.earlier |= self.current.is_some();
        let earlier_not_after = self.current.as_ref().map_or(0, Sent::latest);
        self.current = Some(Sent { connection, not_after, earlier_not_after });
    }

    /// Returns until when an unanswered attempt may be applied after a release on this connection,
    /// or 0 if none can be.
    pub(crate) fn may_outlast_release(&self, connection: u64) -> i64 {
        let other = self.current.as_ref().filter(|sent| sent.connection != connection);
        self.may_apply_until.max(other.map_or(0, Sent::latest))
    }

    /// Call when an attempt was refused. It did nothing, and its refusal says nothing about earlier
    /// attempts.
    pub(crate) fn refused(&mut self) {
        // The refused attempt may never have left the client, so earlier ones may still be under
        // way.
        let earlier = self.current.take().filter(|sent| sent.earlier_not_after > 0);
        self.current = earlier.map(|sent| Sent { not_after: sent.earlier_not_after, ..sent });
    }

    /// Call when an attempt was answered at server time `now`, with an answer that says who has the
    /// lock.
    pub(crate) fn settled(&mut self, now: i64) {
        self.current = None;
        if now > self.may_apply_until {
            self.may_apply_until = 0;
            self.earlier = false;
        }
    }

    fn switch_to(&mut self, connection: u64) {
        let Some(sent) = self.current.take_if(|sent| sent.connection != connection) else { return };
        self.earlier = true;
        self.may_apply_until = self.may_apply_until.max(sent.latest());
    }
}

impl Sent {
    fn latest(&self) -> i64 {
        self.not_after.max(self.earlier_not_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One attempt on connection 1 that got no reply, and may be applied until 100.
    fn one_unanswered() -> UnansweredRequests {
        let mut unanswered = UnansweredRequests::default();
        unanswered.attempt(1, 100);
        unanswered
    }

    #[test]
    fn c5_nothing_sent_is_nothing_unanswered() {
        let unanswered = UnansweredRequests::default();
        assert!(!unanswered.is_any());
        assert_eq!(unanswered.may_outlast_release(1), 0);
    }

    #[test]
    fn c5_an_unanswered_attempt_may_be_a_lock() {
        assert!(one_unanswered().is_any());
    }

    #[test]
    fn c5_a_release_overtakes_nothing_on_its_own_connection() {
        let unanswered = one_unanswered();
        assert_eq!(unanswered.may_outlast_release(1), 0);
    }

    #[test]
    fn c5_a_release_on_another_connection_may_be_overtaken() {
        assert_eq!(one_unanswered().may_outlast_release(2), 100);
    }

    /// Catches a release on another connection that makes the attempt look older than it is.
    #[test]
    fn c5_a_release_without_an_answer_changes_nothing_about_the_attempt() {
        let mut unanswered = one_unanswered();
        assert_eq!(unanswered.may_outlast_release(2), 100);
        assert_eq!(unanswered.may_outlast_release(1), 0, "this one comes after the attempt");
        unanswered.attempt(1, 200);
        unanswered.settled(50);
        assert!(!unanswered.is_any(), "its own connection has answered a later attempt");
    }

    #[test]
    fn c5_a_reply_settles_earlier_requests_on_its_connection() {
        let mut unanswered = one_unanswered();
        unanswered.attempt(1, 200);
        unanswered.settled(50);
        assert!(!unanswered.is_any());
        assert_eq!(unanswered.may_outlast_release(2), 0);
    }

    #[test]
    fn c5_a_reply_does_not_settle_another_connection_before_its_time() {
        for (now, until) in [(50, 100), (100, 100), (101, 0)] {
            let mut unanswered = one_unanswered();
            unanswered.attempt(2, 200);
            unanswered.settled(now);
            assert_eq!(
                (unanswered.is_any(), unanswered.may_outlast_release(2)),
                (until > 0, until),
                "at {now}"
            );
        }
    }

    #[test]
    fn c5_the_latest_of_several_unanswered_attempts_counts() {
        for not_after in [[100, 300, 200], [300, 100, 200], [100, 200, 300]] {
            let mut unanswered = UnansweredRequests::default();
            for (connection, not_after) in (1..).zip(not_after) {
                unanswered.attempt(connection, not_after);
            }
            assert_eq!(unanswered.may_outlast_release(9), 300, "{not_after:?}");
        }
    }

    #[test]
    fn c5_a_refused_attempt_leaves_nothing() {
        let mut unanswered = one_unanswered();
        unanswered.refused();
        assert!(!unanswered.is_any());
        assert_eq!(unanswered.may_outlast_release(2), 0);
    }

    #[test]
    fn c5_a_refusal_settles_no_earlier_request() {
        // The refused attempt is on the same connection, also twice, and then on another one.
        let mut unanswered = one_unanswered();
        for _ in 0..2 {
            unanswered.attempt(1, 200);
            unanswered.refused();
            assert!(unanswered.is_any());
        }
        assert_eq!(unanswered.may_outlast_release(2), 100, "not 200: that one did nothing");
        let mut unanswered = one_unanswered();
        unanswered.attempt(2, 200);
        unanswered.refused();
        assert!(unanswered.is_any());
        assert_eq!(unanswered.may_outlast_release(2), 100);
    }

    #[test]
    fn c5_a_later_reply_settles_requests_that_a_refusal_left_open() {
        let mut unanswered = one_unanswered();
        unanswered.attempt(1, 200);
        unanswered.refused();
        unanswered.attempt(1, 300);
        unanswered.settled(50);
        assert!(!unanswered.is_any());
        assert_eq!(unanswered.may_outlast_release(2), 0);
    }
}
