//! Faults of the servers.

use std::{
    error::Error as StdError,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{task::spawn_blocking, time::sleep};

use super::{
    Notes, Schedule,
    plan::{Strike, What},
};
use crate::{
    error::{Error, Result},
    site::{BoxError, Site},
};

/// A site. Its calls run on threads that may block.
#[derive(Clone, Debug)]
pub(crate) struct Hands(Arc<Mutex<Box<dyn Site>>>);

impl Hands {
    pub(crate) fn new(site: Box<dyn Site>) -> Self {
        Self(Arc::new(Mutex::new(site)))
    }

    /// Does the work on a thread that may block.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce(&mut dyn Site) -> Result<T, BoxError> + Send + 'static,
    ) -> Result<T> {
        let site = Arc::clone(&self.0);
        let done = spawn_blocking(move || {
            let mut site = site.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut **site)
        });
        let done = done.await.map_err(|panic| Error::of(what, panic))?;
        done.map_err(|error| Error::new(format!("{what}: {}", whole(&*error))))
    }
}

/// The text of an error and of all its sources, because the error of a site may name only its
/// subject.
fn whole(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(cause) = behind {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        behind = cause.source();
    }
    text
}

/// Causes the faults in their order.
pub(crate) async fn hurt_servers(
    hands: &Hands,
    strikes: &[Strike],
    schedule: Schedule,
    notes: &Notes,
) -> Result<()> {
    for strike in strikes {
        if !schedule.reaches(strike.at, strike.lasts).await {
            notes.skips(strike.what.kind());
            continue;
        }
        let What::Server(fault) = &strike.what else {
            return Err(Error::new(
                "the plan has a fault of the processes among the faults of the servers",
            ));
        };
        // This records the fault before its start, because its effects may show before the call
        // returns.
        let number = notes.strikes(fault.kind, "the servers".to_owned(), None, fault.weakens);
        let fault = fault.clone();
        let chance = strike.chance;
        let what = format!("could not cause the fault {}", fault.kind);
        hands.work(&what, move |site| site.strike(&fault, chance)).await?;
        sleep(strike.lasts).await;
        let what = format!("the servers did not recover after the fault {}", strike.what.kind());
        hands.work(&what, |site| site.heal()).await?;
        notes.heals(number);
    }
    schedule.ends().await;
    Ok(())
}
