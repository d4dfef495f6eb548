//! Checks the table of features in each crate's documentation.

use std::fs;

use anyhow::{Context, Result};

use super::fault;
use crate::members::Member;

/// The features without a line in the table, and the lines without a feature.
///
/// # Errors
/// A file can't be read.
pub(super) fn faults(member: &Member) -> Result<Vec<String>> {
    let mut text = String::new();
    for file in ["README.md", "src/lib.rs"] {
        let path = member.folder.join(file);
        if path.exists() {
            text += &fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            text.push('\n');
        }
    }
    Ok(compare(member, &tables(&text)))
}

/// The first column of each table under `## Features`; rustdoc's comments count as text.
fn tables(text: &str) -> Vec<Vec<String>> {
    let mut tables: Vec<Vec<String>> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let line = line.trim_start_matches("//!").trim();
        if line.starts_with('#') {
            inside = line == "## Features";
            if inside {
                tables.push(Vec::new());
            }
        } else if let (true, Some(table), Some(row)) =
            (inside, tables.last_mut(), line.strip_prefix('|'))
        {
            let first = row.split('|').next().unwrap_or_default();
            table.extend(first.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    tables
}

fn compare(member: &Member, tables: &[Vec<String>]) -> Vec<String> {
    if tables.is_empty() && !member.features.is_empty() {
        return vec![fault(member, "no `## Features` in src/lib.rs or README.md")];
    }
    let mut faults = Vec::new();
    for table in tables {
        let missing = member.features.iter().filter(|feature| !table.contains(feature));
        faults.extend(
            missing.map(|name| fault(member, &format!("its table of features lacks `{name}`"))),
        );
        let unknown = table.iter().filter(|name| !member.features.contains(name));
        faults.extend(
            unknown.map(|name| {
                fault(member, &format!("its table has `{name}`, which is not a feature"))
            }),
        );
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::members;

    #[test]
    fn missing_and_removed_features_are_named() {
        let member =
            members().unwrap().into_iter().find(|member| member.name == "lockkit-redis").unwrap();
        let table = |name: &str| {
            tables(&format!(
                "//! ## Features\n//!\n//! | feature | |\n//! |---|---|\n//! | `{name}` | |\n"
            ))
        };
        assert!(compare(&member, &table("tls")).is_empty());
        assert_eq!(
            compare(&member, &table("ssl")),
            [
                "lockkit-redis: its table of features lacks `tls`",
                "lockkit-redis: its table has `ssl`, which is not a feature",
            ]
        );
        assert_eq!(
            compare(&member, &[]),
            ["lockkit-redis: no `## Features` in src/lib.rs or README.md"]
        );
    }

    #[test]
    fn a_row_may_name_several_and_the_next_heading_ends_the_table() {
        let text = "## Features\n| `a`, `b` | with `c` |\n## License\n| `d` | |\n";
        assert_eq!(tables(text), [["a", "b"]]);
    }
}
