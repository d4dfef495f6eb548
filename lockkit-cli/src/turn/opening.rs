//! Opens a store that may be away for a moment, as one is that restarts.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::{
    cli::WaitArguments,
    error::{Error, Result},
    reporter::Reporter,
    status::millis,
    store::{Address, Store},
};

/// The first pause; each is twice the one before.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_millis(400);
/// A store that is back at once is not worth a word.
const SILENT: Duration = Duration::from_millis(300);

/// A store that answers has answered by then, however short the wait for the lock is to be.
const CONNECTING: Duration = Duration::from_secs(1);

/// A store, and what the way to it took off the bound of the wait.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) store: Store,
    pub(super) spent: Duration,
}

/// Connects, and does so again for as long as `wait` says while the store is away.
/// `connect_timeout` of the URL bounds each attempt, and `--wait` all of them; without `--wait`,
/// nothing else cuts the first attempt short.
///
/// # Errors
/// What stays; at once, what does not pass by itself.
///
/// # Cancel safety
/// Cancel safe: a connection that was half made is closed.
pub(super) async fn open(
    address: &Address,
    wait: Option<&WaitArguments>,
    ttl: Option<Duration>,
    reporter: Reporter,
) -> Result<Opened> {
    let began = Instant::now();
    let bound = wait.and_then(|wait| wait.wait).filter(|bound| !bound.is_zero());
    let first = match bound {
        Some(bound) => timeout(bound.max(CONNECTING), address.connect()).await,
        None => Ok(address.connect().await),
    };
    let mut error = match first {
        Ok(Ok(store)) => return Ok(Opened { store, spent: Duration::ZERO }),
        Ok(Err(error)) => error,
        Err(_) => {
            let bound = humantime::format_duration(bound.unwrap_or_default().max(CONNECTING));
            return Err(Error::new(format!(
                "the store did not answer within {bound}, which --wait allows"
            )));
        }
    };
    let patience = match wait {
        Some(wait) if wait.nonblock => Duration::ZERO,
        Some(WaitArguments { wait: Some(bound), .. }) => *bound,
        _ => address.patience(ttl),
    };
    let left = || patience.saturating_sub(began.elapsed());
    if !error.is_temporary() || left().is_zero() {
        return Err(error.into());
    }
    let mut pause = SHORTEST;
    let mut told = false;
    while error.is_temporary() {
        sleep(pause.mul_f64(rand::random_range(0.75..1.25)).min(left())).await;
        pause = (pause * 2).min(LONGEST);
        if began.elapsed() >= SILENT && !told {
            told = true;
            tell(reporter, &error, began.elapsed(), patience);
        }
        match timeout(left(), address.connect()).await {
            Ok(Ok(store)) => return Ok(Opened { store, spent: began.elapsed() }),
            Ok(Err(next)) => error = next,
            Err(_) => {}
        }
        if left().is_zero() {
            let context =
                format!("the store stayed away for {}", humantime::format_duration(patience));
            return Err(Error::of(context, error));
        }
    }
    Err(error.into())
}

fn tell(reporter: Reporter, error: &lockkit::Error, waited: Duration, patience: Duration) {
    if reporter.quiet {
        return;
    }
    if reporter.json {
        let left = patience.saturating_sub(waited);
        reporter.event(
            "store_away",
            [
                ("error", error.to_string().into()),
                ("waited_ms", millis(waited).into()),
                ("left_ms", millis(left).into()),
            ],
        );
    } else {
        let patience = humantime::format_duration(patience);
        reporter.say(&format!("the store is away: {error}; trying again for {patience}"));
    }
}
