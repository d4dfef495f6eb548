//! Reads the settings of the backend: the path of the file.

use std::path::PathBuf;

use lockkit_core::{Error, ErrorKind, Result, url::StoreUrl};

use crate::error::ours;

/// The settings of the SQLite backend.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) file: PathBuf,
}

impl Config {
    /// A store in this file. Opening it creates a missing file, but its folder must exist.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into() }
    }

    /// Reads a store URL: `sqlite:///var/lib/app/locks.db`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] for an invalid URL, [`ErrorKind::UnknownParameter`] for an unknown
    /// parameter.
    pub fn from_url(url: StoreUrl) -> Result<Self> {
        if !url.hosts().is_empty() {
            return Err(invalid(
                "its file is on this host; write sqlite:///var/lib/app/locks.db, with three \
                 slashes",
            ));
        }
        if url.username().is_some() || url.password().is_some() {
            return Err(invalid("a file has no user and no password; leave them out"));
        }
        if matches!(url.path(), "" | "/") {
            return Err(invalid("it names no file; write sqlite:///var/lib/app/locks.db"));
        }
        // The registry has already removed the parameters that every store knows, such as `ttl`.
        url.params.finish()?;
        Ok(Self::new(url.path()))
    }
}

fn invalid(reason: &str) -> Error {
    ours(ErrorKind::InvalidUrl, format!("cannot use the store URL: {reason}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(StoreUrl::parse(url)?)
    }

    #[test]
    fn a_url_names_a_file() {
        assert_eq!(
            config("sqlite:///var/lib/app%20x/locks.db").unwrap().file,
            Path::new("/var/lib/app x/locks.db")
        );
    }

    #[test]
    fn c13_an_invalid_url_is_refused() {
        for (bad, kind) in [
            ("sqlite://", ErrorKind::InvalidUrl),
            ("sqlite:///", ErrorKind::InvalidUrl),
            ("sqlite://var/lib/locks.db", ErrorKind::InvalidUrl),
            ("sqlite://u:hunter2@/a.db", ErrorKind::InvalidUrl),
            ("sqlite:///a.db?mode=memory", ErrorKind::UnknownParameter),
        ] {
            let error = config(bad).expect_err(bad);
            assert_eq!(error.kind(), kind, "{bad}: {error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
