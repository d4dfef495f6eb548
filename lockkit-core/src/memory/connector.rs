//! Connects URLs of the form `memory://`.

use std::sync::Arc;

use async_trait::async_trait;

use super::Memory;
use crate::{
    error::{Error, ErrorKind, Result},
    registry::{Connector, Registry},
    spi::Backend,
    url::StoreUrl,
};

/// Makes a fresh store for each `memory://`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryConnector;

#[async_trait]
impl Connector for MemoryConnector {
    fn schemes(&self) -> &'static [&'static str] {
        &["memory"]
    }

    async fn connect(&self, url: StoreUrl, _: &Registry) -> Result<Arc<dyn Backend>> {
        let no_user = url.username().is_none() && url.password().is_none();
        if !(url.hosts().is_empty() && url.path().is_empty() && no_user) {
            return Err(Error::new(
                ErrorKind::InvalidUrl,
                "the store URL can't be used: a memory store has no user, host or path; write memory://",
            )
            .with_backend("memory"));
        }
        url.params.finish()?;
        Ok(Arc::new(Memory::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn connect(url: &str) -> Result<Arc<dyn Backend>> {
        MemoryConnector.connect(StoreUrl::parse(url)?, &Registry::new()).await
    }

    #[tokio::test]
    async fn a_memory_url_makes_a_store() {
        assert_eq!(connect("memory://").await.unwrap().descriptor().name, "memory");
    }

    #[tokio::test]
    async fn c13_a_memory_url_with_user_host_or_path_is_refused() {
        for bad in
            ["memory://host", "memory://:7", "memory:///path", "memory://u:hunter2@", "memory:///"]
        {
            let error = connect(bad).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn c13_a_memory_url_knows_no_parameter_of_its_own() {
        let error = connect("memory://?prefix=x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownParameter);
    }
}
