//! Measures from the call of a release to the grant of the next waiter in the store.

use std::time::{Duration, Instant};

use super::{
    Turn,
    closed::{LastRelease, Want, Window, closed_loop, sample},
    lock_error,
};
use crate::{
    error::Result,
    report::Metric,
    sample::{Durations, Sample},
};

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let mutex = turn.target.ungated().mutex(turn.name).map_err(lock_error)?;
    let wants = vec![Want::Mutex(mutex); turn.tasks()];
    let window = Window::after_warm_up(Instant::now(), turn.slice);
    let tallies = closed_loop(wants, Duration::ZERO, window, Some(LastRelease::new())).await?;
    let mut sample = sample(&tallies, &window)?;
    let gaps = Durations::of(tallies.iter().flat_map(|tally| tally.gaps.iter().copied()))?;
    put_gaps(&mut sample, gaps);
    Ok(sample)
}

pub(super) fn put_gaps(sample: &mut Sample, gaps: Durations) {
    if !gaps.is_empty() {
        sample.put(Metric::HandOffP50Us, gaps.micros_at(50.0));
        if gaps.tell(99.0) {
            sample.put(Metric::HandOffP99Us, gaps.micros_at(99.0));
        }
    }
    sample.durations = gaps;
}
