//! Waits for an agreement of several servers.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

const POLL: Duration = Duration::from_millis(10);

/// Asks until there is an answer, and returns it. It asks again after an error, because a server
/// may be starting or ending.
pub(super) fn wait_for<T>(
    what: &str,
    timeout: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        let answer = ask();
        if let Ok(Some(found)) = answer {
            return Ok(found);
        }
        if Instant::now() > deadline {
            let context = || format!("{what}: not within {timeout:?}");
            answer.with_context(context)?;
            bail!(context());
        }
        thread::sleep(POLL);
    }
}
