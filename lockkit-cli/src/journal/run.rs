//! Describes one run of a command under a lock.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Longer words are cut, so that many runs fit.
const MAX_WORD_BYTES: usize = 64;

/// A run as its host saw it. The clocks of hosts differ.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Run {
    pub(crate) token: u64,
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// The program without its arguments, which may be secret.
    pub(crate) command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slot: Option<String>,
    /// Milliseconds since 1970.
    pub(crate) started: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Run {
    /// A text of the length of the longest outcome.
    pub(super) const LONGEST_OUTCOME: &str = "................................";

    /// A run of this process that begins now.
    pub(crate) fn now(token: u64, command: &str, slot: Option<&str>) -> Self {
        Self {
            token,
            host: cut(&host()),
            pid: std::process::id(),
            command: cut(command),
            slot: slot.map(str::to_owned),
            started: unix_ms(SystemTime::now()),
            ..Self::default()
        }
    }

    pub(super) fn end(&mut self, at: u64, outcome: &str) {
        self.ended = Some(at);
        self.outcome = Some(outcome.chars().take(Self::LONGEST_OUTCOME.len()).collect());
    }
}

/// Milliseconds since 1970; zero before that.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// At most [`MAX_WORD_BYTES`] bytes. Control characters and quotes are replaced, because JSON makes
/// them longer.
fn cut(text: &str) -> String {
    let plain =
        text.chars().map(|c| if c.is_control() || matches!(c, '"' | '\\') { '?' } else { c });
    let mut room = MAX_WORD_BYTES;
    plain
        .take_while(|c| {
            room = room.saturating_sub(c.len_utf8());
            room > 0
        })
        .collect()
}
