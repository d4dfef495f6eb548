//! `lockkit doctor`

mod look;
mod probe;

use lockkit::spi::{Finding, Grade};
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
    // What it is worth without the store's own word, is told all the same.
    let mut findings = store.locker.diagnose().await.unwrap_or_else(|error| {
        let advice = "the settings that locks depend on could not be read";
        vec![Finding::new(Grade::Unknown, "settings", error.to_string()).with_advice(advice)]
    });
    let exceptions = look::exceptions(store.locker.descriptor(), &findings);
    findings.extend(exceptions);
    findings.push(look::health(&store.locker).await);
    findings.extend(look::clock(&store.locker).await);
    findings.extend(look::rate(&store.locker).await);
    findings.extend(probe::probe(store).await);
    // The worst first.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
    match output.format {
        Format::Json => findings.iter().try_for_each(line)?,
        Format::Text => print(store, &findings)?,
    }
    let worst = findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Unknown);
    Ok(if worst >= Grade::Weak { Exit::Findings } else { Exit::Done })
}

fn line(finding: &Finding) -> Result<()> {
    let Finding { grade, what, found, advice, .. } = finding;
    output::json(
        &json!({ "grade": grade.as_str(), "what": what, "found": found, "advice": advice }),
    )
}

fn print(store: &Store, findings: &[Finding]) -> Result<()> {
    let mut table = Table::new(["GRADE", "WHAT", "FOUND"]);
    for finding in findings {
        table.row([finding.grade.as_str().to_owned(), finding.what.clone(), finding.found.clone()]);
    }
    let colors = output::has_colors();
    table.print_with(|grade, line| {
        let color = findings.iter().find(|finding| finding.grade.as_str() == grade).map(color);
        match color.filter(|_| colors) {
            Some(color) => line.replacen(grade, &format!("\x1b[{color}m{grade}\x1b[0m"), 1),
            None => line,
        }
    })?;
    for Finding { grade, what, advice, .. } in findings {
        if !advice.is_empty() {
            output::line(format_args!("\n{grade}: {}\n  {}", plain(what), plain(advice)))?;
        }
    }
    let bad = findings.iter().filter(|finding| finding.grade >= Grade::Weak).count();
    let name = store.locker.descriptor().name;
    output::line(match bad {
        0 => format!("\nThe locks of this {name} store are worth what they promise."),
        1 => format!("\nOne thing weakens the locks of this {name} store."),
        bad => format!("\n{bad} things weaken the locks of this {name} store."),
    })
}

/// The parameter of the terminal's sequence for a color.
fn color(finding: &Finding) -> u8 {
    const GREEN: u8 = 32;
    const RED: u8 = 31;
    const YELLOW: u8 = 33;
    match finding.grade {
        Grade::Good => GREEN,
        grade if grade >= Grade::Weak => RED,
        _ => YELLOW,
    }
}
