//! Sentinels: they say which server is the primary.

use std::fmt;

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ProtocolVersion};

use super::cluster::Address;
use crate::{
    config::{Config, Login},
    error::OpenError,
};

/// Who is asked for the primary of a service.
pub(crate) struct Sentinels {
    config: Config,
    addresses: Vec<Address>,
    service: String,
    login: Login,
}

impl Sentinels {
    pub(crate) fn new(config: Config, addresses: Vec<Address>, service: String, login: Login) -> Self {
        Self { config, addresses, service, login }
    }

    /// Where the primary is, as the first sentinel says that answers.
    pub(crate) async fn primary(&self) -> Result<ConnectionAddr, OpenError> {
        let mut answers: FuturesUnordered<_> =
            self.addresses.iter().map(|address| self.told_by(address)).collect();
        let mut trouble = OpenError::Silent;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(Some((host, port))) => return Ok(self.config.address_of(&host, port)),
                Ok(None) => trouble = OpenError::NoService(self.service.clone()),
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    async fn told_by(&self, (host, port): &Address) -> Result<Option<Address>, OpenError> {
        let settings = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let info = self.login.info(self.config.address_of(host, *port), 0, ProtocolVersion::RESP2)?;
        let mut connection =
            Client::open(info)?.get_multiplexed_async_connection_with_config(&settings).await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let answer = connection.send_packed_command(&question).await?.extract_error()?;
        redis::from_redis_value(answer).map_err(|_| OpenError::Strange)
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels")
            .field("addresses", &self.addresses)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}
