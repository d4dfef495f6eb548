//! The lines that runners append to one file.

use std::{
    fmt,
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
};

use libtest_mimic::Failed;

/// The last bytes of the file, which have several whole lines.
const TAIL: u64 = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The work begins.
    Begins,
    /// The work ends.
    Ends,
    /// lockkit said that the slot is finished.
    Recorded,
}

/// One event of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) event: Event,
    /// The number of the runner.
    pub(super) runner: usize,
    pub(super) slot: u64,
    pub(super) token: u64,
    /// The token of an earlier run of the same slot that lockkit announced; zero if there is none.
    pub(super) earlier: u64,
}

impl Line {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let event = match words.next()? {
            "begins" => Event::Begins,
            "ends" => Event::Ends,
            "recorded" => Event::Recorded,
            _ => return None,
        };
        let runner = words.next()?.parse().ok()?;
        let slot = words.next()?.parse().ok()?;
        let token = words.next()?.parse().ok()?;
        let earlier = words.next()?.parse().ok()?;
        words.next().is_none().then_some(Self { event, runner, slot, token, earlier })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = match self.event {
            Event::Begins => "begins",
            Event::Ends => "ends",
            Event::Recorded => "recorded",
        };
        write!(f, "{event} {} {} {} {}", self.runner, self.slot, self.token, self.earlier)
    }
}

/// All lines, in the order in which they were written.
pub(super) fn read(file: &Path) -> Result<Vec<Line>, Failed> {
    let text = fs::read_to_string(file)?;
    let line = |line| Line::parse(line).ok_or_else(|| format!("no line of a runner: {line:?}"));
    Ok(text.lines().map(line).collect::<Result<_, _>>()?)
}

/// The beginning that was written last.
pub(super) fn last_beginning(file: &Path) -> Result<Option<Line>, Failed> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let mut lines = text.lines().rev().filter_map(Line::parse);
    Ok(lines.find(|line| line.event == Event::Begins))
}
