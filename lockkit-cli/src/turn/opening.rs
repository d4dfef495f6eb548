//! Opens a store that may be unreachable for a moment, for example while it restarts.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::{
    cli::WaitArguments,
    error::{Error, Result},
    reporter::Reporter,
    status::millis,
    store::{Address, Store},
};

/// The first pause. Each pause is twice as long as the one before.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_millis(400);
/// lockkit reports nothing about a shorter outage.
const SILENT: Duration = Duration::from_millis(300);

/// A store that answers has answered within this time. Even a shorter wait for the lock allows it.
const CONNECTING: Duration = Duration::from_secs(1);

/// A store, and how much of the wait's bound its connection took.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) store: Store,
    pub(super) spent: Duration,
}

/// Connects, and tries again for as long as `wait` allows while the store is unreachable.
/// `connect_timeout` of the URL bounds each attempt, and `--wait` bounds all of them. Without
/// `--wait`, nothing else cuts the first attempt short.
///
/// # Errors
/// The error that remains. An error that does not pass by itself is returned at once.
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
                format!("could not reach the store for {}", humantime::format_duration(patience));
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
        reporter.say(&format!(
            "could not reach the store: {error}; lockkit tries again for {patience}"
        ));
    }
}
