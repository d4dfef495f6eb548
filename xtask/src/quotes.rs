//! Checks that each block of code in some documents is a quote of a program.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail, ensure};

use crate::run::root;

/// Documents in which each block of code is a quote.
const QUOTING: [&str; 2] = ["docs/write-a-backend.md", "docs/testing-your-code.md"];

/// The languages of such blocks, and how a comment begins in them.
const LANGUAGES: [(&str, &str); 3] = [("rust", "// "), ("sql", "-- "), ("toml", "# ")];

/// The text that replaces omitted lines.
const GAP: &str = "…";

struct Block<'a> {
    /// The line of the document where the block begins.
    line: usize,
    file: &'a str,
    comment: &'a str,
    body: Vec<&'a str>,
}

#[test]
fn quotes_match_the_files() {
    for document in QUOTING {
        let text = fs::read_to_string(root().join(document)).expect(document);
        let quotes = check(&text, root()).unwrap_or_else(|error| panic!("{document}: {error:#}"));
        assert!(quotes > 0, "{document} quotes nothing");
    }
}

/// Returns the number of quotes.
///
/// # Errors
/// Names the line of the first block that is not a quote.
fn check(document: &str, root: &Path) -> Result<usize> {
    let blocks = blocks(document)?;
    for Block { line, file, comment, body } in &blocks {
        let text = fs::read_to_string(root.join(file))
            .with_context(|| format!("line {line} quotes {file}"))?;
        let lines: Vec<_> = text.lines().collect();
        let mut from = 0;
        for part in body.split(|line| line.trim() == format!("{comment}{GAP}")) {
            match (from..lines.len()).find(|at| is_quoted(&lines[*at..], part)) {
                Some(at) => from = at + part.len(),
                None => bail!("the code below line {line} is not in {file}:\n{}", part.join("\n")),
            }
        }
    }
    Ok(blocks.len())
}

fn blocks(document: &str) -> Result<Vec<Block<'_>>> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(document.lines());
    while let Some((line, fence)) = lines.next() {
        let Some(language) = fence.strip_prefix("```") else { continue };
        let mut body: Vec<_> =
            lines.by_ref().map(|(_, text)| text).take_while(|text| *text != "```").collect();
        let Some((_, comment)) = LANGUAGES.iter().find(|(known, _)| *known == language) else {
            continue;
        };
        ensure!(!body.is_empty(), "the block in line {line} is empty");
        let file = body.remove(0).strip_prefix(comment);
        let file = file.with_context(|| {
            format!("the block in line {line} doesn't begin with {comment}file")
        })?;
        ensure!(
            body.iter().any(|text| !text.trim().is_empty()),
            "the block in line {line} is empty"
        );
        blocks.push(Block { line, file, comment, body });
    }
    Ok(blocks)
}

/// Whether the lines begin with the lines of the part. All may have the same additional
/// indentation.
fn is_quoted(lines: &[&str], part: &[&str]) -> bool {
    let Some(lines) = lines.get(..part.len()) else { return false };
    let indent = |text: &str| text.len() - text.trim_start().len();
    let further = |(line, quoted): (&&str, &&str)| {
        if quoted.is_empty() {
            line.is_empty().then_some(None)
        } else {
            Some(indent(line).checked_sub(indent(quoted)))
        }
    };
    let by = lines.iter().zip(part).filter_map(further).flatten().next().unwrap_or(0);
    lines.iter().zip(part).all(|(line, quoted)| match quoted.is_empty() {
        true => line.is_empty(),
        false => line.strip_prefix(&" ".repeat(by)) == Some(quoted),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "fn a() {\n    one();\n\n    two();\n    three();\n}\n";

    fn found(block: &str) -> Result<usize> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("a.rs"), FILE)?;
        check(&format!("Text.\n\n```{block}\n```\n\n```sh\nls\n```\n"), folder.path())
    }

    #[test]
    fn a_quote_may_be_indented_less_and_have_gaps() {
        for good in
            ["one();\n\ntwo();", "    one();", "fn a() {\n// …\n}", "one();\n// …\nthree();"]
        {
            assert_eq!(found(&format!("rust\n// a.rs\n{good}")).expect(good), 1);
        }
    }

    #[test]
    fn quotes_missing_in_the_file_are_found() {
        for bad in [
            "one();\ntwo();",
            "four();",
            "    one();\n\ntwo();",
            "three();\n// …\none();",
            "ne();",
            "",
        ] {
            found(&format!("rust\n// a.rs\n{bad}")).expect_err(bad);
        }
        found("rust\none();").expect_err("no file");
        found("rust\n// b.rs\none();").expect_err("no such file");
    }
}
