//! Translates the errors of SQLite to errors of lockkit.

use std::{borrow::Cow, path::Path};

use lockkit_core::{Error, ErrorKind};
use rusqlite::ErrorCode;

/// The short name of this backend.
pub(crate) const BACKEND: &str = "sqlite";

/// An error of this backend.
pub(crate) fn ours(kind: ErrorKind, reason: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, reason).with_backend(BACKEND)
}

/// Translates an error of the operation `what` on `file`.
pub(crate) fn from_sqlite(error: rusqlite::Error, what: &str, file: &Path) -> Error {
    let (kind, advice) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            ErrorKind::Unavailable,
            "another process keeps it locked; end a transaction that somebody left open",
        ),
        Some(ErrorCode::CannotOpen) => (
            ErrorKind::Unavailable,
            "its folder must be there, and this user must be allowed to write in it",
        ),
        Some(ErrorCode::PermissionDenied) => (
            ErrorKind::PermissionDenied,
            "this user must be allowed to write the file and its folder",
        ),
        Some(ErrorCode::ReadOnly) => (
            ErrorKind::ReadOnly,
            "this user must be allowed to write the file, and its disk must take writes",
        ),
        Some(ErrorCode::DiskFull) => {
            (ErrorKind::StoreFull, "there is no room for one more row; make some")
        }
        Some(ErrorCode::NotADatabase | ErrorCode::Unknown) => {
            (ErrorKind::WrongType, "it is no store of lockkit's; name another file")
        }
        Some(ErrorCode::SystemIoFailure) => {
            (ErrorKind::Unavailable, "the disk does not do what it should")
        }
        _ => (ErrorKind::Unexpected, "look for a bug in this backend"),
    };
    ours(kind, format!("{what} {file:?}: {error}; {advice}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn c13_errors_have_kinds_and_name_the_action_and_the_remedy() {
        use ErrorKind as K;
        for (code, kind) in [
            (ffi::SQLITE_BUSY, K::Unavailable),
            (ffi::SQLITE_CANTOPEN, K::Unavailable),
            (ffi::SQLITE_PERM, K::PermissionDenied),
            (ffi::SQLITE_READONLY, K::ReadOnly),
            (ffi::SQLITE_FULL, K::StoreFull),
            (ffi::SQLITE_NOTADB, K::WrongType),
            (ffi::SQLITE_MISUSE, K::Unexpected),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            let error = from_sqlite(error, "writing", Path::new("/a/b.db"));
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().starts_with("writing \"/a/b.db\": "), "{error}");
        }
    }
}
