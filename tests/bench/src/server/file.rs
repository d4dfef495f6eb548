//! Describes a folder of this host, which has no server.

use async_trait::async_trait;
use lockkit::url::StoreUrl;

use super::{Facts, Server, guarantee, setting};
use crate::{Result, report::GuaranteeClass};

#[derive(Debug)]
pub(crate) struct FileServer {
    folder: String,
}

impl FileServer {
    pub(crate) fn of(url: &StoreUrl) -> Self {
        Self { folder: url.path().to_owned() }
    }
}

#[async_trait]
impl Server for FileServer {
    async fn facts(&self) -> Result<Facts> {
        let text = "Only the processes of this host see these locks. A lock ends with its process.";
        Ok(Facts {
            product: "file".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: vec![setting("folder", Some(&self.folder), "no request goes over a network")],
            guarantee: guarantee(GuaranteeClass::Host, text),
        })
    }

    async fn requests(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}
