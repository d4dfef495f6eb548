//! Reads a grant that came by message, and proves how long it lasts.

use std::time::Duration;

use lockkit_core::{Clock, OwnerId, Tick, spi::Lease};

/// A reading of a server's clock, and when it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    /// The connection's number.
    pub(crate) link: u64,
    pub(crate) sent: Tick,
    /// In µs.
    pub(crate) server_time: i64,
}

/// A lock that the store handed over to a waiter for its claim window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handover {
    pub(crate) token: i64,
    /// The server's time of the hand-over, in µs.
    at: i64,
    window: Duration,
    /// The number of the connection on which the message came.
    link: u64,
}

/// An older reading proves little, because two clocks drift apart.
const OLDEST_READING: Duration = Duration::from_secs(60);

impl Handover {
    /// Reads a message. `owner` alone asks the waiter to try, and `owner token now window` hands
    /// the lock over.
    pub(crate) fn from_message(message: &[u8], link: u64) -> Option<(OwnerId, Option<Self>)> {
        let mut words = std::str::from_utf8(message).ok()?.split(' ');
        let owner = words.next()?.parse().ok()?;
        let Some(token) = words.next() else { return Some((owner, None)) };
        let token = token.parse().ok()?;
        let at = words.next()?.parse().ok()?;
        let window = words.next()?.parse().ok()?;
        Some((owner, Some(Self { token, at, window: Duration::from_millis(window), link })))
    }

    /// Limits the window to the waiter's own. The script repeats that window, but any client that
    /// may publish can send a longer one.
    pub(crate) fn within(self, window: Duration) -> Self {
        Self { window: self.window.min(window), ..self }
    }

    /// How long the lock is ours, if an earlier answer proves that without a request. That answer
    /// comes from the same server, so at most `at - server_time` has passed since then until the
    /// hand-over.
    pub(crate) fn proved_by(&self, earlier: ClockReading) -> Option<Lease> {
        let passed = u64::try_from(self.at.checked_sub(earlier.server_time)?).ok()?;
        let passed = Duration::from_micros(passed);
        let elapsed = earlier.sent.until(Clock::Boot.now());
        // If more time has passed on the server than here, its clock was set.
        let stepped = passed > elapsed;
        if earlier.link != self.link || stepped || passed > OLDEST_READING {
            return None;
        }
        let lasts = passed + self.window;
        // If less is left, it is better to ask and get a whole lease.
        let enough = lasts.saturating_sub(elapsed) >= self.window / 2;
        enough.then_some(Lease::Proven { at: earlier.sent, lasts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "0123456789abcdef0123456789abcdef";

    fn message(at: i64) -> Handover {
        let text = format!("{OWNER} 7 {at} 10000");
        Handover::from_message(text.as_bytes(), 1).unwrap().1.unwrap()
    }

    fn seen(server_time: i64) -> ClockReading {
        ClockReading { link: 1, sent: Clock::Boot.now(), server_time }
    }

    #[test]
    fn c13_a_message_that_makes_no_sense_is_ignored() {
        for text in [
            "",
            "x",
            "0123 7 8 9",
            &format!("{OWNER} 7"),
            &format!("{OWNER} 7 8"),
            &format!("{OWNER} 7 8 -1"),
        ] {
            assert_eq!(Handover::from_message(text.as_bytes(), 1), None, "{text:?}");
        }
        assert_eq!(Handover::from_message(&[0xff], 1), None);
        assert_eq!(
            Handover::from_message(OWNER.as_bytes(), 1),
            Some((OWNER.parse().unwrap(), None))
        );
    }

    #[test]
    fn c3_a_proved_lease_counts_from_before_the_earlier_request() {
        let reading = seen(1_000_000);
        std::thread::sleep(Duration::from_millis(20));
        let lease = message(1_015_000).proved_by(reading).unwrap();
        assert_eq!(lease, Lease::Proven { at: reading.sent, lasts: Duration::from_millis(10_015) });
    }

    #[test]
    fn c3_nothing_is_proved_when_the_servers_clock_was_set_or_another_server_answers() {
        // The hand-over is ahead of our clock, then before the reading, then from another
        // connection.
        assert_eq!(message(60_000_000).proved_by(seen(1_000_000)), None);
        assert_eq!(message(999_999).proved_by(seen(1_000_000)), None);
        let other = ClockReading { link: 2, ..seen(1_000_000) };
        assert_eq!(message(1_000_000).proved_by(other), None);
    }
}
