//! Many tasks choose among many names, and some names are popular.

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
    report::Case,
    sample::Sample,
};

const EXPONENT: f64 = 1.0;

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let names = turn.case.names.unwrap_or(1);
    let popular = Arc::new(Popular::new(&turn.target.locker, turn.name, names)?);
    repeat(turn, vec![Want::Popular(popular); turn.tasks()]).await
}

/// Mutexes to choose with a Zipf distribution: the first one most often.
#[derive(Debug)]
pub(crate) struct Popular {
    mutexes: Vec<Mutex>,
    ranks: Ranks,
}

/// Numbers from 0 upwards, the first one most often.
#[derive(Debug)]
pub(super) struct Ranks {
    zipf: Zipf<f64>,
    count: u32,
}

impl Ranks {
    pub(super) fn new(count: u32) -> Result<Self> {
        let zipf = Zipf::new(f64::from(count), EXPONENT);
        let zipf =
            zipf.map_err(|error| Error::of("could not prepare the choice of names", error))?;
        Ok(Self { zipf, count })
    }

    pub(super) fn choose(&self) -> usize {
        rank_to_index(self.zipf.sample(&mut rand::rng()), self.count)
    }
}

/// The number of names of each client of the bare driver. Two clients must not share a name.
pub(super) fn share(case: &Case, clients: u32) -> u32 {
    (case.names.unwrap_or(1) / clients.max(1)).max(1)
}

impl Popular {
    pub(crate) fn new(locker: &Locker, prefix: &str, names: u32) -> Result<Self> {
        let of = |error| Error::of("could not prepare the choice of names", error);
        let mutexes = (0..names).map(|number| locker.mutex(&format!("{prefix}/{number}")));
        let mutexes = mutexes.collect::<lockkit::Result<_>>().map_err(of)?;
        Ok(Self { mutexes, ranks: Ranks::new(names)? })
    }

    pub(crate) fn choose(&self) -> &Mutex {
        &self.mutexes[self.ranks.choose()]
    }
}

/// Ranks are whole numbers from 1.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number between 1 and a count of names"
)]
fn rank_to_index(rank: f64, count: u32) -> usize {
    (rank as u32).clamp(1, count) as usize - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_the_driver_never_share_a_name() {
        let case = Case { names: Some(10_000), ..Case::default() };
        assert_eq!([64, 16, 20_000].map(|clients| share(&case, clients)), [156, 625, 1]);
        let ranks = Ranks::new(156).unwrap();
        assert!((0..1_000).all(|_| ranks.choose() < 156));
    }

    #[tokio::test]
    async fn the_first_of_ten_thousand_names_is_chosen_about_every_tenth_time() {
        let popular = Popular::new(&Locker::memory(), "zipf", 10_000).unwrap();
        let first =
            (0..20_000).filter(|_| popular.choose().name().as_str().ends_with("/0")).count();
        // 1 / (1 + 1/2 + … + 1/10000) = 0.102
        assert!((1_700..2_400).contains(&first), "{first}");
    }
}
