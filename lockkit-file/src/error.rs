//! Translates errors of the operating system into lockkit's.

use std::{borrow::Cow, io, path::Path};

use lockkit_core::{Error, ErrorKind, ErrorStatus};
use rustix::io::Errno;

/// The short name of this backend.
pub(crate) const BACKEND: &str = "file";

/// An error of this backend.
pub(crate) fn ours(kind: ErrorKind, reason: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, reason).with_backend(BACKEND)
}

/// Translates an error that happened while `what` was done to `path`.
pub(crate) fn from_io(error: io::Error, what: &str, path: &Path) -> Error {
    use io::ErrorKind as E;
    const ELSE: &str = "another file is in the place of lockkit's; use a folder for lockkit alone";
    let (kind, advice) = match error.kind() {
        // This is a symbolic link, which lockkit does not follow.
        _ if Errno::from_io_error(&error) == Some(Errno::LOOP) => (ErrorKind::WrongType, ELSE),
        // This is a socket, or a device without its driver.
        _ if Errno::from_io_error(&error) == Some(Errno::NXIO) => (ErrorKind::WrongType, ELSE),
        E::PermissionDenied => (
            ErrorKind::PermissionDenied,
            "allow this user to read and write the folder and its files",
        ),
        E::ReadOnlyFilesystem => (
            ErrorKind::ReadOnly,
            "the file system is mounted read-only; mount it for writing, or use another folder",
        ),
        E::StorageFull | E::QuotaExceeded => {
            (ErrorKind::StoreFull, "the disk or the quota is full; free some space")
        }
        E::NotADirectory | E::IsADirectory | E::AlreadyExists | E::InvalidFilename => {
            (ErrorKind::WrongType, ELSE)
        }
        _ => (
            ErrorKind::Unavailable,
            "check that the folder exists, and that the process may open more files",
        ),
    };
    let ours = ours(kind, format!("{what} {path:?} failed: {error}; {advice}")).with_source(error);
    // A mount does not change by itself.
    if kind == ErrorKind::ReadOnly { ours.with_status(ErrorStatus::Permanent) } else { ours }
}

/// The error for a file that lockkit did not write.
pub(crate) fn stranger(path: &Path, reason: &str) -> Error {
    let text = format!(
        "{path:?} is no file of lockkit: {reason}; lockkit did not change it; repair it, or move \
         it away while no process holds the lock"
    );
    ours(ErrorKind::WrongType, text)
}

/// The error for a file of a newer lockkit.
pub(crate) fn newer(path: &Path, format: u32) -> Error {
    let text = format!(
        "a newer lockkit wrote {path:?} in the format {format}, and this version does not know \
         that format; lockkit did not change the file; upgrade this program"
    );
    ours(ErrorKind::NewerFormat, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c13_errors_have_kinds_and_name_the_action_and_the_remedy() {
        use ErrorKind as K;
        for (errno, kind) in [
            (Errno::ACCESS, K::PermissionDenied),
            (Errno::PERM, K::PermissionDenied),
            (Errno::ROFS, K::ReadOnly),
            (Errno::NOSPC, K::StoreFull),
            (Errno::DQUOT, K::StoreFull),
            (Errno::ISDIR, K::WrongType),
            (Errno::LOOP, K::WrongType),
            (Errno::NXIO, K::WrongType),
            (Errno::MFILE, K::Unavailable),
        ] {
            let error = from_io(errno.into(), "writing", Path::new("/a/b"));
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().starts_with("writing \"/a/b\" failed: "), "{error}");
        }
        assert!(!from_io(Errno::ROFS.into(), "writing", Path::new("/a")).is_temporary());
    }
}
