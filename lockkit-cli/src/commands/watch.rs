//! Runs `lockkit watch`.

use std::time::{Duration, SystemTime};

use serde_json::json;
use tokio::time::sleep;

use crate::{
    cli::{Format, OutputArguments, WatchArguments},
    error::{Error, Result},
    exit::Exit,
    journal::unix_ms,
    output,
    store::Store,
    table::{brief, moment},
    view::{HolderView, LockView, look},
};

const PAUSE: Duration = Duration::from_millis(500);

/// The message about a store that does not answer. It may come back, or its operator stops
/// watching.
const AWAY: &str = "lockkit: could not ask the store; lockkit tries again";

pub(crate) async fn watch(
    arguments: &WatchArguments,
    store: &Store,
    output: &OutputArguments,
) -> Result<Exit> {
    // An error of the first look ends the command: a wrong password, for example, does not get
    // better.
    let mut last = look(store, &arguments.look).await?;
    let mut away = false;
    // A kind in which the name is not used gets no line, unless the user asks for that kind.
    let shown = |view: &&LockView| arguments.look.kind.is_some() || !view.holders.is_empty();
    last.iter().filter(shown).try_for_each(|view| tell(view, None, output))?;
    if !output.quiet && last.iter().filter(shown).count() == 0 {
        output::aside(format_args!("lockkit: no client holds {:?}", arguments.look.name));
    }
    while !(arguments.until_free && last.iter().all(|view| view.holders.is_empty())) {
        sleep(PAUSE).await;
        let views = match look(store, &arguments.look).await {
            Ok(views) => views,
            Err(error) => {
                if !std::mem::replace(&mut away, true) {
                    output::aside(format_args!("{AWAY}: {error}"));
                }
                continue;
            }
        };
        away = false;
        for (view, before) in views.iter().zip(&last) {
            if grants(view) != grants(before) {
                tell(view, Some(before), output)?;
            }
        }
        last = views;
    }
    Ok(Exit::Done)
}

/// The fields whose difference is a change. Leases and ages differ at each look.
fn grants(view: &LockView) -> Vec<(Option<u64>, Option<&str>, Option<&str>)> {
    let grants = view.holders.iter().map(|holder| {
        let HolderView { token, owner, label, .. } = holder;
        (*token, owner.as_deref(), label.as_deref())
    });
    let mut grants: Vec<_> = grants.collect();
    grants.sort_unstable();
    grants
}

fn tell(view: &LockView, before: Option<&LockView>, output: &OutputArguments) -> Result<()> {
    let now = unix_ms(SystemTime::now());
    if output.format == Format::Json {
        let mut line = serde_json::to_value(view)
            .map_err(|error| Error::of("could not write a lock as JSON", error))?;
        if let Some(fields) = line.as_object_mut() {
            fields.insert("at_ms".to_owned(), json!(now));
        }
        return output::json(&line);
    }
    let waits = match view.waiting {
        None | Some(0) => String::new(),
        Some(waiting) => format!(", {waiting} waiting"),
    };
    let holders = view.holders.iter().map(|holder| {
        let token = holder.token.map(|token| format!(" with token {token}")).unwrap_or_default();
        let since = holder.held_ms.filter(|_| before.is_none());
        let since = since
            .map(|ms| format!(" for {}", brief(Duration::from_millis(ms))))
            .unwrap_or_default();
        format!("held{since} by {}{token}", holder.who())
    });
    let state = match holders.collect::<Vec<_>>() {
        holders if holders.is_empty() => "free".to_owned(),
        holders => holders.join("; "),
    };
    output::line(format_args!("{} {} {}: {state}{waits}", moment(now), view.kind, view.name))
}
