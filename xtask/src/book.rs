//! The documents as a book, which mdBook renders.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result};

use crate::{
    run::{root, step, target},
    server::find_program,
    tool,
};

const VERSION: &str = "0.5.4";

/// Renders docs/ into target/book.
///
/// # Errors
/// mdBook can't be installed, or docs/SUMMARY.md names a missing page.
pub(crate) fn build() -> Result<()> {
    let mut command = Command::new(mdbook()?);
    command.arg("build").arg(root()).arg("--dest-dir").arg(target().join("book"));
    step("the book", &mut command)
}

/// The installed program, or else our own copy among the build results.
fn mdbook() -> Result<PathBuf> {
    if let Some(program) = find_program("mdbook").filter(|program| tool::works(program)) {
        return Ok(program);
    }
    let own = tool::folder().join("bin/mdbook");
    if !tool::works(&own) {
        let mut build = tool::from_source("mdbook", VERSION);
        step("mdbook, from source", build.arg("--no-default-features"))
            .context("could not install mdbook, so the book is not rendered")?;
    }
    Ok(own)
}
