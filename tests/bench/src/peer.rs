//! Other lock libraries, which a run compares with lockkit on request.

use crate::{
    address,
    error::{Error, Result},
    family::Family,
};

/// A lock library to compare with lockkit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[non_exhaustive]
pub enum Peer {
    /// The library rslock, on one Redis server. It needs the cargo feature `rslock`.
    Rslock,
}

impl Peer {
    /// Checks that this program can measure the peer on a store.
    ///
    /// # Errors
    /// The program was built without the peer, or the peer has no locks on such a store.
    pub(crate) fn check(self, url: &str) -> Result<()> {
        let Self::Rslock = self;
        if !cfg!(feature = "rslock") {
            return Err(Error::new(
                "cannot measure --peer rslock, because this program was built without rslock; \
                 build lockkit-bench with --features rslock",
            ));
        }
        let (_, parsed) = Family::of(url)?;
        if !matches!(parsed.scheme(), "redis" | "rediss") {
            return Err(Error::new(format!(
                "cannot measure --peer rslock on {}, because rslock needs one Redis server only \
                 (redis:// or rediss://); leave out that store, or --peer rslock",
                address::shown(url)
            )));
        }
        Ok(())
    }

    /// The name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rslock => "rslock",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        Peer::Rslock.check(url).unwrap_err().to_string()
    }

    #[cfg(feature = "rslock")]
    #[test]
    fn rslock_is_refused_on_other_stores_without_showing_a_password() {
        Peer::Rslock.check("redis://h/").unwrap();
        for url in ["mysql://me:s3cret@h/d", "redis+cluster://:s3cret@h/", "zk://h/", "memory://"] {
            let refusal = refusal(url);
            assert!(refusal.contains("one Redis server only"), "{refusal}");
            assert!(!refusal.contains("s3cret"), "{refusal}");
        }
    }

    #[cfg(not(feature = "rslock"))]
    #[test]
    fn rslock_is_refused_without_its_feature() {
        let refusal = refusal("redis://h/");
        assert!(refusal.contains("--features rslock"), "{refusal}");
    }
}
