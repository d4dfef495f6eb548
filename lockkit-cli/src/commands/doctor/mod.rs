//! Runs `lockkit doctor`.

mod look;
mod probe;

use lockkit::spi::{Diagnostic, Severity};
use serde_json::json;

use crate::{
    cli::{Format, OutputArguments},
    error::Result,
    exit::Exit,
    output::{self, plain},
    store::Store,
    table::Table,
};

pub(crate) async fn doctor(store: &Store, output: &OutputArguments) -> Result<Exit> {
    // If the store does not reveal its settings, doctor still reports the rest.
    let mut diagnostics = store.locker.diagnose().await.unwrap_or_else(|error| {
        let advice = "the settings that locks depend on could not be read";
        vec![Diagnostic::new(Severity::Unknown, "settings", error.to_string()).with_advice(advice)]
    });
    let exceptions = look::exceptions(store.locker.descriptor(), &diagnostics);
    diagnostics.extend(exceptions);
    diagnostics.push(look::health(&store.locker).await);
    diagnostics.extend(look::clock(&store.locker).await);
    diagnostics.extend(look::rate(&store.locker).await);
    diagnostics.extend(probe::probe(store).await);
    // The worst diagnostic comes first.
    diagnostics.sort_by_key(|diagnostic| std::cmp::Reverse(diagnostic.severity));
    match output.format {
        Format::Json => diagnostics.iter().try_for_each(line)?,
        Format::Text => print(store, &diagnostics)?,
    }
    let worst =
        diagnostics.iter().map(|diagnostic| diagnostic.severity).max().unwrap_or(Severity::Unknown);
    Ok(if worst >= Severity::Weak { Exit::Diagnostics } else { Exit::Done })
}

fn line(diagnostic: &Diagnostic) -> Result<()> {
    let Diagnostic { severity, what, found, advice, .. } = diagnostic;
    output::json(
        &json!({ "severity": severity.as_str(), "what": what, "found": found, "advice": advice }),
    )
}

fn print(store: &Store, diagnostics: &[Diagnostic]) -> Result<()> {
    let mut table = Table::new(["GRADE", "WHAT", "FOUND"]);
    for diagnostic in diagnostics {
        table.row([
            diagnostic.severity.as_str().to_owned(),
            diagnostic.what.clone(),
            diagnostic.found.clone(),
        ]);
    }
    let colors = output::has_colors();
    table.print_with(|severity, line| {
        let color = diagnostics
            .iter()
            .find(|diagnostic| diagnostic.severity.as_str() == severity)
            .map(color);
        match color.filter(|_| colors) {
            Some(color) => line.replacen(severity, &format!("\x1b[{color}m{severity}\x1b[0m"), 1),
            None => line,
        }
    })?;
    for Diagnostic { severity, what, advice, .. } in diagnostics {
        if !advice.is_empty() {
            output::line(format_args!("\n{severity}: {}\n  {}", plain(what), plain(advice)))?;
        }
    }
    let bad = diagnostics.iter().filter(|diagnostic| diagnostic.severity >= Severity::Weak).count();
    let name = store.locker.descriptor().name;
    output::line(match bad {
        0 => format!("\nThe locks of this {name} store keep their promises."),
        1 => format!("\nOne thing weakens the locks of this {name} store."),
        bad => format!("\n{bad} things weaken the locks of this {name} store."),
    })
}

/// The number of a color in the terminal's escape sequence.
fn color(diagnostic: &Diagnostic) -> u8 {
    const GREEN: u8 = 32;
    const RED: u8 = 31;
    const YELLOW: u8 = 33;
    match diagnostic.severity {
        Severity::Good => GREEN,
        severity if severity >= Severity::Weak => RED,
        _ => YELLOW,
    }
}
