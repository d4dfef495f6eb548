//! Describes the store inside the process.

use async_trait::async_trait;

use super::{Facts, Server, guarantee, setting};
use crate::{Result, report::GuaranteeClass};

#[derive(Debug)]
pub(crate) struct MemoryServer;

#[async_trait]
impl Server for MemoryServer {
    async fn facts(&self) -> Result<Facts> {
        let text =
            "Only the tasks of this process see these locks. The locks end with the process.";
        Ok(Facts {
            product: "memory".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: vec![setting(
                "server",
                Some("this process"),
                "no request goes over a network",
            )],
            guarantee: guarantee(GuaranteeClass::Process, text),
        })
    }

    async fn requests(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}
