//! Waits for a lock and reports who holds it.

use std::{
    future::Future,
    io::{Write as _, stderr},
    pin::pin,
    time::Duration,
};

use lockkit::{ErrorKind, LockGuard, LockName, Locker, spi::Inspection};
use rustix::{process::Signal, termios::tcgetwinsize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    error::Result,
    group::{is_foreground, own_group},
    reporter::Reporter,
    signals::Signals,
    status::millis,
};

/// If the wait is shorter than this, lockkit reports nothing.
const SILENT: Duration = Duration::from_millis(300);
/// The pause between two reports where lockkit rewrites the line.
const LIVE: Duration = Duration::from_secs(1);
/// The pause between two reports where each line stays, as in a log.
const LOGGED: Duration = Duration::from_secs(60);
/// The longest time for a last look at a busy lock.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// The lock that lockkit waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) locker: &'a Locker,
    pub(crate) name: &'a LockName,
    /// The name as the user typed it.
    pub(crate) short: &'a str,
    /// How long lockkit waits at most.
    pub(crate) bound: Option<Duration>,
    pub(crate) reporter: Reporter,
}

/// How the wait ended.
#[derive(Debug)]
pub(crate) enum Waited {
    Held(LockGuard),
    /// Another owner has the lock. The text describes it, if it is known.
    Busy(String),
    /// A signal came that ends a program.
    Signal(Signal),
}

/// Waits for `locking`, which yields nothing if the lock was not free in time.
///
/// # Errors
/// The error of `locking`.
///
/// # Cancel safety
/// As cancel safe as `locking`.
pub(crate) async fn wait(
    wanted: Wanted<'_>,
    signals: &Signals,
    locking: impl Future<Output = lockkit::Result<Option<LockGuard>>>,
) -> Result<Waited> {
    let locked = {
        let locking = pin!(locking);
        tokio::select! {
            biased;
            locked = locking => locked,
            signal = signals.end() => return Ok(Waited::Signal(signal)),
            () = show(wanted) => return Ok(Waited::Busy(String::new())), // never
        }
    };
    match locked {
        Ok(Some(guard)) => return Ok(Waited::Held(guard)),
        Ok(None) => {}
        Err(error) if error.kind() == ErrorKind::Timeout => {}
        Err(error) => return Err(error.into()),
    }
    Ok(tokio::select! {
        who = holders(wanted) => Waited::Busy(who),
        signal = signals.end() => Waited::Signal(signal),
    })
}

async fn holders(wanted: Wanted<'_>) -> String {
    match timeout(LAST_LOOK, wanted.locker.inspect(wanted.name)).await {
        Ok(Ok(inspection)) => describe(&inspection),
        _ => "the store did not say by whom".to_owned(),
    }
}

/// Reports again and again who holds the lock.
async fn show(wanted: Wanted<'_>) {
    if wanted.reporter.quiet {
        return std::future::pending().await;
    }
    let begun = Instant::now();
    // A line that is rewritten would disturb the foreground program, so lockkit does it only in the
    // foreground.
    let live = !wanted.reporter.json && is_foreground(stderr(), own_group());
    let mut line = Line { live, shown: false };
    sleep(SILENT).await;
    loop {
        // The store's errors are ignored here: the wait itself reports them in the end.
        let inspection = wanted.locker.inspect(wanted.name).await.ok();
        if wanted.reporter.json {
            event(wanted, begun.elapsed(), inspection.as_ref());
        } else {
            line.show(&text(wanted, begun.elapsed(), inspection.as_ref()));
        }
        sleep(if live { LIVE } else { LOGGED }).await;
    }
}

fn text(wanted: Wanted<'_>, waited: Duration, inspection: Option<&Inspection>) -> String {
    let who = inspection.map_or_else(|| "the store does not answer".to_owned(), describe);
    let queue = inspection.and_then(|inspection| inspection.waiters).filter(|waiters| *waiters > 1);
    let queue = queue.map(|waiters| format!("; {waiters} wait")).unwrap_or_default();
    let bound = wanted.bound.map(|bound| bound.saturating_sub(waited));
    let bound = bound.map(|left| format!("; gives up in {}", seconds(left))).unwrap_or_default();
    format!("lockkit: waiting for {:?} for {}: {who}{queue}{bound}", wanted.short, seconds(waited))
}

/// Says who holds the lock, since when, and with which token.
pub(crate) fn describe(inspection: &Inspection) -> String {
    let Some(first) = inspection.holders.first() else {
        return "no client holds it now".to_owned();
    };
    let label = first.label.clone().unwrap_or_else(|| "somebody".to_owned());
    let label: String = label.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let since = first.age.map(|age| format!(", since {}", seconds(age))).unwrap_or_default();
    let token = first.token.map(|token| format!(", token {token}")).unwrap_or_default();
    let more = match inspection.holders.len() {
        0 | 1 => String::new(),
        holders => format!(", and {} more", holders - 1),
    };
    format!("held by {label}{since}{token}{more}")
}

fn event(wanted: Wanted<'_>, waited: Duration, inspection: Option<&Inspection>) {
    let holders = inspection.map(|inspection| inspection.holders.as_slice()).unwrap_or_default();
    let holders: Vec<Value> = holders
        .iter()
        .map(|holder| {
            let token = holder.token.map(|token| token.get());
            let age = holder.age.map(millis);
            json!({ "label": holder.label, "token": token, "held_ms": age })
        })
        .collect();
    let left = wanted.bound.map(|bound| millis(bound.saturating_sub(waited)));
    wanted.reporter.event(
        "waiting",
        [
            ("name", wanted.short.into()),
            ("waited_ms", millis(waited).into()),
            ("left_ms", left.into()),
            ("holders", holders.into()),
            ("waiters", inspection.and_then(|inspection| inspection.waiters).into()),
        ],
    );
}

fn seconds(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}

/// A line that is rewritten on a terminal, and erased at the end.
struct Line {
    live: bool,
    shown: bool,
}

impl Line {
    fn show(&mut self, text: &str) {
        let mut stderr = stderr();
        let _ = if self.live {
            let columns = tcgetwinsize(&stderr).map_or(80, |size| usize::from(size.ws_col).max(20));
            let text: String = text.chars().take(columns - 1).collect();
            stderr.write_all(format!("\r{text}\x1b[K").as_bytes())
        } else {
            stderr.write_all(format!("{text}\n").as_bytes())
        };
        self.shown = true;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.live && self.shown {
            let _ = stderr().write_all(b"\r\x1b[K");
        }
    }
}
