//! Opens a store that may be away for a moment, as one is that restarts.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::{
    cli::WaitArguments,
    error::{Error, Result},
    status::millis,
    store::{Address, Store},
    voice::Voice,
};

/// The first pause; each is twice the one before.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_millis(400);
/// A store that is back at once is not worth a word.
const SILENT: Duration = Duration::from_millis(300);

/// A store, and what the way to it took off the bound of the wait.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) store: Store,
    pub(super) spent: Duration,
}

/// Connects, and does so again for as long as `wait` says while the store is away. The first attempt is never cut short:
/// it has a bound of its own.
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
    voice: Voice,
) -> Result<Opened> {
    let began = Instant::now();
    let mut error = match address.connect().await {
        Ok(store) => return Ok(Opened { store, spent: Duration::ZERO }),
        Err(error) => error,
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
    let (mut pause, mut told) = (SHORTEST, false);
    while error.is_temporary() {
        sleep(pause.mul_f64(rand::random_range(0.75..1.25)).min(left())).await;
        pause = (pause * 2).min(LONGEST);
        if began.elapsed() >= SILENT && !told {
            told = true;
            tell(voice, &error, began.elapsed(), patience);
        }
        match timeout(left(), address.connect()).await {
            Ok(Ok(store)) => return Ok(Opened { store, spent: began.elapsed() }),
            Ok(Err(next)) => error = next,
            Err(_) => {}
        }
        if left().is_zero() {
            let context = format!("the store stayed away for {}", humantime::format_duration(patience));
            return Err(Error::of(context, error));
        }
    }
    Err(error.into())
}

fn tell(voice: Voice, error: &lockkit::Error, waited: Duration, patience: Duration) {
    if voice.quiet {
        return;
    }
    if voice.json {
        let left = patience.saturating_sub(waited);
        voice.event(
            "store_away",
            [
                ("error", error.to_string().into()),
                ("waited_ms", millis(waited).into()),
                ("left_ms", millis(left).into()),
            ],
        );
    } else {
        let patience = humantime::format_duration(patience);
        voice.say(&format!("the store is away: {error}; trying again for {patience}"));
    }
}
