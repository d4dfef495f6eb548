//! Diagnoses how the folder and its host affect the locks in it.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

use lockkit_core::{
    Result,
    spi::{Diagnostic, Severity},
};

use crate::{
    error::from_io,
    folder::Folder,
    mount::{self, FileSystem},
    watching,
};

/// The least percentage of the disk, and of its files, that should be free.
const LEAST_ROOM: u64 = 1;
/// Folders that systems empty at a boot, on whatever file system they are.
const CLEANED: [&str; 3] = ["/tmp", "/run", "/dev/shm"];
const WRITABLE_BY_ALL: u32 = 0o002;

/// Looks at the folder.
///
/// # Errors
/// The folder can't be read.
pub(crate) fn diagnose(folder: &Folder, polling: bool) -> Result<Vec<Diagnostic>> {
    let root = folder.root();
    let failed = |error: io::Error| from_io(error, "looking at", root);
    let seen = rustix::fs::statvfs(root).map_err(|error| failed(error.into()))?;
    let mode = fs::metadata(root).map_err(failed)?.mode();
    let news = if polling { None } else { Some(watching::check(folder)) };
    Ok(vec![
        file_system(mount::file_system_of(root)?, &fs::canonicalize(root).map_err(failed)?),
        room("room", seen.f_bavail, seen.f_blocks),
        room("room for files", seen.f_favail, seen.f_files),
        inotify(news),
        access(mode),
    ])
}

fn file_system(found: FileSystem, root: &Path) -> Diagnostic {
    let what = "file system";
    let cleaned = CLEANED.into_iter().find(|cleaned| root.starts_with(cleaned));
    match (found, cleaned) {
        (FileSystem::Local, Some(cleaned)) => {
            Diagnostic::new(Severity::Weak, what, format!("of this host, in {cleaned}"))
                .with_advice(
                    "the system cleans this folder at a boot, and often in between; notes are then \
                     lost, and fencing tokens still rise only if the clock was not set back; use a \
                     permanent folder, such as one in /var/lib",
                )
        }
        (FileSystem::Local, None) => Diagnostic::new(Severity::Good, what, "of this host"),
        (FileSystem::Remote(name), _) => Diagnostic::new(Severity::Weak, what, name).with_advice(
            "two hosts may not see each other's locks, so only one host may ever use this folder, \
             and the file server must keep the locks of that host; use a folder on a disk of this \
             host",
        ),
        (FileSystem::Volatile(name), _) => Diagnostic::new(Severity::Weak, what, name).with_advice(
            "this folder is empty after a boot; notes are then lost, and fencing tokens still rise \
             only if the clock was not set back; use a folder on a disk",
        ),
    }
}

fn room(what: &str, free: u64, all: u64) -> Diagnostic {
    // Some file systems do not count.
    let percent = free.saturating_mul(100).checked_div(all).unwrap_or(100);
    let found = format!("{percent} % free");
    if percent >= LEAST_ROOM {
        return Diagnostic::new(Severity::Good, what, found);
    }
    Diagnostic::new(Severity::Note, what, format!("less than {LEAST_ROOM} % free")).with_advice(
        "on a full disk, lockkit can't take a lock, and a released lock is free only when there is \
         space again; free some space",
    )
}

/// `news` is `None` if polling was asked for.
fn inotify(news: Option<io::Result<()>>) -> Diagnostic {
    let what = "news of changes";
    match news {
        Some(Ok(())) => Diagnostic::new(Severity::Good, what, "from inotify"),
        Some(Err(error)) => {
            Diagnostic::new(Severity::Note, what, format!("polling, as inotify says: {error}"))
                .with_advice(
                    "waiters notice a free lock 100 ms to 1 s late; on Linux, raise \
                     fs.inotify.max_user_instances or max_user_watches",
                )
        }
        None => Diagnostic::new(Severity::Note, what, "polling").with_advice(
            "waiters notice a free lock 100 ms to 1 s late; use a folder on a disk of this host",
        ),
    }
}

fn access(mode: u32) -> Diagnostic {
    let what = "mode of the folder";
    let found = format!("{:04o}", mode & 0o7777);
    if mode & WRITABLE_BY_ALL == 0 {
        return Diagnostic::new(Severity::Good, what, found);
    }
    Diagnostic::new(Severity::Note, what, found).with_advice(
        "each user of this host can take, free and break all locks; remove the right to write from \
         other users",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_folder_on_a_disk_is_good_and_one_in_memory_or_remote_is_weak() {
        let kept = Path::new("/var/lib/lockkit");
        assert_eq!(file_system(FileSystem::Local, kept).severity, Severity::Good);
        assert_eq!(
            file_system(FileSystem::Local, Path::new("/tmpfoo/locks")).severity,
            Severity::Good
        );
        for cleaned in ["/tmp/locks", "/run/lock/app", "/dev/shm/locks"] {
            let diagnostic = file_system(FileSystem::Local, Path::new(cleaned));
            assert!(
                diagnostic.severity == Severity::Weak && diagnostic.advice.contains("tokens"),
                "{diagnostic:?}"
            );
        }
        for weak in [FileSystem::Volatile("tmpfs"), FileSystem::Remote("NFS")] {
            let diagnostic = file_system(weak, kept);
            assert_eq!(diagnostic.severity, Severity::Weak);
            assert!(!diagnostic.advice.is_empty());
        }
    }

    #[test]
    fn a_nearly_full_disk_is_reported() {
        assert_eq!(room("room", 10, 1_000).severity, Severity::Good);
        assert_eq!(room("room", 9, 1_000).severity, Severity::Note);
        assert_eq!(room("room", 0, 0).severity, Severity::Good, "one that does not count");
    }

    #[test]
    fn polling_is_reported_with_its_cause() {
        assert_eq!(inotify(Some(Ok(()))).severity, Severity::Good);
        let limit = inotify(Some(Err(io::Error::from(rustix::io::Errno::MFILE))));
        assert!(
            limit.severity == Severity::Note && limit.found.contains("open files"),
            "{limit:?}"
        );
        assert_eq!(inotify(None).severity, Severity::Note);
    }

    #[test]
    fn a_world_writable_folder_is_reported() {
        let root = TempDir::new().unwrap();
        let folder = Folder::new(root.path().to_owned());
        folder.make().unwrap();
        let severity = |mode| {
            fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
            let diagnostics = diagnose(&folder, false).unwrap();
            assert_eq!(diagnostics.len(), 5);
            diagnostics.last().unwrap().severity
        };
        assert_eq!((severity(0o770), severity(0o777)), (Severity::Good, Severity::Note));
    }
}
