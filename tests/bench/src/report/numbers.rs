//! Formats numbers for people: three significant digits, thousands separators, units.

use super::{Metric, Series};

/// A number and the unit that it was scaled to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) number: String,
    pub(super) unit: &'static str,
}

impl Shown {
    fn of(number: f64, unit: &'static str) -> Self {
        Self { number: three(number), unit }
    }

    /// The number and its unit, as in running text.
    pub(super) fn text(&self) -> String {
        match self.unit {
            "" => self.number.clone(),
            unit @ ("/s" | "%") => format!("{}{unit}", self.number),
            unit => format!("{} {unit}", self.number),
        }
    }
}

/// A value in the unit of its metric.
pub(super) fn shown(metric: Metric, value: f64) -> Shown {
    match metric {
        Metric::WaitP50Us
        | Metric::WaitP99Us
        | Metric::WaitMaxUs
        | Metric::ClientCpuUs
        | Metric::ServerCpuUs
        | Metric::HandOffP50Us
        | Metric::HandOffP99Us => micros(value),
        Metric::RecoveryMs | Metric::LeaseMs => micros(value * 1e3),
        Metric::BytesPerLock => bytes(value),
        Metric::GrantsPerSecond | Metric::IdleRequestsPerSecond => Shown::of(value, "/s"),
        Metric::CpuPercent => Shown::of(value, "%"),
        Metric::RequestsPerGrant | Metric::MostOverLeast => Shown::of(value, ""),
    }
}

/// A duration in its best unit.
pub(super) fn micros(value: f64) -> Shown {
    scaled(value, &[(1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns")])
}

/// Memory in its best unit.
pub(super) fn bytes(value: f64) -> Shown {
    const KIB: f64 = 1024.0;
    scaled(value, &[(KIB * KIB * KIB, "GiB"), (KIB * KIB, "MiB"), (KIB, "KiB"), (1.0, "B")])
}

/// Scales to the largest unit of which there is at least one.
fn scaled(value: f64, units: &[(f64, &'static str)]) -> Shown {
    let magnitude = rounded(value).abs();
    let fits = units.iter().find(|(size, _)| magnitude >= *size);
    let smallest = if magnitude == 0.0 { None } else { units.last() };
    // Zero is written in the unit whose size is one.
    let one = units.iter().find(|(size, _)| *size == 1.0);
    match fits.or(smallest).or(one) {
        Some((size, unit)) => Shown::of(value / size, unit),
        None => Shown::of(value, ""),
    }
}

/// `median (min–max)` in two parts; the unit is not repeated.
pub(super) fn median_and_range(metric: Metric, series: &Series) -> Option<(String, String)> {
    let median = shown(metric, series.median()?);
    let min = shown(metric, series.min()?);
    let max = shown(metric, series.max()?);
    let range = if min.unit == median.unit && max.unit == median.unit {
        format!("{}–{}", min.number, max.number)
    } else {
        format!("{}–{}", min.text(), max.text())
    };
    Some((median.text(), range))
}

/// `median (min–max)` in one string.
pub(super) fn with_range(metric: Metric, series: &Series) -> String {
    match median_and_range(metric, series) {
        Some((median, range)) => format!("{median} ({range})"),
        None => "nothing".into(),
    }
}

/// Three significant digits.
pub(super) fn three(value: f64) -> String {
    if !value.is_finite() {
        return if value > 0.0 { "∞".into() } else { "?".into() };
    }
    let value = rounded(value);
    let decimals = match value.abs() {
        0.0 => 0,
        a if a >= 100.0 => 0,
        a if a >= 10.0 => 1,
        a if a >= 1.0 => 2,
        a if a >= 0.1 => 3,
        a if a >= 0.01 => 4,
        a if a >= 0.001 => 5,
        _ => return format!("{value:.2e}"),
    };
    separated(&format!("{value:.decimals$}"))
}

/// A count, not rounded.
pub(super) fn count(value: u64) -> String {
    separated(&value.to_string())
}

/// The value is rounded first, so that 999.6 µs becomes 1.00 ms and not 1,000 µs.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

fn separated(number: &str) -> String {
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("-", digits));
    let (whole, rest) = digits.find('.').map_or((digits, ""), |dot| digits.split_at(dot));
    let mut text = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_kept_and_thousands_are_set_apart() {
        for (value, text) in [
            (0.0, "0"),
            (0.000_012_34, "1.23e-5"),
            (0.012_345, "0.0123"),
            (0.123_45, "0.123"),
            (1.005_1, "1.01"),
            (9.999, "10.0"),
            (99.96, "100"),
            (999.6, "1,000"),
            (12_345.0, "12,300"),
            (1_234_567.0, "1,230,000"),
            (-1_234.0, "-1,230"),
            (f64::INFINITY, "∞"),
            (f64::NAN, "?"),
        ] {
            assert_eq!(three(value), text, "of {value}");
        }
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(123), "123");
    }

    #[test]
    fn a_duration_gets_the_unit_that_its_rounded_value_needs() {
        for (value, text) in [
            (0.0, "0 µs"),
            (0.25, "250 ns"),
            (0.000_5, "0.500 ns"),
            (999.4, "999 µs"),
            (999.6, "1.00 ms"),
            (1_234.0, "1.23 ms"),
            (2_500_000.0, "2.50 s"),
        ] {
            assert_eq!(micros(value).text(), text, "of {value}");
        }
        assert_eq!(bytes(512.0).text(), "512 B");
        assert_eq!(bytes(1536.0).text(), "1.50 KiB");
    }

    #[test]
    fn a_range_shows_its_unit_only_if_it_differs() {
        let same = Series(vec![1_200.0, 1_300.0, 1_400.0]);
        assert_eq!(with_range(Metric::WaitP50Us, &same), "1.30 ms (1.20–1.40)");
        let mixed = Series(vec![900.0, 1_300.0, 1_400.0]);
        assert_eq!(with_range(Metric::WaitP50Us, &mixed), "1.30 ms (900 µs–1.40 ms)");
        assert_eq!(with_range(Metric::RecoveryMs, &Series(vec![2_000.0])), "2.00 s (2.00–2.00)");
        assert_eq!(
            with_range(Metric::GrantsPerSecond, &Series(vec![12_345.0])),
            "12,300/s (12,300–12,300)"
        );
    }
}
