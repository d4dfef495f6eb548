//! Draws random values from a seed, for simulations. A user's program must not use this: with the
//! seed, the owner ids can be predicted.

use std::{cell::Cell, fmt, marker::PhantomData};

use rand::{Rng, SeedableRng as _, rngs::Xoshiro256PlusPlus};
use tokio::time::Instant;

thread_local! {
    static CHANCES: Cell<Option<Xoshiro256PlusPlus>> = const { Cell::new(None) };
    static ZERO: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Until this is dropped, all random values of this thread come from the seed.
#[must_use = "the seed goes with it"]
pub struct Seeded(PhantomData<*const ()>);

impl Seeded {
    /// Begins a repeatable run on this thread: the same seed draws the same values, and
    /// [`Clock::Tokio`](crate::Clock::Tokio) counts from now. Use it only inside a tokio runtime
    /// that has this one thread and a paused clock.
    pub fn begin(seed: u64) -> Self {
        CHANCES.set(Some(Xoshiro256PlusPlus::seed_from_u64(seed)));
        ZERO.set(Some(Instant::now()));
        Self(PhantomData)
    }
}

impl Drop for Seeded {
    fn drop(&mut self) {
        CHANCES.set(None);
        ZERO.set(None);
    }
}

impl fmt::Debug for Seeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seeded")
    }
}

pub(super) fn zero() -> Option<Instant> {
    ZERO.get()
}

pub(super) fn draw<T>(draw: impl FnOnce(&mut dyn Rng) -> T) -> T {
    let Some(mut seeded) = CHANCES.take() else { return draw(&mut rand::rng()) };
    let drawn = draw(&mut seeded);
    CHANCES.set(Some(seeded));
    drawn
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{chance::between, token::OwnerId};

    #[tokio::test(start_paused = true)]
    async fn a_seed_repeats_its_draws_until_it_is_dropped() {
        let drawn = |seed: Option<u64>| {
            let _seeded = seed.map(Seeded::begin);
            (OwnerId::random(), between(Duration::from_secs(1), 0.0, 1.0))
        };
        assert_eq!(drawn(Some(7)), drawn(Some(7)));
        assert_ne!(drawn(Some(7)), drawn(Some(8)));
        assert_ne!(drawn(None), drawn(None));
    }
}
