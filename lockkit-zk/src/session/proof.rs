//! Computes until when the session surely lives.
//!
//! The leader's timer decides. A client that is connected to a follower touches only the follower.
//! The leader pings each follower every half tick. In its answer the follower lists the sessions
//! that were active. A heartbeat travels to the leader and back, but does not restart the timer
//! itself. Three heartbeats in a row prove that a timer was started after the first one was sent:
//!
//! 1. When the first is answered, the follower has marked the session as active.
//! 2. The second is sent a quarter of the timeout after that answer. The timeout is at least two
//!    ticks, so the leader has sent a ping in between. Leader and follower talk on one connection,
//!    in order: when the second is answered, the follower has answered that ping.
//! 3. The third is sent after that answer. When the third is answered, the leader has read the
//!    follower's answer to the ping, for the same reason, and has restarted the timer.
//!
//! The proof depends on no delay: slow answers make it older, but not wrong. A new connection in
//! between does not make it wrong either, because resuming a session restarts the timer.
//!
//! The proof also needs that this leader was still the leader. A successor starts all timers again,
//! so a proof is wrong only if its first heartbeat was sent after the successor had started. A
//! majority agreed to a heartbeat that writes, and no majority agrees to anything for a leader that
//! has a successor. A `sync` proves less: it relies on a deposed leader to stop within a third of
//! the timeout. The first and the third heartbeat are further apart than that.

use std::{collections::VecDeque, time::Duration};

use lockkit_core::Tick;

/// How many heartbeats are sent per session timeout if their answers come soon. Three pauses are
/// then a little longer than the quarter below.
pub(crate) const BEATS: u32 = 10;
/// The part of the timeout in which the leader pings its followers at least once.
const PING: u32 = 4;

/// The most that a proof leaves of the timeout. The fourth heartbeat after the first one is the
/// earliest that can complete the proof.
pub(crate) fn longest_lease(timeout: Duration) -> Duration {
    timeout * (BEATS - 4) / BEATS
}

/// The known state of the session's timer at the leader.
#[derive(Debug)]
pub(super) struct Proof {
    timeout: Duration,
    /// Heartbeats are writes, which a majority agrees to.
    by_majority: bool,
    /// The timer was started at this instant or later.
    at: Tick,
    /// Heartbeats that no later heartbeat has followed by a quarter of the timeout. New connections
    /// that no majority confirms are here, too.
    firsts: VecDeque<Contact>,
    /// The newest sending that a heartbeat followed by a quarter. The next answer proves it.
    followed: Option<Tick>,
    /// The newest connection that no majority has confirmed.
    reconnect: Option<Contact>,
}

#[derive(Clone, Copy, Debug)]
struct Contact {
    sent: Tick,
    answered: Tick,
}

impl Proof {
    /// `connecting` is an instant before the session was requested. A majority agrees to each new
    /// session.
    pub(super) fn new(timeout: Duration, by_majority: bool, connecting: Tick) -> Self {
        Self {
            timeout,
            by_majority,
            at: connecting,
            firsts: VecDeque::new(),
            followed: None,
            reconnect: None,
        }
    }

    /// An instant: the timer was last started then or later.
    pub(super) fn at(&self) -> Tick {
        self.at
    }

    /// Records that a request resumed the session, and that it was sent after `sent`. The request
    /// restarted the timer of some leader. That leader may have been deposed, because it answers
    /// this request alone.
    pub(super) fn reconnected(&mut self, sent: Tick, answered: Tick) {
        let contact = Contact { sent, answered };
        if self.by_majority {
            self.reconnect = Some(contact);
        } else {
            self.firsts.push_back(contact);
        }
    }

    /// Records the answer of a heartbeat. The heartbeat was sent after the answer of the one before
    /// it.
    pub(super) fn answered(&mut self, sent: Tick, answered: Tick) {
        let confirmed = self.reconnect.take_if(|reconnect| reconnect.answered <= sent);
        let proven = confirmed.map(|reconnect| reconnect.sent).max(self.followed.take());
        self.at = self.at.max(proven.unwrap_or(self.at));
        let quarter = self.timeout / PING;
        while let Some(first) = self.firsts.front() {
            if first.answered.after(quarter) > sent {
                break;
            }
            self.followed = self.followed.max(Some(first.sent));
            self.firsts.pop_front();
        }
        self.firsts.push_back(Contact { sent, answered });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T: Duration = Duration::from_secs(10);
    const TENTH: Duration = Duration::from_secs(1);
    const SOON: Duration = Duration::from_millis(10);

    fn zero() -> Tick {
        static ZERO: std::sync::OnceLock<Tick> = std::sync::OnceLock::new();
        *ZERO.get_or_init(|| lockkit_core::Clock::Boot.now())
    }

    fn s(seconds: f64) -> Tick {
        zero().after(Duration::from_secs_f64(100.0 + seconds))
    }

    fn proof(by_majority: bool) -> Proof {
        Proof::new(T, by_majority, s(0.0))
    }

    /// Sends heartbeats each second, answered after 10 ms.
    fn steady(proof: &mut Proof, seconds: std::ops::Range<u32>) {
        for second in seconds {
            let sent = s(second.into());
            proof.answered(sent, sent.after(SOON));
        }
    }

    #[test]
    fn c3_a_heartbeat_counts_only_once_a_ping_and_a_third_heartbeat_have_followed() {
        for by_majority in [false, true] {
            let mut proof = proof(by_majority);
            steady(&mut proof, 1..4);
            assert_eq!(proof.at(), s(0.0), "no ping is sure to have come since the first");
            steady(&mut proof, 4..5);
            assert_eq!(proof.at(), s(0.0), "the leader may not have read the answer to the ping");
            steady(&mut proof, 5..6);
            assert_eq!(proof.at(), s(1.0));
            steady(&mut proof, 6..30);
            assert_eq!(proof.at(), s(25.0));
        }
    }

    /// After the first of three answers, the leader may have read nothing from the follower until
    /// the third.
    #[test]
    fn c3_after_a_stall_only_earlier_answers_count() {
        let mut proof = proof(false);
        steady(&mut proof, 1..10);
        assert_eq!(proof.at(), s(5.0));
        proof.answered(s(16.0), s(16.1));
        assert_eq!(proof.at(), s(6.0), "what a ping had followed before the stall");
        proof.answered(s(16.2), s(16.3));
        assert_eq!(proof.at(), s(9.0), "the stall is long enough for a ping");
        for sent in [17.0, 18.0] {
            proof.answered(s(sent), s(sent + 0.1));
            assert_eq!(proof.at(), s(9.0), "at {sent}");
        }
        proof.answered(s(19.0), s(19.1));
        assert_eq!(proof.at(), s(9.0), "a quarter after the stall, and nothing behind it");
        proof.answered(s(19.2), s(19.3));
        assert_eq!(proof.at(), s(16.2));
    }

    #[test]
    fn c3_a_late_answer_counts_from_its_arrival() {
        let mut proof = proof(true);
        proof.answered(s(1.0), s(5.0));
        proof.answered(s(5.0), s(5.1));
        proof.answered(s(7.4), s(7.45));
        proof.answered(s(7.46), s(7.48));
        assert_eq!(proof.at(), s(0.0), "2.46 s after the answer to the first");
        proof.answered(s(7.5), s(7.51));
        proof.answered(s(7.55), s(7.6));
        assert_eq!(proof.at(), s(1.0));
    }

    /// A deposed leader answers a new connection alone.
    #[test]
    fn c3_a_new_connection_counts_only_once_a_heartbeat_has_confirmed_it_and_never_back() {
        let mut writing = proof(true);
        writing.reconnected(s(3.0), s(3.5));
        assert_eq!(writing.at(), s(0.0));
        writing.answered(s(3.4), s(3.6));
        assert_eq!(writing.at(), s(0.0), "sent before: on the connection that was lost");
        writing.answered(s(3.7), s(3.8));
        assert_eq!(writing.at(), s(3.0), "a majority has agreed since");
        writing.reconnected(s(2.0), s(4.0));
        writing.answered(s(4.1), s(4.2));
        assert_eq!(writing.at(), s(3.0));

        let mut syncing = proof(false);
        syncing.reconnected(s(3.0), s(3.5));
        for sent in [3.5, 4.5, 5.5] {
            syncing.answered(s(sent), s(sent + 0.1));
        }
        syncing.answered(s(6.05), s(6.06));
        assert_eq!(syncing.at(), s(0.0));
        syncing.answered(s(6.4), s(6.5));
        assert_eq!(syncing.at(), s(3.0));
    }

    #[test]
    fn c3_c10_a_lease_of_half_the_timeout_is_left_at_any_time_and_less_with_slow_answers() {
        for (round_trip, least) in [(0, 500), (1, 499), (45, 450), (90, 280), (110, 220)] {
            let round_trip = T / 1_000 * round_trip;
            let mut proof = proof(true);
            let mut sent = s(0.0);
            for beat in 0..100 {
                let answered = sent.after(round_trip);
                let left = answered.until(proof.at().after(T));
                assert!(
                    left >= T / 1_000 * least,
                    "{left:?} with {round_trip:?}, before beat {beat} counts"
                );
                proof.answered(sent, answered);
                sent = answered.max(sent.after(TENTH));
            }
        }
    }

    /// One direction of the connection between a follower and its leader. Any delay is possible,
    /// and no message overtakes another.
    #[derive(Default)]
    struct Wire(VecDeque<(u64, Message)>);

    #[derive(Clone, Copy)]
    enum Message {
        /// A heartbeat, or the answer to it.
        Beat,
        /// A ping, or the answer to it, which says whether the session was active.
        Ping(bool),
    }

    impl Wire {
        fn send(&mut self, now: u64, delay: u64, message: Message) {
            let before = self.0.back().map_or(0, |(arrival, _)| *arrival);
            self.0.push_back((before.max(now + delay), message));
        }

        fn next(&self) -> u64 {
            self.0.front().map_or(u64::MAX, |(arrival, _)| *arrival)
        }

        fn receive(&mut self) -> Message {
            self.0.pop_front().unwrap().1
        }
    }

    /// In milliseconds. Pings are as rare as the timeout allows.
    const PINGS: u64 = 2_500;

    /// Sends heartbeats through a follower, after these pauses, until the last one is answered.
    /// Calls `check` at each answer with the time when the leader last restarted the timer.
    fn simulate(pauses: &[u64], delays: &[u64], mut check: impl FnMut(u64, u64, u64)) {
        let mut up = Wire::default();
        let mut down = Wire::default();
        let mut pauses = pauses.iter();
        let mut delays = delays.iter().copied().cycle();
        let mut sent = 0;
        let mut send = 0;
        let mut ping = 0;
        let mut active = false;
        let mut touched = 0;
        loop {
            let now = send.min(ping).min(up.next()).min(down.next());
            let delay = delays.next().unwrap();
            if now == ping {
                down.send(now, delay, Message::Ping(false));
                ping += PINGS;
            } else if now == up.next() {
                match up.receive() {
                    Message::Beat => down.send(now, delay, Message::Beat),
                    Message::Ping(true) => touched = now,
                    Message::Ping(false) => {}
                }
            } else if now == down.next() {
                match down.receive() {
                    Message::Ping(_) => {
                        up.send(now, delay, Message::Ping(std::mem::take(&mut active)))
                    }
                    Message::Beat => {
                        check(sent, now, touched);
                        let Some(pause) = pauses.next() else { return };
                        send = now + pause;
                    }
                }
            } else {
                active = true;
                up.send(now, delay, Message::Beat);
                (sent, send) = (now, u64::MAX);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn c3_with_any_delays_the_leader_has_restarted_the_timer_since_the_proven_instant(
            pauses in proptest::collection::vec(prop_oneof![0_u64..4_000, 0_u64..100], 1..20),
            delays in proptest::collection::vec(prop_oneof![0_u64..10, 0_u64..3_000], 7..100),
        ) {
            let ms = |n: u64| zero().after(Duration::from_millis(n));
            let mut proof = Proof::new(T, false, ms(0));
            let mut late = Duration::ZERO;
            simulate(&pauses, &delays, |sent, answered, touched| {
                proof.answered(ms(sent), ms(answered));
                late = late.max(ms(touched).until(proof.at()));
            });
            prop_assert!(late.is_zero(), "{late:?} too late");
        }
    }
}
