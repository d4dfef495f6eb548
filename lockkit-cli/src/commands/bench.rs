//! Runs `lockkit bench`.

use std::{ffi::OsString, process::ExitCode};

use tokio::runtime::Builder;

use crate::error::{Error, Result};

/// Hands the arguments to lockkit-bench, which has exit codes of its own. `url` is the store if the
/// arguments name none.
pub(crate) fn bench(arguments: &[OsString], url: Option<String>) -> Result<ExitCode> {
    let mut words = vec![OsString::from("lockkit bench")];
    if let Some(url) = url.filter(|_| needs_store(arguments)) {
        words.extend(["--url".into(), url.into()]);
    }
    words.extend_from_slice(arguments);
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::of("could not start a tokio runtime", error))?;
    Ok(runtime.block_on(lockkit_bench::command_line_from(words, ["bench", "worker"])))
}

/// Whether the arguments ask for a run and name no store.
fn needs_store(arguments: &[OsString]) -> bool {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let is_command = words.first().is_some_and(|first| !first.starts_with('-'));
    let names_store = words.iter().any(|word| {
        let name = word.split('=').next().unwrap_or_default();
        matches!(name, "--url" | "--urls-from" | "--help" | "-h" | "--version" | "-V")
    });
    !is_command && !names_store
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_store_gets_the_one_of_the_environment() {
        let needs = |line: &str| {
            let words: Vec<_> = line.split_whitespace().map(OsString::from).collect();
            needs_store(&words)
        };
        for line in ["", "--quick", "--quick --only hot-name"] {
            assert!(needs(line), "{line}");
        }
        for line in
            ["--url x", "--quick --url=x", "--urls-from f", "--help", "compare a b", "worker"]
        {
            assert!(!needs(line), "{line}");
        }
    }
}
