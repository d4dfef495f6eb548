//! Reads where the folder is and how to use it.

use std::path::PathBuf;

use lockkit_core::{Error, ErrorKind, Result, url::StoreUrl};

use crate::error::BACKEND;

/// The settings of the file backend.
///
/// ```
/// use lockkit_core::url::StoreUrl;
/// use lockkit_file::Config;
///
/// # fn main() -> lockkit_core::Result<()> {
/// let by_hand = Config::new("/var/lib/app/locks");
/// let by_url = Config::from_url(StoreUrl::parse("file:///var/lib/app/locks")?)?;
/// # Ok(())
/// # }
/// ```
///
/// # Default
/// Network file systems are refused, and the system reports changes.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) folder: PathBuf,
    pub(crate) allow_network_fs: bool,
    pub(crate) polling: bool,
}

impl Config {
    /// A store in a folder, which is made if it is missing. All processes that must exclude each
    /// other must reach the same folder, by whichever path.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), allow_network_fs: false, polling: false }
    }

    /// Reads a store URL; the crate's documentation lists its parts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] for a URL that makes no sense, [`ErrorKind::UnknownParameter`] for
    /// an unknown parameter.
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        let is_local = match url.hosts() {
            [] => true,
            [host] => host.name == "localhost" && host.port.is_none(),
            _ => false,
        };
        if !is_local {
            return Err(invalid(
                "it names a host, but the folder must be on this one; write \
                 file:///var/lib/app/locks, with three slashes",
            ));
        }
        if url.username().is_some() || url.password().is_some() {
            return Err(invalid(
                "it has a user or a password, but a folder has none; leave them out",
            ));
        }
        if matches!(url.path(), "" | "/") {
            return Err(invalid("it names no folder; write file:///var/lib/app/locks"));
        }
        let mut config = Self::new(url.path());
        let allowed = url.params.parsed("allow_network_fs", "true or false")?;
        config.allow_network_fs = allowed.unwrap_or_default();
        url.params.finish()?;
        Ok(config)
    }

    /// Allows a folder on a network file system, which is refused otherwise. There the system does
    /// not report what other hosts do, and waiters look up to ten times a second.
    #[must_use]
    pub fn with_network_fs(mut self) -> Self {
        self.allow_network_fs = true;
        self
    }

    /// Looks for changes up to ten times a second, instead of waiting for reports of the system.
    #[must_use]
    pub fn with_polling(mut self) -> Self {
        self.polling = true;
        self
    }
}

fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidUrl, format!("the store URL can't be used: {reason}"))
        .with_backend(BACKEND)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(StoreUrl::parse(url)?)
    }

    #[test]
    fn a_url_names_a_folder() {
        let plain = config("file:///var/lib/app%20x/locks").unwrap();
        assert_eq!(plain.folder, Path::new("/var/lib/app x/locks"));
        assert!(!plain.allow_network_fs && !plain.polling);
        assert!(config("file://localhost/a?allow_network_fs=true").unwrap().allow_network_fs);
    }

    #[test]
    fn c13_an_invalid_url_is_refused() {
        for (bad, kind) in [
            ("file://", ErrorKind::InvalidUrl),
            ("file:///", ErrorKind::InvalidUrl),
            ("file://var/lib/locks", ErrorKind::InvalidUrl),
            ("file://localhost:7/a", ErrorKind::InvalidUrl),
            ("file://u:hunter2@/a", ErrorKind::InvalidUrl),
            ("file://u:hunter2@localhost/a", ErrorKind::InvalidUrl),
            ("file:///a?allow_network_fs=1", ErrorKind::InvalidUrl),
            ("file:///a?allow_network=true", ErrorKind::UnknownParameter),
        ] {
            let error = config(bad).expect_err(bad);
            assert_eq!(error.kind(), kind, "{bad}: {error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
