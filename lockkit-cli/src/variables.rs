//! The environment variables that more than one part of the program reads.

/// Holds the store's URL.
pub(crate) const URL: &str = "LOCKKIT_URL";
/// Names a file whose first line is the URL.
pub(crate) const URL_FILE: &str = "LOCKKIT_URL_FILE";
/// Its value holds the mark of a job, and those of the jobs that it runs in.
pub(crate) const MARK: &str = "LOCKKIT_JOB";
