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
    const ELSE: &str =
        "something else stands where lockkit's file should be; use a folder of its own";
    let (kind, advice) = match error.kind() {
        // This is a symbolic link, which lockkit does not follow.
        _ if Errno::from_io_error(&error) == Some(Errno::LOOP) => (ErrorKind::WrongType, ELSE),
        // This is a socket, or a device without its driver.
        _ if Errno::from_io_error(&error) == Some(Errno::NXIO) => (ErrorKind::WrongType, ELSE),
        E::PermissionDenied => (
            ErrorKind::PermissionDenied,
            "this user must be allowed to read and write the folder and all that is in it",
        ),
        E::ReadOnlyFilesystem => (ErrorKind::ReadOnly, "the file system is mounted read-only"),
        E::StorageFull | E::QuotaExceeded => {
            (ErrorKind::StoreFull, "there is no room for one more small file; make some")
        }
        E::NotADirectory | E::IsADirectory | E::AlreadyExists | E::InvalidFilename => {
            (ErrorKind::WrongType, ELSE)
        }
        _ => (
            ErrorKind::Unavailable,
            "the folder must be there, and the process must be allowed more open files",
        ),
    };
    let ours = ours(kind, format!("{what} {path:?}: {error}; {advice}")).with_source(error);
    // A mount does not change by itself.
    if kind == ErrorKind::ReadOnly { ours.with_status(ErrorStatus::Permanent) } else { ours }
}

/// The error for a file that lockkit did not write.
pub(crate) fn stranger(path: &Path, reason: &str) -> Error {
    let text = format!(
        "{path:?} is no file of lockkit's: {reason}; it is left as it is: put it right, or move it away while nobody \
         holds the lock"
    );
    ours(ErrorKind::WrongType, text)
}

/// The error for a file of a newer lockkit.
pub(crate) fn newer(path: &Path, format: u32) -> Error {
    let text = format!(
        "{path:?} was written by a newer lockkit, in the format {format}, which this one does not know; it is left as it \
         is: upgrade this program"
    );
    ours(ErrorKind::NewerFormat, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c13_errors_have_kinds_and_say_what_was_done_and_what_to_do() {
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
            assert!(error.to_string().starts_with("writing \"/a/b\": "), "{error}");
        }
        assert!(!from_io(Errno::ROFS.into(), "writing", Path::new("/a")).is_temporary());
    }
}
