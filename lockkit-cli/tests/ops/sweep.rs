//! Tests the removal of files whose lockkit was killed together with its watchdog.

use std::fs;

use libtest_mimic::Failed;

use crate::{Test, good, support::Place};

pub(crate) fn trials() -> Vec<Test> {
    vec![("sweep::deadlines_that_have_passed_are_removed", passed)]
}

fn passed() -> Result<(), Failed> {
    let place = Place::new();
    for (name, deadline) in
        [("lockkit-passed", "1"), ("lockkit-to-come", "9000000000000000000"), ("other", "1")]
    {
        fs::create_dir(place.path(name))?;
        fs::write(
            place.path(name).join("deadline"),
            format!("{deadline}\n1970-01-01T00:00:00Z\n"),
        )?;
    }
    let mut command = place.lockkit(["run", "job", "true"]);
    command.env("TMPDIR", place.folder.path());
    good(command);
    let left = fs::read_dir(place.folder.path())?.map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["lockkit-to-come", "other"]);
    Ok(())
}
