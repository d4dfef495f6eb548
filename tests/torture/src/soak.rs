//! Runs rounds in sequence, for a given time.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf, time::Duration};

use tokio::time::Instant;

use crate::{
    check::{Figures, Violation},
    error::Result,
    report,
    run::{Arena, Outcome, Round},
};

/// The sum of many rounds on one store.
#[derive(Clone, Debug, Default)]
pub struct Total {
    /// The number of rounds.
    pub rounds: u32,
    /// The time that all rounds took.
    pub took: Duration,
    /// The sum of the figures.
    pub figures: Figures,
    /// Broken promises, each with the seed of its round and the folder of its history.
    pub violations: Vec<(u64, PathBuf, Violation)>,
    /// Documented weaknesses that appeared, in the words of the documentation.
    pub documented: BTreeSet<String>,
    /// The planned kinds of faults that did not happen, although there was time.
    pub missing: BTreeSet<&'static str>,
    /// The reason why the last round failed or could not start, if there is one. The earlier rounds
    /// still count.
    pub error: Option<String>,
}

/// Runs rounds until `time` has passed, but at least one. `round` makes a round from a seed: first
/// from `seed`, then from the seeds after it. Each round needs its own folder.
///
/// Stops at the first round with a broken promise unless `continues`, and at a round that fails.
/// Deletes the histories of all other rounds.
pub async fn soak(
    arena: &Arena,
    round: impl Fn(u64) -> Round,
    seed: u64,
    time: Duration,
    continues: bool,
    mut tell: impl FnMut(u64, &Total),
) -> Total {
    let start = Instant::now();
    let mut total = Total::default();
    loop {
        let round = round(seed.wrapping_add(total.rounds.into()));
        // Do not start a round that would not end in time.
        if total.rounds > 0 && start.elapsed() + round.span + round.calm > time {
            return total;
        }
        let played = arena.play(&round, |_| {}).await;
        total.took = start.elapsed();
        let noted = played.and_then(|outcome| total.note(&round, &outcome));
        if let Err(error) = noted {
            total.error = Some(format!("seed {}: {error}", round.seed));
        }
        tell(round.seed, &total);
        if total.error.is_some() || (!total.violations.is_empty() && !continues) {
            return total;
        }
    }
}

impl Total {
    fn note(&mut self, round: &Round, outcome: &Outcome) -> Result<()> {
        let verdict = &outcome.verdict;
        self.rounds += 1;
        self.add(&verdict.figures);
        self.missing.extend(outcome.missing());
        self.error = outcome.error.as_ref().map(|error| format!("seed {}: {error}", round.seed));
        self.documented
            .extend(verdict.documented.iter().filter_map(|found| found.documented.clone()));
        let found = verdict.violations.iter();
        self.violations.extend(found.map(|it| (round.seed, round.folder.clone(), it.clone())));
        if verdict.violations.is_empty() && outcome.error.is_none() {
            // Histories take gigabytes in an hour. If the deletion of a folder fails, the rounds
            // continue.
            let _ = fs::remove_dir_all(&round.folder);
        } else {
            outcome.write(&round.folder)?;
        }
        Ok(())
    }

    fn add(&mut self, other: &Figures) {
        let sum = &mut self.figures;
        for (into, more) in [
            (&mut sum.requests, other.requests),
            (&mut sum.grants, other.grants),
            (&mut sum.losses, other.losses),
            (&mut sum.unknown, other.unknown),
            (&mut sum.failed, other.failed),
            (&mut sum.dropped, other.dropped),
            (&mut sum.accepted, other.accepted),
            (&mut sum.refused, other.refused),
            (&mut sum.documented, other.documented),
            (&mut sum.takeovers, other.takeovers),
        ] {
            *into += more;
        }
        for (kind, count) in &other.faults {
            *sum.faults.entry(kind.clone()).or_default() += count;
        }
        for (kind, times) in &other.recoveries {
            sum.recoveries.entry(kind.clone()).or_default().extend(times);
        }
    }

    /// The sum in Markdown, below a heading with the name of the store.
    #[must_use]
    pub fn markdown(&self, store: &str) -> String {
        let mut text = format!("# {store}\n\n");
        let minutes = self.took.as_secs_f64() / 60.0;
        let _ = writeln!(
            text,
            "{} rounds in {minutes:.1} minutes, {} broken promises.\n",
            self.rounds,
            self.violations.len()
        );
        if let Some(error) = &self.error {
            let _ = writeln!(text, "* stopped by an error: {error}");
        }
        if !self.missing.is_empty() {
            let missing: Vec<_> = self.missing.iter().copied().collect();
            let _ = writeln!(text, "* planned, but never happened: {}", missing.join(", "));
        }
        for (seed, _, violation) in &self.violations {
            let _ = writeln!(text, "* seed {seed}: {}: {}", violation.rule, violation.what);
        }
        for words in &self.documented {
            let _ = writeln!(text, "* allowed by the documentation: {words}");
        }
        text.push_str(&report::tables(&self.figures));
        text
    }
}

/// The sums of many stores, a line for each, and the recovery times after each kind of fault.
#[must_use]
pub fn overview(totals: &[(&str, &Total)]) -> String {
    let mut text =
        "| store | minutes | faults | grants | lost holds | writes accepted | late writes refused \
         | allowed violations | broken promises |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
    let mut all = Total::default();
    for (name, total) in totals {
        line(&mut text, name, total);
        all.took += total.took;
        all.add(&total.figures);
        all.violations.extend(total.violations.iter().cloned());
    }
    line(&mut text, "all", &all);
    report::recoveries(&mut text, &all.figures);
    text
}

fn line(text: &mut String, name: &str, total: &Total) {
    let Total { took, figures, violations, .. } = total;
    let _ = writeln!(
        text,
        "| {name} | {:.1} | {} | {} | {} | {} | {} | {} | {} |",
        took.as_secs_f64() / 60.0,
        figures.faults.values().sum::<u64>(),
        figures.grants,
        figures.losses,
        figures.accepted,
        figures.refused,
        figures.documented,
        violations.len()
    );
}
