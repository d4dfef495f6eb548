//! Collects the figures of one round, and makes the figures of a report from all rounds.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

use crate::{
    error::{Error, Result},
    report::{Curve, Metric, Series, Verdict},
};

/// The percentiles of a curve's points, closer and closer to 100.
const PERCENTILES: [f64; 23] = [
    0.0, 1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0, 97.5,
    99.0, 99.5, 99.9, 99.95, 99.99, 99.999, 100.0,
];

/// The longest duration that can be recorded. No case lasts longer than these ten minutes.
const LONGEST: Duration = Duration::from_secs(600);
/// The significant digits of each value. Other effects of the machine are far larger than this
/// error of a tenth of a percent.
const DIGITS: u8 = 3;

/// A distribution of durations, kept in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Durations(Histogram<u64>);

impl Durations {
    pub(crate) fn new() -> Result<Self> {
        let histogram = Histogram::new_with_bounds(1, nanos(LONGEST), DIGITS);
        histogram.map(Self).map_err(|error| Error::of("could not create a histogram", error))
    }

    pub(crate) fn of(values: impl IntoIterator<Item = u64>) -> Result<Self> {
        let mut this = Self::new()?;
        for value in values {
            this.0.saturating_record(value);
        }
        Ok(this)
    }

    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        self.0.add(&other.0).map_err(|error| Error::of("could not add histograms", error))
    }

    /// The values and how often each occurred, in a form for another process.
    pub(crate) fn counts(&self) -> Vec<(u64, u64)> {
        self.0
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect()
    }

    pub(crate) fn add_counts(&mut self, counts: &[(u64, u64)]) {
        for &(value, count) in counts {
            self.0.saturating_record_n(value, count);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether at least one value is above the percentile. With fewer values, the percentile would
    /// be the slowest value.
    pub(crate) fn tell(&self, percentile: f64) -> bool {
        float(self.0.len()) * (100.0 - percentile) >= 100.0
    }

    /// The duration at a percentile, in microseconds.
    pub(crate) fn micros_at(&self, percentile: f64) -> f64 {
        float(self.0.value_at_percentile(percentile)) / 1_000.0
    }

    fn curve(&self) -> Option<Curve> {
        if self.is_empty() {
            return None;
        }
        let points =
            PERCENTILES.iter().filter(|&&percentile| percentile >= 100.0 || self.tell(percentile));
        let points = points.map(|&percentile| [percentile, self.micros_at(percentile)]);
        Some(Curve { count: self.0.len(), points: points.collect() })
    }
}

/// The results of one slice.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) figures: BTreeMap<Metric, f64>,
    /// The durations that the case measures: waits, or gaps between a release and the next grant.
    pub(crate) durations: Durations,
    /// All grants, including those before and after the measured time, because the server counts
    /// the requests of all of them.
    pub(crate) all_grants: u64,
    /// The server's count at the start of the work, if the work began after the start of the turn.
    pub(crate) counted_from: Option<u64>,
    /// The server's count at the end of the work, if other requests followed.
    pub(crate) counted_until: Option<u64>,
}

impl Sample {
    pub(crate) fn new() -> Result<Self> {
        let figures = BTreeMap::new();
        let durations = Durations::new()?;
        Ok(Self { figures, durations, all_grants: 0, counted_from: None, counted_until: None })
    }

    pub(crate) fn put(&mut self, metric: Metric, value: f64) {
        self.figures.insert(metric, value);
    }
}

/// All rounds of one case on one store by one side.
#[derive(Debug)]
pub(crate) struct Rounds {
    figures: BTreeMap<Metric, Vec<f64>>,
    durations: Durations,
    rounds: usize,
    /// The reason why the case has no figures. Then the run tries no further round.
    end: Option<Verdict>,
}

impl Rounds {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { figures: BTreeMap::new(), durations: Durations::new()?, rounds: 0, end: None })
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    pub(crate) fn add(&mut self, sample: &Sample) -> Result<()> {
        self.rounds += 1;
        for (metric, value) in &sample.figures {
            self.figures.entry(*metric).or_default().push(*value);
        }
        self.durations.add(&sample.durations)
    }

    pub(crate) fn does_not_apply(&mut self, reason: impl Into<String>) {
        self.end = Some(Verdict::NotApplicable { reason: reason.into() });
    }

    pub(crate) fn failed(&mut self, reason: impl Into<String>) {
        self.end = Some(Verdict::Failed { reason: reason.into() });
    }

    /// Leaves out a metric that is missing in a round. Otherwise its values would seem to belong to
    /// other rounds.
    pub(crate) fn into_verdict(self) -> Verdict {
        if let Some(end) = self.end {
            return end;
        }
        let rounds = self.rounds;
        let whole = self.figures.into_iter().filter(|(_, values)| values.len() == rounds);
        let figures: BTreeMap<_, _> =
            whole.map(|(metric, values)| (metric, Series(values))).collect();
        Verdict::Measured { figures, curve: self.durations.curve() }
    }
}

/// A duration in nanoseconds, at most the largest `u64`.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A count as a number to divide by.
#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "counts far below 2^52")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(metrics: &[(Metric, f64)]) -> Sample {
        let mut sample = Sample::new().unwrap();
        for (metric, value) in metrics {
            sample.put(*metric, *value);
        }
        sample
    }

    #[test]
    fn a_metric_that_one_round_lacks_is_left_out() {
        let mut rounds = Rounds::new().unwrap();
        rounds
            .add(&sample(&[(Metric::GrantsPerSecond, 1.0), (Metric::MostOverLeast, 1.0)]))
            .unwrap();
        rounds.add(&sample(&[(Metric::GrantsPerSecond, 2.0)])).unwrap();
        let Verdict::Measured { figures, curve } = rounds.into_verdict() else {
            panic!("measured")
        };
        assert_eq!(
            figures.into_iter().collect::<Vec<_>>(),
            [(Metric::GrantsPerSecond, Series(vec![1.0, 2.0]))]
        );
        assert_eq!(curve, None);
    }

    #[test]
    fn a_curve_rises_from_the_least_to_the_most_of_all_rounds() {
        let mut rounds = Rounds::new().unwrap();
        for from in [1_000_u64, 3_000_000] {
            let mut sample = Sample::new().unwrap();
            sample.durations = Durations::of((0..1_000).map(|n| from + n * 1_000)).unwrap();
            rounds.add(&sample).unwrap();
        }
        let Verdict::Measured { curve: Some(curve), .. } = rounds.into_verdict() else {
            panic!("measured")
        };
        assert_eq!(curve.count, 2_000);
        assert!(curve.points.is_sorted_by(|one, other| one[0] < other[0] && one[1] <= other[1]));
        let first = curve.points[0];
        let last = curve.points[curve.points.len() - 1];
        assert!((0.9..1.1).contains(&first[1]) && first[0] == 0.0, "{first:?}");
        assert!((3_990.0..4_010.0).contains(&last[1]) && last[0] == 100.0, "{last:?}");
    }

    #[test]
    fn a_percentile_is_shown_if_a_sample_lies_beyond_it() {
        let of = |count| Durations::of(0..count).unwrap();
        assert!(of(100).tell(99.0) && !of(99).tell(99.0));
        let curve = of(200).curve().unwrap();
        let last: Vec<_> = curve.points.iter().rev().take(2).map(|point| point[0]).collect();
        assert_eq!(last, [100.0, 99.5]);
    }

    #[test]
    fn durations_survive_the_transfer_as_counts() {
        let one = Durations::of([5, 5, 7_000_000]).unwrap();
        let mut other = Durations::new().unwrap();
        other.add_counts(&one.counts());
        assert_eq!(one.counts(), other.counts());
        assert_eq!(other.0.len(), 3);
    }
}
