//! Runs `lockkit unlock`.

mod target;

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use lockkit::{ErrorKind, FencingToken, LockOptions, MAX_REASON_BYTES, ReleaseRequest, Released};
use serde_json::json;
use tokio::time::timeout;

use self::target::{Found, Target};
use crate::{
    cli::{Format, OutputArguments, UnlockArguments},
    error::{Error, Result},
    exit::Exit,
    journal::host,
    label::clean,
    output,
    signals::Signals,
    store::Store,
    view::{HolderView, look},
};

const PAUSE: Duration = Duration::from_millis(100);
/// How long the cleanup after Ctrl-C may take, because a user waits for it.
const LEAVING: Duration = Duration::from_millis(700);

pub(crate) async fn unlock(
    arguments: &UnlockArguments,
    store: &Store,
    output: &OutputArguments,
) -> Result<Exit> {
    let target = match Target::find(arguments, look(store, &arguments.look).await?)? {
        Found::Target(target) => target,
        Found::Other(text) => {
            output::aside(format_args!("lockkit: {text}; nothing was done"));
            return Ok(Exit::Busy(Exit::BUSY));
        }
        Found::Free => {
            say(output, format_args!("no client holds {:?}", arguments.look.name));
            return Ok(Exit::Done);
        }
    };
    let asked =
        if arguments.now { Vec::new() } else { ask(arguments, store, output, &target).await? };
    let mut failed = Ok(());
    for holder in &target.holders {
        let done = freed(store, &target, holder, &asked)
            .await
            .and_then(|how| tell(&target, holder, how, output));
        // If standard output has no reader, the other grants are still freed.
        failed = failed.and(done);
    }
    failed.map(|()| Exit::Done)
}

/// Asks the holders to stop, and returns the tokens of those that did.
async fn ask(
    arguments: &UnlockArguments,
    store: &Store,
    output: &OutputArguments,
    target: &Target,
) -> Result<Vec<u64>> {
    // lockkit listens for signals before there is an ask that they must take back.
    let signals = Signals::listen()?;
    let patience = arguments.wait;
    let reason = arguments.reason.as_deref().unwrap_or("no reason given");
    let reason = clean(&format!("{reason} (lockkit unlock on {})", host()), MAX_REASON_BYTES);
    let request = tokio::select! {
        request = request(store, target, &reason, patience) => request?,
        error = interrupted(&signals) => {
            // Removes the claim for the request from the queue.
            let _ = timeout(LEAVING, store.locker.shutdown()).await;
            return Err(error);
        }
    };
    say(
        output,
        format_args!(
            "asking {} to stop; lockkit frees the lock by force in {patience:?} (--now: at once)",
            target.who()
        ),
    );
    let gone = {
        let waiting = pin!(wait_for(store, target, patience));
        tokio::select! {
            gone = waiting => gone,
            error = interrupted(&signals) => Err(error),
        }
    };
    // The request ends at once, because lockkit asks for nothing any more.
    let withdrawn = request.withdraw().await;
    let gone = gone?;
    withdrawn?;
    Ok(gone)
}

/// Makes the request. If another operator's request lasts for longer than `patience`, that is an
/// error.
async fn request(
    store: &Store,
    target: &Target,
    reason: &str,
    patience: Duration,
) -> Result<ReleaseRequest> {
    let locker = store.locker.clone().with_defaults(LockOptions::new().with_wait(patience))?;
    let name = &target.name;
    match locker.request_release(name, target.grants, reason).await {
        Err(error) if error.kind() == ErrorKind::Timeout => Err(Error::new(format!(
            "another request has been freeing {name} for {patience:?}; wait until it ends"
        ))),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(Error::new(format!("{error}; free the lock with --now")))
        }
        answer => Ok(answer?),
    }
}

async fn wait_for(store: &Store, target: &Target, patience: Duration) -> Result<Vec<u64>> {
    let since = Instant::now();
    let mut seen = Err(Error::new("lockkit did not ask the store"));
    loop {
        let inspection = store.locker.inspect(&target.name).await;
        seen = match inspection {
            Ok(inspection) => {
                let tokens = inspection
                    .holders
                    .iter()
                    .filter_map(|holder| holder.token.map(FencingToken::get));
                let still: Vec<_> = tokens.collect();
                Ok(target.tokens().filter(|token| !still.contains(token)).collect::<Vec<_>>())
            }
            Err(error) => seen.map_err(|_| Error::from(error)),
        };
        let all = seen.as_ref().is_ok_and(|gone| gone.len() == target.tokens().count());
        if all || since.elapsed() >= patience {
            return seen;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn interrupted(signals: &Signals) -> Error {
    signals.end().await;
    Error::new("interrupted: lockkit withdrew the request, but a holder that saw it stops anyway")
}

/// How a lock was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    GivenBack,
    Forced,
}

async fn freed(store: &Store, target: &Target, holder: &HolderView, gone: &[u64]) -> Result<How> {
    let Some(token) = holder.token else {
        let text = format!(
            "could not free a lock of a program that is not lockkit: {} holds {}, and only that \
             program can release it",
            holder.who(),
            target.name
        );
        return Err(Error::new(text));
    };
    if gone.contains(&token) {
        return Ok(How::GivenBack);
    }
    Ok(match store.locker.force_release(&target.name, FencingToken::new(token)).await? {
        Released::Freed => How::Forced,
        Released::NotHeld => How::GivenBack,
    })
}

fn tell(target: &Target, holder: &HolderView, how: How, output: &OutputArguments) -> Result<()> {
    let token = holder.token.unwrap_or_default();
    match (output.format, how) {
        (Format::Json, _) => output::json(&json!({
            "name": target.short, "kind": target.name.kind().as_str(), "token": token, "label": holder.label,
            "how": match how { How::GivenBack => "given-back", How::Forced => "forced" },
        })),
        (Format::Text, How::GivenBack) => output::line(format_args!(
            "freed {}: {} (token {token}) released it",
            target.name,
            holder.who()
        )),
        (Format::Text, How::Forced) => output::line(format_args!(
            "freed {} by force: {} (token {token}) may still work under it for a moment",
            target.name,
            holder.who()
        )),
    }
}

fn say(output: &OutputArguments, text: impl std::fmt::Display) {
    if !output.quiet {
        output::aside(format_args!("lockkit: {text}"));
    }
}
