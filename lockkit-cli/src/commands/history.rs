//! Runs `lockkit history`.

use std::time::Duration;

use lockkit::{Kind, LockName};
use serde_json::{Value, json};

use crate::{
    cli::{Format, LookArguments, OutputArguments},
    error::{Error, Result},
    exit::Exit,
    journal::{Journal, Run, has_history},
    output,
    store::Store,
    table::{Table, brief, moment},
    view::{LockView, kinds, look},
};

pub(crate) async fn history(
    arguments: &LookArguments,
    store: &Store,
    output: &OutputArguments,
) -> Result<Exit> {
    if !store.locker.capabilities().notes {
        let name = store.locker.descriptor().name;
        return Err(Error::new(format!(
            "a {name} store keeps no history, because it does not support notes"
        )));
    }
    if let Some(kind) = arguments.kind.map(Kind::from)
        && !has_history(kind)
    {
        return Err(Error::new(format!(
            "lockkit keeps no history of a {kind}, only of mutexes and elections"
        )));
    }
    let mut known = false;
    for view in look(store, arguments).await? {
        let runs = runs(store, &view.full).await?;
        known |= !runs.is_empty();
        match output.format {
            Format::Json => lines(&view, &runs).iter().try_for_each(output::json)?,
            Format::Text => print(&view, &runs)?,
        }
    }
    if !known && output.format == Format::Text && !output.quiet {
        output::aside(format_args!("lockkit: no run under {:?} is recorded", arguments.name));
    }
    Ok(Exit::Done)
}

/// The runs under a lock, the newest last.
pub(crate) async fn runs(store: &Store, name: &LockName) -> Result<Vec<Run>> {
    if !has_history(name.kind()) || !kinds(&store.locker).contains(&name.kind()) {
        return Ok(Vec::new());
    }
    let journal = Journal::read(&store.locker, name).await?;
    Ok(journal.map(|journal| journal.record.runs().to_vec()).unwrap_or_default())
}

/// How the run ended, or whether it still runs. A run without an end did not finish if its grant no
/// longer holds the lock.
fn outcome(run: &Run, view: &LockView) -> String {
    let goes_on = || view.holders.iter().any(|holder| holder.token == Some(run.token));
    match &run.outcome {
        Some(outcome) => outcome.clone(),
        None if goes_on() => "running".to_owned(),
        None => "did not finish".to_owned(),
    }
}

/// One JSON object for each run.
pub(crate) fn lines(view: &LockView, runs: &[Run]) -> Vec<Value> {
    let line = |run: &Run| {
        json!({
            "name": view.name, "kind": view.kind, "token": run.token, "host": run.host, "pid": run.pid,
            "command": run.command, "slot": run.slot, "started_ms": run.started, "ended_ms": run.ended,
            "outcome": outcome(run, view),
        })
    };
    runs.iter().map(line).collect()
}

/// Prints a table, with the newest run last.
pub(crate) fn print(view: &LockView, runs: &[Run]) -> Result<()> {
    let mut table = Table::new([
        "KIND", "STARTED", "TOOK", "OUTCOME", "SLOT", "HOST", "PID", "COMMAND", "TOKEN",
    ]);
    for run in runs {
        let took = run.ended.map(|ended| Duration::from_millis(ended.saturating_sub(run.started)));
        table.row([
            view.kind.to_owned(),
            moment(run.started),
            took.map(brief).unwrap_or_default(),
            outcome(run, view),
            run.slot.clone().unwrap_or_default(),
            run.host.clone(),
            run.pid.to_string(),
            run.command.clone(),
            run.token.to_string(),
        ]);
    }
    table.print()
}
