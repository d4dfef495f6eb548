//! Faults that step a server's wall clock.

use std::time::Duration;

use lockkit_fixture::{ClockDirection, WallClock};
use lockkit_torture::site::{BoxError, ServerFault};

use super::{lasting, momentary, weak};

const BACK: &str = "clock-back";
const DETOUR: &str = "clock-back-and-forth";
const FORTH: &str = "clock-forth-and-back";
const FORWARD: &str = "clock-forward";

/// The clock faults of a server that keeps leases by its clock and its data on its disk. No other
/// fault is combined with them, because a server that is empty *and* late starts below its last
/// tokens.
pub(super) fn faults(words: &'static str) -> Vec<ServerFault> {
    vec![
        weak(momentary(FORWARD), words),
        // This step is small: a dead holder's lock remains for that much longer.
        momentary(BACK),
        // At the end, the clock is corrected, which is a step forward.
        weak(lasting(DETOUR, 100..=1_500), words),
        // This step is small: once the clock is corrected, a lease from in between lasts for that
        // much longer.
        weak(lasting(FORTH, 100..=1_500), words),
    ]
}

/// Steps a clock, and remembers the step that corrects it.
#[derive(Debug, Default)]
pub(super) struct Steps {
    correction: Option<(Duration, ClockDirection)>,
}

impl Steps {
    /// Returns `None` if the fault is not a fault of the clock.
    pub(super) fn strike(
        &mut self,
        clock: Option<&WallClock>,
        kind: &str,
        chance: u64,
    ) -> Result<Option<String>, BoxError> {
        let (milliseconds, direction) = match kind {
            BACK => (20 + chance % 181, ClockDirection::Back),
            DETOUR => (500 + chance % 29_500, ClockDirection::Back),
            FORTH => (100 + chance % 900, ClockDirection::Forward),
            FORWARD => (500 + chance % 59_500, ClockDirection::Forward),
            _ => return Ok(None),
        };
        let distance = Duration::from_millis(milliseconds);
        clock.ok_or("the server has no clock of its own")?.step(distance, direction)?;
        self.correction = match kind {
            DETOUR => Some((distance, ClockDirection::Forward)),
            FORTH => Some((distance, ClockDirection::Back)),
            _ => None,
        };
        Ok(Some(format!("the clock, by {distance:?}")))
    }

    /// Applies the correction, if one is due.
    pub(super) fn heal(&mut self, clock: Option<&WallClock>) -> Result<(), BoxError> {
        match (clock, self.correction.take()) {
            (Some(clock), Some((distance, direction))) => Ok(clock.step(distance, direction)?),
            _ => Ok(()),
        }
    }
}
