//! Reads the comments of Rust files as pages, because the rules of plain English apply to them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::page::Page;
use crate::files;

/// A comment of several lines, and the number of its first line.
#[derive(Debug)]
pub(super) struct Comment {
    pub(super) path: PathBuf,
    pub(super) line: usize,
    pub(super) page: Page,
}

/// Reads the comments of all Rust files under `root`.
///
/// # Errors
/// A file can't be read.
pub(super) fn read(root: &Path) -> Result<Vec<Comment>> {
    let mut comments = Vec::new();
    for file in files::with_extension(root, "rs")? {
        let source = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let path = file.strip_prefix(root)?;
        for (line, text) in of_source(&source) {
            comments.push(Comment { path: path.to_owned(), line, page: Page::read(&text) });
        }
    }
    Ok(comments)
}

/// Neighbouring lines with only a comment, and the number of the first line.
fn of_source(source: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut last = 0;
    for (number, line) in (1..).zip(source.lines()) {
        let Some(text) = text_of(line) else { continue };
        match blocks.last_mut() {
            Some((_, block)) if last + 1 == number => {
                block.push('\n');
                block.push_str(text);
            }
            _ => blocks.push((number, text.to_owned())),
        }
        last = number;
    }
    blocks
}

fn text_of(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    let text = text.strip_prefix(['/', '!']).unwrap_or(text);
    Some(text.strip_prefix(' ').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_lines_are_one_comment() {
        let source =
            "//! A\n//! b.\n\nfn f() {\n    // C\n    //\n    // d\n    g(); // e\n}\n/// F\n";
        let expected = [(1, "A\nb."), (5, "C\n\nd"), (10, "F")];
        let expected = expected.map(|(line, text)| (line, text.to_owned()));
        assert_eq!(of_source(source), expected);
    }
}
