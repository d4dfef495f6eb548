//! Finds the kind of store that a URL names.

use lockkit::url::StoreUrl;

use crate::error::{Error, Result};

/// A kind of store. Each kind has its own code to measure it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    File,
    Memory,
    MySql,
    Redis,
    ZooKeeper,
}

impl Family {
    /// The kind, and the parts of the URL.
    pub(crate) fn of(url: &str) -> Result<(Self, StoreUrl)> {
        let url =
            StoreUrl::parse(url).map_err(|error| Error::of("cannot use the store URL", error))?;
        let scheme = url.scheme();
        let all = [
            (Self::File, lockkit::file::SCHEMES),
            (Self::Memory, &["memory"][..]),
            (Self::MySql, lockkit::mysql::SCHEMES),
            (Self::Redis, lockkit::redis::SCHEMES),
            (Self::ZooKeeper, lockkit::zk::SCHEMES),
        ];
        match all.into_iter().find(|(_, schemes)| schemes.contains(&scheme)) {
            Some((family, _)) => Ok((family, url)),
            None => Err(Error::new(format!(
                "cannot use the store URL: there are no benchmarks for {scheme}://"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_of_a_backend_has_a_family() {
        for (url, family) in [
            ("file:///f", Family::File),
            ("memory://", Family::Memory),
            ("mysql://h/d", Family::MySql),
            ("rediss+cluster://h", Family::Redis),
            ("zks://h", Family::ZooKeeper),
        ] {
            assert_eq!(Family::of(url).unwrap().0, family);
        }
        let error = Family::of("etcd://h").unwrap_err().to_string();
        assert_eq!(error, "cannot use the store URL: there are no benchmarks for etcd://");
    }
}
