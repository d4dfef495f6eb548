//! Checks the public interface of each library against `docs/api`, the foreign types in it, and its
//! examples.

mod examples;
mod foreign;
mod listing;

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    members::{Member, members},
    run::root,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Writes the listings again.
    Bless,
    /// Compares, and fails if it can't compare.
    Compare,
    /// Compares, unless this rustdoc writes a format that this program can't read.
    CompareIfPossible,
}

/// Lists the public items of each library, with all features.
///
/// # Errors
/// A listing has changed and `purpose` is not `Purpose::Bless`. A crate shows a forbidden type of
/// another crate. rustdoc's output can't be read.
pub(crate) fn run(purpose: Purpose) -> Result<()> {
    let written = listing::write()?;
    if let Some(other) = listing::other_format(&written)? {
        ensure!(purpose == Purpose::CompareIfPossible, other);
        println!("    SKIPPED: {other}");
        return Ok(());
    }
    let mut faults = examples::faults(&written)?;
    let members = members()?;
    let libraries: Vec<_> = members.iter().filter(|member| is_listed(member)).collect();
    for member in &libraries {
        let now = listing::read(&written, member)?;
        faults.extend(foreign::faults(&member.name, &now));
        let file = file(member);
        let text = now.join("\n") + "\n";
        if purpose == Purpose::Bless {
            fs::write(&file, text).with_context(|| file.display().to_string())?;
        } else {
            let before = fs::read_to_string(&file).with_context(|| {
                format!(
                    "could not read {}; run `cargo xtask api --bless` to write it",
                    file.display()
                )
            })?;
            faults.extend(
                differences(&before, &text)
                    .into_iter()
                    .map(|line| format!("{}: {line}", member.name)),
            );
        }
    }
    if !faults.is_empty() {
        bail!(
            "the public interface differs from docs/api; if you want this change, run `cargo xtask \
             api --bless`, and name removed and changed items in CHANGELOG.md:\n  {}",
            faults.join("\n  ")
        );
    }
    println!("    the interfaces of {} libraries match docs/api", libraries.len());
    Ok(())
}

/// Whether users build code on the crate. The interface of a program is its command line, even if
/// it has public items.
fn is_listed(member: &Member) -> bool {
    member.is_published && (member.is_for_users() || member.name == "lockkit-conformance")
}

fn file(member: &Member) -> PathBuf {
    root().join("docs/api").join(format!("{}.txt", member.name))
}

/// The lines that were removed and the lines that are new.
fn differences(before: &str, now: &str) -> Vec<String> {
    let (before, now): (Vec<_>, Vec<_>) = (before.lines().collect(), now.lines().collect());
    let gone = before.iter().filter(|line| !now.contains(line)).map(|line| format!("- {line}"));
    let new = now.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"));
    gone.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_is_shown_as_it_was_and_as_it_is() {
        let before = "pub mod a\npub fn a::b(u8)\n";
        assert!(differences(before, before).is_empty());
        assert_eq!(
            differences(before, "pub mod a\npub fn a::b(u16)\n"),
            ["- pub fn a::b(u8)", "+ pub fn a::b(u16)"]
        );
    }
}
