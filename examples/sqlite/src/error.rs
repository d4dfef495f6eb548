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
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Unavailable, "another process keeps it locked; end its open transaction")
        }
        Some(ErrorCode::CannotOpen) => {
            (ErrorKind::Unavailable, "create its folder, and allow this user to write in it")
        }
        Some(ErrorCode::PermissionDenied) => {
            (ErrorKind::PermissionDenied, "allow this user to write the file and its folder")
        }
        Some(ErrorCode::ReadOnly) => {
            (ErrorKind::ReadOnly, "allow this user to write the file, and use a writable disk")
        }
        Some(ErrorCode::DiskFull) => (ErrorKind::StoreFull, "the disk is full; free some space"),
        Some(ErrorCode::NotADatabase | ErrorCode::Unknown) => {
            (ErrorKind::WrongType, "the file is not a store of lockkit; name another file")
        }
        Some(ErrorCode::SystemIoFailure) => (ErrorKind::Unavailable, "the disk failed; check it"),
        _ => (ErrorKind::Unexpected, "this is probably a bug in this backend"),
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
            let error = from_sqlite(error, "could not write", Path::new("/a/b.db"));
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().starts_with("could not write \"/a/b.db\": "), "{error}");
        }
    }
}
