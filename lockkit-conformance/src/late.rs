//! Whether a request with little time failed for want of it.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use lockkit_core::{Error, ErrorKind};

use crate::{stall::StallMeter, wait::ms};

/// More than is measured where nothing stands still.
const A_STALL: Duration = ms(3);

/// Watches over requests that are asked again if the machine was too slow for one.
pub(crate) struct Late {
    meter: Option<StallMeter>,
    asked: Cell<Instant>,
}

impl Late {
    pub(crate) fn watch() -> Self {
        Self { meter: Some(StallMeter::start()), asked: Cell::new(Instant::now()) }
    }

    pub(crate) fn ask(&self) {
        self.meter.iter().for_each(StallMeter::restart);
        self.asked.set(Instant::now());
    }

    /// Anything but a reply that did not come, or what comes of a machine that stood still since the question, is a
    /// failure at once.
    pub(crate) fn too_slow(&self, error: Error) -> String {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let (took, stall) =
            (self.asked.get().elapsed(), self.meter.as_ref().map_or(Duration::ZERO, StallMeter::longest));
        let stood_still = stall >= A_STALL.max(took / 8);
        assert!(
            error.is_outcome_unknown() || stood_still,
            "after {took:?}, with no stall beyond {stall:?}: {error:?}"
        );
        error.to_string()
    }
}

impl Drop for Late {
    /// The meter's end is waited for elsewhere: who was granted a lock shall see it at once.
    fn drop(&mut self) {
        let meter = self.meter.take();
        drop(tokio::task::spawn_blocking(move || drop(meter)));
    }
}
