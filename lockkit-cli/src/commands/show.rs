//! Runs `lockkit show`.

use serde_json::json;

use super::history::{self, runs};
use crate::{
    cli::{Format, OutputArguments, ShowArguments},
    error::Result,
    exit::Exit,
    output,
    store::Store,
    view::{lock_table, look},
};

/// How many runs `lockkit show` prints; `lockkit history` shows all.
const LAST_RUNS: usize = 5;

pub(crate) async fn show(
    arguments: &ShowArguments,
    store: &Store,
    output: &OutputArguments,
) -> Result<Exit> {
    let ShowArguments { look: arguments, exit_code } = arguments;
    let mut known = false;
    let mut held = false;
    for view in look(store, arguments).await? {
        held |= !view.holders.is_empty();
        let runs = runs(store, &view.full).await?;
        let last = runs.split_at(runs.len().saturating_sub(LAST_RUNS)).1;
        if !view.is_used() && runs.is_empty() && arguments.kind.is_none() {
            continue;
        }
        if output.format == Format::Json {
            let last = history::lines(&view, last);
            output::json(&json!({
                "name": view.name, "kind": view.kind, "holders": view.holders, "waiting": view.waiting, "runs": last,
            }))?;
            known = true;
            continue;
        }
        if known {
            output::line("")?;
        }
        known = true;
        if view.is_used() {
            let mut table = lock_table();
            view.rows(&mut table);
            table.print()?;
        } else {
            output::line(format_args!("{} is free.", view.full))?;
        }
        if !last.is_empty() {
            output::line("")?;
            history::print(&view, last)?;
        }
    }
    if !known && output.format == Format::Text {
        output::line(format_args!(
            "No client holds {:?} or waits for it, and no run of it is recorded.",
            arguments.name
        ))?;
    }
    Ok(if *exit_code && !held { Exit::Free } else { Exit::Done })
}
