//! Waits for something that must happen.

use std::{
    env, thread,
    time::{Duration, Instant},
};

const SLACK_VARIABLE: &str = "LOCKKIT_TEST_SLACK";
/// A server may stall for seconds.
const DEFAULT_SLACK: Duration = Duration::from_secs(6);

/// Asks until there is an answer.
///
/// # Panics
/// There is no answer within `patience`.
pub fn until<T>(patience: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < patience, "not within {patience:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// How much later than promised something may happen on a busy machine: `LOCKKIT_TEST_SLACK`, as
/// the conformance suite reads it. A safety promise gets no slack.
///
/// # Panics
/// The variable is neither like `500ms` nor like `3x`.
#[must_use]
pub fn slack() -> Duration {
    let Ok(text) = env::var(SLACK_VARIABLE) else { return DEFAULT_SLACK };
    let parsed = match text.strip_suffix('x') {
        Some(factor) => factor.parse().ok().map(|factor| DEFAULT_SLACK.mul_f64(factor)),
        None => text.strip_suffix("ms").unwrap_or(&text).parse().ok().map(Duration::from_millis),
    };
    parsed.unwrap_or_else(|| panic!("{SLACK_VARIABLE} is {text:?}, give 500ms or 3x"))
}
