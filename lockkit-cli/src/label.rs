//! The label of a holder, which other users see.

use std::{ffi::OsString, path::Path, process};

use lockkit::MAX_NAME_BYTES;
use rustix::system::uname;

/// The text for inspection: `lockkit pid 4711 on web-1: job.sh`. It has only the program's name,
/// because arguments may hold secrets.
pub(crate) fn of_command(command: &[OsString]) -> String {
    let program = program(command);
    let host = uname();
    let host = host.nodename().to_string_lossy();
    clean(&format!("lockkit pid {} on {host}: {}", process::id(), program), MAX_NAME_BYTES)
}

/// The program's name, without its path.
pub(crate) fn program(command: &[OsString]) -> String {
    let program = command
        .first()
        .map(|program| Path::new(program).file_name().unwrap_or(program.as_os_str()));
    program.unwrap_or_default().to_string_lossy().into_owned()
}

/// The text without control characters, and not longer than `longest` bytes.
pub(crate) fn clean(text: &str, longest: usize) -> String {
    let mut clean = String::new();
    for letter in text.chars().map(|letter| if letter.is_control() { '?' } else { letter }) {
        if clean.len() + letter.len_utf8() > longest {
            break;
        }
        clean.push(letter);
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_program_alone() {
        let label = of_command(&["/usr/bin/backup".into(), "--password=hunter2".into()]);
        assert!(label.starts_with("lockkit pid "), "{label}");
        assert!(label.ends_with(": backup"), "{label}");
    }

    #[test]
    fn it_is_what_a_store_takes() {
        let label = of_command(&["ü\n".repeat(200).into()]);
        assert!(label.len() <= MAX_NAME_BYTES && label.len() > MAX_NAME_BYTES - 2, "{label}");
        assert!(!label.contains('\n'));
    }
}
