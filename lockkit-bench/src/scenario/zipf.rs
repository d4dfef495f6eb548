//! Many tasks over many names, of which some are popular.

use std::sync::Arc;

use lockkit::{Locker, Mutex};
use rand::distr::Distribution as _;
use rand_distr::Zipf;

use super::{
    Turn,
    closed::{Want, repeat},
};
use crate::{
    error::{Error, Result},
    sample::Sample,
};

const EXPONENT: f64 = 1.0;

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let names = turn.case.names.unwrap_or(1);
    let popular = Arc::new(Popular::new(&turn.target.locker, turn.name, names)?);
    repeat(turn, vec![Want::Popular(popular); turn.tasks()]).await
}

/// Mutexes that are chosen as Zipf has it: the first one most often.
#[derive(Debug)]
pub(crate) struct Popular {
    mutexes: Vec<Mutex>,
    zipf: Zipf<f64>,
}

impl Popular {
    pub(crate) fn new(locker: &Locker, prefix: &str, names: u32) -> Result<Self> {
        let of = |error| Error::of("can't choose among names", error);
        let mutexes = (0..names).map(|number| locker.mutex(&format!("{prefix}/{number}")));
        let mutexes = mutexes.collect::<lockkit::Result<_>>().map_err(of)?;
        let zipf = Zipf::new(f64::from(names), EXPONENT);
        let zipf = zipf.map_err(|error| Error::of("can't choose among names", error))?;
        Ok(Self { mutexes, zipf })
    }

    pub(crate) fn choose(&self) -> &Mutex {
        let rank = self.zipf.sample(&mut rand::rng());
        &self.mutexes[rank_to_index(rank, self.mutexes.len())]
    }
}

/// Ranks are whole numbers from 1.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number between 1 and a count of names"
)]
fn rank_to_index(rank: f64, count: usize) -> usize {
    (rank as usize).clamp(1, count) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_of_ten_thousand_names_is_chosen_about_every_tenth_time() {
        let popular = Popular::new(&Locker::memory(), "zipf", 10_000).unwrap();
        let first = (0..20_000).filter(|_| popular.choose().name().as_str().ends_with("/0")).count();
        // 1 / (1 + 1/2 + … + 1/10000) = 0.102
        assert!((1_700..2_400).contains(&first), "{first}");
    }
}
