//! Until when the session surely lives.
//!
//! A reply that came by way of the leader proves that the session was known there, but does not touch its timer: a
//! follower does that with its answers to the leader's pings, one each half tick. So a heartbeat counts only once a
//! later one, a quarter of the timeout younger, was answered as well, and the follower was never silent in between.
//! The timeout is at least two ticks, so a ping was answered meanwhile.

use std::{collections::VecDeque, time::Duration};

use lockkit_core::Tick;

/// Heartbeats are sent this many times per session timeout, and are answered in time within the same period.
pub(super) const BEATS: u32 = 12;
/// How much younger, as a part of the timeout, the heartbeat is that makes an older one count.
const CONFIRMATION: u32 = 4;

/// What is known of the session's timer at the leader.
#[derive(Debug)]
pub(super) struct Proof {
    timeout: Duration,
    /// The timer was started at this instant or later.
    at: Tick,
    /// Heartbeats that wait for their confirmation, without a gap between them.
    window: VecDeque<Beat>,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    sent: Tick,
    answered: Tick,
}

impl Proof {
    /// `connecting`: before the session was asked for.
    pub(super) fn new(timeout: Duration, connecting: Tick) -> Self {
        Self { timeout, at: connecting, window: VecDeque::new() }
    }

    /// The instant at which, or after which, the timer was last started.
    pub(super) fn at(&self) -> Tick {
        self.at
    }

    /// The session was taken up again, by a request that was sent after `disconnected`. That starts the timer.
    pub(super) fn reconnected(&mut self, disconnected: Tick) {
        self.window.clear();
        self.at = self.at.max(disconnected);
    }

    /// A heartbeat that was due at `due` was answered.
    pub(super) fn answered(&mut self, due: Tick, sent: Tick, answered: Tick) {
        if due.until(answered) > self.timeout / BEATS {
            self.window.clear();
        }
        let confirmation = self.timeout / CONFIRMATION;
        while let Some(first) = self.window.front() {
            if first.answered.after(confirmation) > sent {
                break;
            }
            self.at = self.at.max(first.sent);
            self.window.pop_front();
        }
        self.window.push_back(Beat { sent, answered });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(12);

    fn zero() -> Tick {
        static ZERO: std::sync::OnceLock<Tick> = std::sync::OnceLock::new();
        *ZERO.get_or_init(|| lockkit_core::Clock::Boot.now())
    }

    fn s(seconds: f64) -> Tick {
        zero().after(Duration::from_secs_f64(100.0 + seconds))
    }

    /// Heartbeats each second, answered after 10 ms.
    fn steady(proof: &mut Proof, seconds: std::ops::Range<u32>) {
        for second in seconds {
            let sent = s(second.into());
            proof.answered(sent, sent, sent.after(Duration::from_millis(10)));
        }
    }

    #[test]
    fn c3_a_heartbeat_counts_only_once_one_a_quarter_younger_is_answered() {
        let mut proof = Proof::new(T, s(0.0));
        steady(&mut proof, 1..4);
        assert_eq!(proof.at(), s(0.0), "nothing is confirmed yet");
        steady(&mut proof, 4..5);
        assert_eq!(proof.at(), s(0.0), "the first was answered less than a quarter before the last was sent");
        steady(&mut proof, 5..6);
        assert_eq!(proof.at(), s(1.0));
        steady(&mut proof, 6..30);
        assert_eq!(proof.at(), s(25.0), "two thirds of the timeout are left in a steady state");
    }

    #[test]
    fn c3_a_stall_restarts_the_window() {
        let mut proof = Proof::new(T, s(0.0));
        steady(&mut proof, 1..10);
        let before = proof.at();
        // The client stalls for most of the timeout; the first answer after that proves nothing by itself.
        proof.answered(s(10.0), s(17.6), s(17.7));
        assert_eq!(proof.at(), before);
        for (due, sent) in [(18.6, 18.6), (19.6, 19.6), (20.6, 20.6)] {
            proof.answered(s(due), s(sent), s(sent + 0.01));
            assert_eq!(proof.at(), before, "at {sent}");
        }
        proof.answered(s(21.6), s(21.6), s(21.7));
        assert_eq!(proof.at(), s(17.6));
    }

    #[test]
    fn c3_a_late_answer_counts_from_its_arrival() {
        let mut proof = Proof::new(T, s(0.0));
        proof.answered(s(1.0), s(1.0), s(5.0)); // sent in time, answered late: the follower was silent
        for sent in [6.0, 7.0] {
            proof.answered(s(sent), s(sent), s(sent + 0.01));
        }
        assert_eq!(proof.at(), s(0.0));
        proof.answered(s(8.0), s(8.0), s(8.01));
        assert_eq!(proof.at(), s(1.0));
    }

    #[test]
    fn c3_a_new_connection_counts_from_before_it_was_asked_for_and_never_back() {
        let mut proof = Proof::new(T, s(0.0));
        steady(&mut proof, 1..10);
        proof.reconnected(s(11.0));
        assert_eq!(proof.at(), s(11.0));
        proof.reconnected(s(3.0));
        assert_eq!(proof.at(), s(11.0));
        steady(&mut proof, 12..15);
        assert_eq!(
            proof.at(),
            s(11.0),
            "what was answered before the new connection is no part of the window"
        );
    }
}
