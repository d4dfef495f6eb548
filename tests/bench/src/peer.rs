//! Other lock libraries, which a run compares with lockkit on request.

use crate::{
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
    /// Checks that this program can measure the peer on one of these stores at least.
    ///
    /// # Errors
    /// The program was built without the peer, or the peer has no locks on any of these stores.
    pub(crate) fn check<'a>(self, urls: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let Self::Rslock = self;
        if !cfg!(feature = "rslock") {
            return Err(Error::new(
                "cannot measure --peer rslock, because this program was built without rslock; \
                 build lockkit-bench with --features rslock",
            ));
        }
        for url in urls {
            let (_, parsed) = Family::of(url)?;
            if matches!(parsed.scheme(), "redis" | "rediss") {
                return Ok(());
            }
        }
        Err(Error::new(
            "cannot measure --peer rslock, because rslock needs a single Redis server (redis:// or \
             rediss://); add the URL of one, or leave out --peer rslock",
        ))
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
        Peer::Rslock.check([url]).unwrap_err().to_string()
    }

    #[cfg(feature = "rslock")]
    #[test]
    fn rslock_needs_a_single_redis_server_among_the_stores() {
        Peer::Rslock.check(["memory://", "redis://h/"]).unwrap();
        for url in ["mysql://me:s3cret@h/d", "redis+cluster://:s3cret@h/", "zk://h/", "memory://"] {
            let refusal = refusal(url);
            assert!(refusal.contains("a single Redis server"), "{refusal}");
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
