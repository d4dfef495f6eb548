//! Draws the random values of the core: the owner ids, and the jitter of its pauses. In a
//! simulation both come from a seed, so that a run can be repeated.

#[cfg(any(test, feature = "simulation"))]
mod seeded;

use std::time::Duration;

use rand::{Rng, RngExt as _};
use tokio::time::Instant;

#[cfg(any(test, feature = "simulation"))]
pub use self::seeded::Seeded;

pub(crate) fn owner() -> u128 {
    draw(|rng| u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()))
}

/// Returns a random duration between two shares of `duration`.
pub(crate) fn between(duration: Duration, low: f64, high: f64) -> Duration {
    duration.mul_f64(low + (high - low) * draw(|rng| rng.random::<f64>()))
}

/// Returns a random number below a limit, for random tests that can be repeated.
#[cfg(any(test, feature = "simulation"))]
pub fn below(limit: u64) -> u64 {
    draw(|rng| rng.random_range(0..limit))
}

#[cfg(any(test, feature = "simulation"))]
fn draw<T>(draw: impl FnOnce(&mut dyn Rng) -> T) -> T {
    seeded::draw(draw)
}

#[cfg(not(any(test, feature = "simulation")))]
fn draw<T>(draw: impl FnOnce(&mut dyn Rng) -> T) -> T {
    draw(&mut rand::rng())
}

/// The instant from which this thread's tokio clock counts, if the thread is in a repeatable run.
#[cfg(any(test, feature = "simulation"))]
pub(crate) fn zero() -> Option<Instant> {
    seeded::zero()
}

#[cfg(not(any(test, feature = "simulation")))]
pub(crate) fn zero() -> Option<Instant> {
    None
}
