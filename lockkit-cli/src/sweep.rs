//! Removes files that lockkit processes left because they were killed together with their
//! watchdogs.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::geteuid;

use crate::boot_time::BootTime;

/// How long after a lock's end no process reads its deadline any more.
const AGE: Duration = Duration::from_secs(60);

const FILE: &str = "deadline";
const NEW_FILE: &str = "deadline.new";

/// Removes the folders of deadlines that have passed. A folder that can't be removed does no harm.
pub(crate) fn sweep() {
    let user = PathBuf::from(format!("/run/user/{}", geteuid().as_raw()));
    for place in [user, std::env::temp_dir()] {
        for folder in fs::read_dir(place).into_iter().flatten().flatten() {
            let is_named = folder.file_name().as_encoded_bytes().starts_with(b"lockkit-");
            if is_named && is_left(&folder.path(), BootTime::now()).unwrap_or(false) {
                let _ = remove(&folder.path());
            }
        }
    }
}

/// Whether this is a folder of ours that holds nothing but a deadline that has passed. A deadline
/// that never comes does not show whether its lockkit still runs.
fn is_left(folder: &Path, now: BootTime) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
        return Ok(false);
    }
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name != FILE && name != NEW_FILE {
            return Ok(false);
        }
    }
    let text = fs::read_to_string(folder.join(FILE))?;
    let deadline = text.lines().next().and_then(|line| line.parse().ok());
    Ok(deadline.is_some_and(|at| BootTime(at).after(AGE) < now))
}

fn remove(folder: &Path) -> io::Result<()> {
    let _ = fs::remove_file(folder.join(NEW_FILE));
    fs::remove_file(folder.join(FILE))?;
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certain_leftovers_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let now = BootTime(100_000_000_000);
        for (name, files, expected) in [
            ("passed", &[(FILE, "39000000000\n1970-01-01T00:00:00Z\n"), (NEW_FILE, "")][..], true),
            ("just-passed", &[(FILE, "41000000000\nx\n")], false),
            ("to-come", &[(FILE, "100000000001\nx\n")], false),
            ("never", &[(FILE, "never\nnever\n")], false),
            ("other", &[(FILE, "1\nx\n"), ("data", "")], false),
        ] {
            let folder = place.path().join(name);
            fs::create_dir(&folder).unwrap();
            for (file, text) in files {
                fs::write(folder.join(file), text).unwrap();
            }
            assert_eq!(is_left(&folder, now).unwrap(), expected, "{name}");
        }
        let link = place.path().join("link");
        std::os::unix::fs::symlink("passed", &link).unwrap();
        assert!(!is_left(&link, now).unwrap());
        remove(&place.path().join("passed")).unwrap();
        assert!(!place.path().join("passed").exists());
    }
}
