//! Reads and writes the text of the note: the last finished run, and a later one that has begun.
//!
//! The first line has the version. Each run is a line with its slot, its token, the times of its
//! beginning and its end in milliseconds since 1970, and its label. A `-` replaces an end that is
//! not recorded.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::outcome::{OnceOutcome, OnceRun};
use crate::error::{Error, ErrorKind, Result};

const HEAD: &str = "lockkit once ";
const VERSION: &str = "1";
const NO_END: &str = "-";

/// The content of the note. A run that has begun is always of a later slot than the finished one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    finished: Option<OnceRun>,
    pub(super) begun: Option<OnceRun>,
}

impl Record {
    /// # Errors
    /// [`ErrorKind::NewerFormat`], or [`ErrorKind::WrongType`] if another program wrote the note.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut record = Self::default();
        let mut lines = text.lines();
        let Some(head) = lines.next() else { return Ok(record) };
        let version = head.strip_prefix(HEAD).ok_or_else(foreign)?;
        if version != VERSION {
            return Err(Error::new(
                ErrorKind::NewerFormat,
                "a newer lockkit wrote the record of slots beside the lock, in a format that this \
                 version does not know; lockkit did not change it; upgrade this program",
            ));
        }
        for line in lines {
            let run = parse_run(line).ok_or_else(foreign)?;
            if run.finished.is_some() {
                record.finished = Some(run);
            } else {
                record.begun = Some(run);
            }
        }
        Ok(record)
    }

    /// The run of the latest slot.
    pub(super) fn latest(&self) -> Option<&OnceRun> {
        self.begun.as_ref().or(self.finished.as_ref())
    }

    /// The answer for a slot that needs no run.
    pub(super) fn settled<T, E>(&self, slot: u64) -> Option<OnceOutcome<T, E>> {
        match &self.finished {
            Some(run) if run.slot == slot => Some(OnceOutcome::Done(run.clone())),
            _ => {
                let later = self.latest().filter(|run| run.slot > slot);
                later.cloned().map(OnceOutcome::Passed)
            }
        }
    }

    /// Records that a run has begun. Returns a run that began before and is not finished.
    pub(super) fn begin(&mut self, run: OnceRun) -> Option<OnceRun> {
        self.begun.replace(run)
    }

    /// Records that the run that has begun is finished, and took this long.
    pub(super) fn finish(&mut self, took: Duration) {
        if let Some(mut run) = self.begun.take() {
            run.finished = Some(run.begun.checked_add(took).unwrap_or(run.begun));
            self.finished = Some(run);
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEAD}{VERSION}")?;
        for run in self.finished.iter().chain(&self.begun) {
            write!(f, "\n{} {} {} ", run.slot, run.token, millis(run.begun))?;
            match run.finished {
                Some(finished) => write!(f, "{}", millis(finished))?,
                None => f.write_str(NO_END)?,
            }
            if let Some(label) = &run.label {
                write!(f, " {label}")?;
            }
        }
        Ok(())
    }
}

fn parse_run(line: &str) -> Option<OnceRun> {
    let mut words = line.splitn(5, ' ');
    let slot = words.next()?.parse().ok()?;
    let token = words.next()?.parse().ok()?;
    let begun = time(words.next()?)?;
    let finished = match words.next()? {
        NO_END => None,
        end => Some(time(end)?),
    };
    let label = words.next().map(str::to_owned);
    Some(OnceRun { slot, token, label, begun, finished })
}

/// A time, from its milliseconds since 1970.
fn time(millis: &str) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis.parse().ok()?))
}

/// Milliseconds since 1970; zero before that.
fn millis(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

fn foreign() -> Error {
    Error::new(
        ErrorKind::WrongType,
        "the note beside the lock is not a record of slots; lockkit did not change it; use another \
         name, or replace the note by an empty one",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::FencingToken;

    fn run(slot: u64, finished: Option<u64>, label: Option<&str>) -> OnceRun {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        OnceRun {
            slot,
            token: FencingToken::new(slot + 100),
            label: label.map(str::to_owned),
            begun: at(1_000),
            finished: finished.map(at),
        }
    }

    fn answer(record: &Record, slot: u64) -> Option<OnceOutcome<(), ()>> {
        record.settled(slot)
    }

    /// Catches a record that loses a label's blanks, or that mixes up the two runs.
    #[test]
    fn a_record_is_read_as_it_was_written() {
        let finished = run(7, Some(1_001), Some(" host  a"));
        let begun = run(u64::MAX - 100, None, None);
        for record in [
            Record::default(),
            Record { finished: Some(finished.clone()), begun: None },
            Record { finished: None, begun: Some(begun.clone()) },
            Record { finished: Some(finished), begun: Some(begun) },
        ] {
            assert_eq!(Record::parse(&record.to_string()).unwrap(), record);
        }
        assert_eq!(Record::parse("").unwrap(), Record::default());
    }

    /// Another version of lockkit reads this text.
    #[test]
    fn a_record_has_the_format_1() {
        let finished = Some(run(7, Some(1_001), Some("a")));
        let record = Record { finished, begun: Some(run(9, None, Some("b c"))) };
        let text = "lockkit once 1\n7 107 1000000 1001000 a\n9 109 1000000 - b c";
        assert_eq!(record.to_string(), text);
    }

    #[test]
    fn c13_a_foreign_or_newer_note_is_refused() {
        for (text, kind) in [
            ("done", ErrorKind::WrongType),
            ("{\"v\":1}", ErrorKind::WrongType),
            ("lockkit once 1\n7 107 1000000", ErrorKind::WrongType),
            ("lockkit once 1\n-7 107 1000000 - a", ErrorKind::WrongType),
            ("lockkit once 1\n7 107 1000000 soon a", ErrorKind::WrongType),
            ("lockkit once 2\nanything", ErrorKind::NewerFormat),
        ] {
            assert_eq!(Record::parse(text).unwrap_err().kind(), kind, "{text:?}");
        }
    }

    /// Catches a record that answers for an open slot, or that lets slots go back.
    #[test]
    fn slots_only_go_forward() {
        let mut record = Record::default();
        assert!(answer(&record, 0).is_none());
        assert_eq!(record.begin(run(5, None, None)), None);
        assert!(answer(&record, 5).is_none() && answer(&record, 6).is_none());
        assert!(matches!(answer(&record, 4), Some(OnceOutcome::Passed(by)) if by.slot == 5));
        record.finish(Duration::from_secs(3));
        assert!(matches!(
            answer(&record, 5),
            Some(OnceOutcome::Done(by)) if by.finished == run(5, Some(1_003), None).finished
        ));
        assert!(matches!(answer(&record, 4), Some(OnceOutcome::Passed(by)) if by.slot == 5));
        assert_eq!(record.begin(run(8, None, None)), None);
        assert!(matches!(answer(&record, 5), Some(OnceOutcome::Done(_))));
        assert!(matches!(answer(&record, 7), Some(OnceOutcome::Passed(by)) if by.slot == 8));
        assert_eq!(record.begin(run(9, None, None)), Some(run(8, None, None)));
    }
}
