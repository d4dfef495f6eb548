//! Finds the slot that a moment belongs to.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use crate::{
    cli::OnceArguments,
    error::{Error, Result},
    journal::MAX_KEY_BYTES,
};

/// The longest default of `--early`. Clocks that are set at all need no more.
const LONGEST_EARLY: Duration = Duration::from_secs(30);

/// If a slot further ahead than this is done, lockkit concludes that a clock was wrong.
pub(crate) const MOST_EARLY: Duration = Duration::from_secs(3_600);

/// How many gaps between slots of a schedule lockkit looks at. Gaps may differ, as those of working
/// days do.
const GAPS: usize = 64;

/// The shortest `--keep`. Hosts' timers fire in the same minute, not at the same instant. A slot
/// that is forgotten by then would run twice.
const LEAST_KEPT: Duration = Duration::from_secs(60);

/// How slots follow each other.
#[derive(Debug)]
pub(crate) enum Schedule {
    Every { seconds: i64, early: SignedDuration },
    Cron { cron: Box<Cron>, zone: TimeZone, early: Option<SignedDuration> },
    Key(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A slot of a schedule, by its first second since 1970.
    Tick(i64),
    /// A slot that the user names.
    Key(String),
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => f.write_str(key),
            Self::Tick(second) => match Timestamp::from_second(*second) {
                Ok(at) => at.fmt(f),
                Err(_) => second.fmt(f),
            },
        }
    }
}

impl Schedule {
    /// # Errors
    /// An argument can't be understood, or makes no sense.
    pub(crate) fn new(arguments: &OnceArguments) -> Result<Self> {
        let OnceArguments { every, cron, zone, slot, early, keep, .. } = arguments;
        if *keep < LEAST_KEPT {
            return Err(Error::new(
                "--keep must be at least 1m; otherwise a late host would run a forgotten slot again",
            ));
        }
        if early.is_some_and(|early| early > MOST_EARLY) {
            return Err(Error::new(
                "--early must be at most 1h, because lockkit takes a slot further ahead for a \
                 wrong clock",
            ));
        }
        let early = early.map(signed).transpose()?;
        match (every, cron, slot) {
            (Some(every), ..) => Self::every(*every, early),
            (_, Some(cron), _) => Self::cron(cron, zone, early),
            (.., Some(key)) => Self::key(key),
            (None, None, None) => Err(Error::new("no schedule: give --every, --cron or --slot")),
        }
    }

    fn every(every: Duration, early: Option<SignedDuration>) -> Result<Self> {
        let seconds = i64::try_from(every.as_secs()).ok().filter(|seconds| *seconds > 0);
        let (Some(seconds), 0) = (seconds, every.subsec_nanos()) else {
            return Err(Error::new("--every must be whole seconds: 1s, 5m, 24h"));
        };
        let early = match early {
            Some(early) => {
                check_early(early, SignedDuration::from_secs(seconds))?;
                early
            }
            None => signed((every / 10).min(LONGEST_EARLY))?,
        };
        Ok(Self::Every { seconds, early })
    }

    fn cron(fields: &str, zone: &str, early: Option<SignedDuration>) -> Result<Self> {
        let parser =
            CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(fields).map_err(|error| {
            let hint = "write minute, hour, day of month, month, day of week, such as '0 3 * * *'";
            Error::of(format!("--cron {fields:?} is not a schedule ({hint})"), error)
        })?;
        let zone = TimeZone::get(zone).map_err(|error| {
            Error::of(
                format!(
                    "this host does not know --zone {zone:?}; the package tzdata has the zones"
                ),
                error,
            )
        })?;
        Ok(Self::Cron { cron: Box::new(cron), zone, early })
    }

    fn key(key: &str) -> Result<Self> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES || key.chars().any(char::is_control) {
            let text = format!(
                "the key of a slot must have 1 to {MAX_KEY_BYTES} bytes and no control characters"
            );
            return Err(Error::new(text));
        }
        Ok(Self::Key(key.to_owned()))
    }

    /// The slot that a moment of the store's clock belongs to. A later moment never belongs to an
    /// earlier slot.
    ///
    /// # Errors
    /// The schedule has no slot yet.
    pub(crate) fn slot_at(&self, now: SystemTime) -> Result<Slot> {
        let at = || {
            Timestamp::try_from(now)
                .map_err(|error| Error::of("the store's clock is far off", error))
        };
        match self {
            Self::Key(key) => Ok(Slot::Key(key.clone())),
            Self::Every { seconds, early } => {
                let shifted = at()?.checked_add(*early).map_err(far_off)?.as_second();
                Ok(Slot::Tick(shifted - shifted.rem_euclid(*seconds)))
            }
            Self::Cron { cron, zone, early } => last_tick(cron, zone, at()?, *early),
        }
    }
}

fn last_tick(
    cron: &Cron,
    zone: &TimeZone,
    at: Timestamp,
    early: Option<SignedDuration>,
) -> Result<Slot> {
    let none = |error| Error::of("the schedule of --cron never occurs", error);
    let before = |at: Timestamp| {
        cron.find_previous_occurrence(&at.to_zoned(zone.clone()), true).map_err(none)
    };
    let last = before(at)?.timestamp();
    let after = |at: Timestamp| {
        cron.find_next_occurrence(&at.to_zoned(zone.clone()), false)
            .map(|next| next.timestamp())
            .map_err(none)
    };
    let early = match early {
        Some(early) => {
            check_early(early, shortest_gap(last, after))?;
            early
        }
        None => (after(at)?.duration_since(last) / 10).min(signed(LONGEST_EARLY)?),
    };
    let tick = before(at.checked_add(early).map_err(far_off)?)?.timestamp();
    Ok(Slot::Tick(tick.as_second()))
}

/// The shortest of the next gaps between slots.
fn shortest_gap(last: Timestamp, after: impl Fn(Timestamp) -> Result<Timestamp>) -> SignedDuration {
    let ticks = std::iter::successors(Some(last), |tick| after(*tick).ok());
    let ticks: Vec<_> = ticks.take(GAPS + 1).collect();
    let gaps =
        ticks.iter().zip(ticks.iter().skip(1)).map(|(tick, next)| next.duration_since(*tick));
    gaps.min().unwrap_or(SignedDuration::MAX)
}

/// Refuses an `early` of half a gap or more: a host with a right clock would get the slot after the
/// one that it means.
fn check_early(early: SignedDuration, gap: SignedDuration) -> Result<()> {
    if early < gap / 2 {
        return Ok(());
    }
    Err(Error::new(format!(
        "--early must be less than half the time between two slots, which is {gap:#}; otherwise \
         most of a slot would belong to the next one"
    )))
}

fn signed(duration: Duration) -> Result<SignedDuration> {
    SignedDuration::try_from(duration).map_err(|error| Error::of("a time is too long", error))
}

fn far_off(error: jiff::Error) -> Error {
    Error::of("--early leads beyond the end of the calendar", error)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn schedule(arguments: &[&str]) -> Result<Schedule> {
        let all = [&["lockkit", "once", "x"], arguments, &["true"]].concat();
        let Command::Once(once) = Cli::try_parse_from(all).unwrap().command else { panic!() };
        Schedule::new(&once)
    }

    fn slot(arguments: &[&str], at: &str) -> String {
        let at: Timestamp = at.parse().unwrap();
        schedule(arguments).unwrap().slot_at(at.into()).unwrap().to_string()
    }

    #[test]
    fn a_slot_begins_a_little_early() {
        for (arguments, at, expected) in [
            (&["--every", "1h"][..], "2026-03-01T10:59:29Z", "2026-03-01T10:00:00Z"),
            (&["--every", "1h"], "2026-03-01T10:59:30Z", "2026-03-01T11:00:00Z"),
            (&["--every", "1h", "--early", "0s"], "2026-03-01T10:59:59.9Z", "2026-03-01T10:00:00Z"),
            (&["--every", "1m"], "2026-03-01T10:00:53.9Z", "2026-03-01T10:00:00Z"),
            (&["--every", "1m"], "2026-03-01T10:00:54Z", "2026-03-01T10:01:00Z"),
            (&["--every", "1s"], "2026-03-01T10:00:00.89Z", "2026-03-01T10:00:00Z"),
            (&["--every", "1s"], "2026-03-01T10:00:00.9Z", "2026-03-01T10:00:01Z"),
            (&["--cron", "0 3 * * *"], "2026-03-01T02:59:29Z", "2026-02-28T03:00:00Z"),
            (&["--cron", "0 3 * * *"], "2026-03-01T02:59:30Z", "2026-03-01T03:00:00Z"),
            (
                &["--cron", "0 3 * * *", "--early", "10m"],
                "2026-03-01T02:50:00Z",
                "2026-03-01T03:00:00Z",
            ),
            (&["--cron", "* * * * *"], "2026-03-01T02:59:53Z", "2026-03-01T02:59:00Z"),
            (&["--cron", "* * * * *"], "2026-03-01T02:59:54Z", "2026-03-01T03:00:00Z"),
            (&["--cron", "@daily"], "2026-03-01T12:00:00Z", "2026-03-01T00:00:00Z"),
            (&["--cron", "0 0 29 2 *"], "2026-03-01T12:00:00Z", "2024-02-29T00:00:00Z"),
            (&["--cron", "0 9 * * MON-FRI"], "2026-03-01T12:00:00Z", "2026-02-27T09:00:00Z"),
            (&["--slot", "v1.2"], "2026-03-01T12:00:00Z", "v1.2"),
        ] {
            assert_eq!(slot(arguments, at), expected, "{arguments:?} at {at}");
        }
    }

    /// Berlin goes from 02:00 to 03:00 at 01:00Z on 2026-03-29, and from 03:00 to 02:00 at 01:00Z
    /// on 2026-10-25.
    #[test]
    fn a_daily_job_runs_once_on_the_days_when_the_clocks_change() {
        let berlin =
            |cron, at| slot(&["--zone", "Europe/Berlin", "--early", "0s", "--cron", cron], at);
        assert_eq!(berlin("0 3 * * *", "2026-03-28T12:00:00Z"), "2026-03-28T02:00:00Z");
        assert_eq!(berlin("0 3 * * *", "2026-03-29T12:00:00Z"), "2026-03-29T01:00:00Z");
        for skipped in ["2026-03-29T01:30:00Z", "2026-03-29T12:00:00Z"] {
            let run = berlin("30 2 * * *", skipped);
            assert!(
                run.starts_with("2026-03-29T01:"),
                "02:30 does not exist, and it runs soon after: {run}"
            );
        }
        let first = berlin("30 2 * * *", "2026-10-25T00:45:00Z");
        assert_eq!(first, "2026-10-25T00:30:00Z");
        assert_eq!(
            berlin("30 2 * * *", "2026-10-25T12:00:00Z"),
            first,
            "02:30 is there twice, and it runs once"
        );
        assert_eq!(berlin("*/15 * * * *", "2026-10-25T01:20:00Z"), "2026-10-25T01:15:00Z");
    }

    #[test]
    fn slots_never_go_back_and_begin_in_the_past_or_a_little_early() {
        for cron in [
            "30 2 * * *",
            "*/7 * * * *",
            "15 2,3 * * *",
            "0 */2 * * *",
            "0 2 * * SUN",
            "0 0 1,15 * *",
        ] {
            let schedule = schedule(&["--zone", "Europe/Berlin", "--cron", cron]).unwrap();
            for day in ["2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"] {
                let start: Timestamp = day.parse().unwrap();
                let mut last = i64::MIN;
                for step in 0..400 {
                    let at = start + SignedDuration::from_secs(step * 311);
                    let Slot::Tick(tick) = schedule.slot_at(at.into()).unwrap() else { panic!() };
                    assert!(tick >= last && tick <= at.as_second() + 30, "{cron} at {at}");
                    let first = Timestamp::from_second(tick).unwrap().max(start);
                    assert_eq!(
                        schedule.slot_at(first.into()).unwrap(),
                        Slot::Tick(tick),
                        "{cron} at {first}"
                    );
                    last = tick;
                }
            }
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for (arguments, reason) in [
            (&["--every", "500ms"][..], "whole seconds"),
            (&["--every", "1500ms"], "whole seconds"),
            (&["--every", "0s"], "whole seconds"),
            (
                &["--every", "1m", "--early", "30s"],
                "less than half the time between two slots, which is 1m",
            ),
            (&["--every", "9h", "--early", "61m"], "at most 1h"),
            (&["--slot", "x", "--keep", "0s"], "at least 1m"),
            (&["--slot", "x", "--keep", "59s"], "at least 1m"),
            (&["--cron", "61 * * * *"], "minute, hour"),
            (&["--cron", "* * * *"], "minute, hour"),
            (&["--cron", "0 0 3 * * *"], "minute, hour"),
            (&["--cron", "0 3 * * *", "--zone", "Europe/Atlantis"], "tzdata"),
            (&["--slot", ""], "1 to 255 bytes"),
            (&["--slot", "a\nb"], "control characters"),
        ] {
            let error = schedule(arguments).unwrap_err().to_string();
            assert!(error.contains(reason), "{arguments:?}: {error}");
        }
        for (cron, early, is_good) in
            [("0 3 * * *", "1h", true), ("0,10 3 * * *", "5m", false), ("0,10 3 * * *", "4m", true)]
        {
            let schedule = schedule(&["--cron", cron, "--early", early]).unwrap();
            assert_eq!(schedule.slot_at(SystemTime::now()).is_ok(), is_good, "{cron}, {early}");
        }
        let never =
            schedule(&["--cron", "0 0 31 2 *"]).and_then(|never| never.slot_at(SystemTime::now()));
        assert!(never.is_err(), "{never:?}");
    }
}
