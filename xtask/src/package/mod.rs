//! Checks each published crate: its metadata, its table of features, and the files of its package.

mod features;
mod files;
mod metadata;

use anyhow::{Result, bail};

use crate::{
    members::{Member, members},
    run::{cargo, step},
};

/// Packs every published crate, in the order of their dependencies, and checks each package.
///
/// # Errors
/// A package can't be made, lacks a file or has a forbidden file. With `verify`, a package does not
/// build from the registry's files alone.
pub(crate) fn run(verify: bool) -> Result<()> {
    let members = members()?;
    let published: Vec<_> = members.iter().filter(|member| member.is_published).collect();
    let mut faults = Vec::new();
    for member in &published {
        faults.extend(metadata::faults(member));
        faults.extend(features::faults(member)?);
    }
    fail_on(&faults)?;
    // This also checks uncommitted changes.
    let mut command = cargo(&["package", "--locked", "--quiet", "--allow-dirty"]);
    if !verify {
        // Otherwise cargo would ask the registry for each package. The earlier lints have fetched
        // everything.
        command.args(["--no-verify", "--offline"]);
    }
    command.args(published.iter().flat_map(|member| ["-p", &member.name]));
    step("packages", &mut command)?;
    for member in &published {
        faults.extend(files::faults(member)?);
    }
    fail_on(&faults)?;
    println!("    {} packages: metadata, features and files are ok", published.len());
    Ok(())
}

fn fail_on(faults: &[String]) -> Result<()> {
    if faults.is_empty() {
        Ok(())
    } else {
        bail!("the packages have faults:\n  {}", faults.join("\n  "))
    }
}

/// A line about one crate.
fn fault(member: &Member, what: &str) -> String {
    format!("{}: {what}", member.name)
}
