//! Records how slowly each site of this run answers. All cases measure it, and each case takes the
//! length of its leases from it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long an answer counts: a site that was slow for a moment must not seem slow for the rest of
/// the run.
const REMEMBERED: Duration = Duration::from_secs(60);

static SITES: Mutex<BTreeMap<String, Vec<Answer>>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, Debug)]
struct Answer {
    at: Instant,
    took: Duration,
}

/// Records how long an answer of this site took, and returns the slowest recent answer that any
/// case had from it.
pub(crate) fn slowest_of(site: &str, took: Duration) -> Duration {
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    let answers = sites.entry(site.to_owned()).or_default();
    answers.retain(|answer| answer.at.elapsed() < REMEMBERED);
    answers.push(Answer { at: Instant::now(), took });
    answers.iter().map(|answer| answer.took).max().unwrap_or(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_answer_counts_for_the_next_cases_of_its_site() {
        let slow = Duration::from_secs(2);
        let quick = Duration::from_millis(1);
        assert_eq!(slowest_of("answers: one", slow), slow);
        assert_eq!(slowest_of("answers: one", quick), slow);
        assert_eq!(slowest_of("answers: another", quick), quick);
    }
}
