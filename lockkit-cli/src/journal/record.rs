//! Reads and writes the text of a journal.

use lockkit::spi::MAX_NOTE_BYTES;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::run::Run;

/// The longest key of a slot.
pub(crate) const MAX_KEY_BYTES: usize = 255;

/// More runs than these are forgotten, the oldest first. Fewer stay if there is not enough room.
const MAX_RUNS: usize = 32;

const VERSION: u32 = 1;

/// The note's content. Fields of a later version are kept.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Record {
    v: u32,
    #[serde(default)]
    done: Done,
    #[serde(default)]
    runs: Vec<Run>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// The slots that are done.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
struct Done {
    /// The last done slot of a schedule, in seconds since 1970. All slots before it count as done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tick: Option<i64>,
    /// Keys, and the end of each key's time, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<(String, u64)>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Default for Record {
    fn default() -> Self {
        Self { v: VERSION, done: Done::default(), runs: Vec::new(), rest: Map::new() }
    }
}

impl Record {
    /// # Errors
    /// The text is not such a record; the error says why.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let record: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if record.v == VERSION {
            return Ok(record);
        }
        Err(format!("it has version {}, but this program knows only version {VERSION}", record.v))
    }

    /// The text with as many runs as fit; `None` if the last run does not fit.
    pub(super) fn to_text(&self) -> Option<String> {
        let mut record = self.clone();
        record.keep_runs(MAX_RUNS);
        loop {
            let text = serde_json::to_string(&record).ok()?;
            if text.len() <= MAX_NOTE_BYTES {
                return Some(text);
            }
            let fewer = record.runs.len().checked_sub(1).filter(|fewer| *fewer > 0)?;
            record.keep_runs(fewer);
        }
    }

    fn keep_runs(&mut self, most: usize) {
        let surplus = self.runs.len().saturating_sub(most);
        self.runs.drain(..surplus);
    }

    /// The runs, the newest last.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub(crate) fn begin(&mut self, run: Run) {
        self.runs.push(run);
        self.keep_runs(MAX_RUNS);
    }

    /// Records how the run with this token ended; `at` is in milliseconds since 1970.
    pub(crate) fn end(&mut self, token: u64, at: u64, outcome: &str) {
        if let Some(run) = self.runs.iter_mut().rev().find(|run| run.token == token) {
            run.end(at, outcome);
        }
    }

    /// The last run of this slot.
    pub(crate) fn run_of(&self, slot: &str) -> Option<&Run> {
        self.runs.iter().rev().find(|run| run.slot.as_deref() == Some(slot))
    }

    pub(crate) fn is_tick_done(&self, tick: i64) -> bool {
        self.done.tick.is_some_and(|last| tick <= last)
    }

    /// The last done slot of a schedule, in seconds since 1970.
    pub(crate) fn last_tick(&self) -> Option<i64> {
        self.done.tick
    }

    /// Marks a slot as done. The last done slot never becomes an earlier one.
    pub(crate) fn tick_done(&mut self, tick: i64) {
        self.done.tick = self.done.tick.max(Some(tick));
    }

    /// Restores the done slots of `before`.
    pub(crate) fn restore_done(&mut self, before: &Self) {
        self.done = before.done.clone();
    }

    pub(crate) fn is_key_done(&self, key: &str, now: u64) -> bool {
        self.done.keys.iter().any(|(done, until)| done == key && now < *until)
    }

    /// Remembers a key, and forgets the keys whose time is over.
    pub(crate) fn key_done(&mut self, key: &str, now: u64, until: u64) {
        self.done.keys.retain(|(done, until)| done != key && now < *until);
        self.done.keys.push((key.to_owned(), until));
    }

    /// Whether the record can still be written when this run has ended, whatever its outcome.
    pub(crate) fn has_room(&self) -> bool {
        let mut record = self.clone();
        if let Some(run) = record.runs.last_mut() {
            run.end(u64::MAX, Run::LONGEST_OUTCOME);
        }
        record.to_text().is_some()
    }
}
