//! Asks the sentinels which server is the primary.

use std::{collections::HashMap, fmt};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ProtocolVersion};
use tokio::time::{self, Instant};

use crate::{
    config::{Address, Config, Login},
    error::OpenError,
};

/// How long lockkit waits until most sentinels agree: the connect timeout divided by this, counted
/// from the first answer.
const PATIENCE: u32 = 2;

/// The sentinels that lockkit asks for the primary of a service.
pub(crate) struct Sentinels {
    config: Config,
    addresses: Vec<Address>,
    service: String,
    login: Login,
}

impl Sentinels {
    pub(crate) fn new(
        config: Config,
        addresses: Vec<Address>,
        service: String,
        login: Login,
    ) -> Self {
        Self { config, addresses, service, login }
    }

    /// A server other than the present primary, if most of all sentinels name it. So a single
    /// sentinel that is cut off does not make lockkit leave a primary that may be the right one.
    pub(crate) async fn another(&self, present: &ConnectionAddr) -> Option<ConnectionAddr> {
        let (primary, most) = self.primary().await.ok()?;
        (most && primary != *present).then_some(primary)
    }

    /// The address that most sentinels name as the primary. A sentinel that is cut off from the
    /// others may still name the former primary, and be the first to answer. If fewer answer, the
    /// most frequent answer counts, and the second value is false.
    pub(crate) async fn primary(&self) -> Result<(ConnectionAddr, bool), OpenError> {
        let mut answers: FuturesUnordered<_> =
            self.addresses.iter().map(|address| self.told_by(address)).collect();
        let mut votes = HashMap::new();
        let mut trouble = OpenError::Silent;
        let mut end = None;
        while let Some(answer) = next_before(end, &mut answers).await {
            match answer {
                Ok(Some(address)) => {
                    let count = votes.entry(address).or_insert(0);
                    *count += 1;
                    if self.is_most(*count) {
                        break;
                    }
                    end = end
                        .or_else(|| Some(Instant::now() + self.config.connect_timeout / PATIENCE));
                }
                Ok(None) => trouble = OpenError::NoService(self.service.clone()),
                Err(error) => trouble = error,
            }
        }
        // All clients decide a tie in the same way.
        let most = votes.into_iter().map(|(address, count)| (count, address)).max();
        let (count, address) = most.ok_or(trouble)?;
        Ok((self.config.address_of(&address.0, address.1), self.is_most(count)))
    }

    fn is_most(&self, count: usize) -> bool {
        count > self.addresses.len() / 2
    }

    async fn told_by(&self, (host, port): &Address) -> Result<Option<Address>, OpenError> {
        let settings =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let info =
            self.login.info(self.config.address_of(host, *port), 0, ProtocolVersion::RESP2)?;
        let mut connection =
            Client::open(info)?.get_multiplexed_async_connection_with_config(&settings).await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let answer = connection.send_packed_command(&question).await?.extract_error()?;
        redis::from_redis_value(answer).map_err(|_| OpenError::Strange)
    }
}

/// The next answer; `None` after the last one, and after the end.
async fn next_before<T>(
    end: Option<Instant>,
    answers: &mut FuturesUnordered<impl Future<Output = T>>,
) -> Option<T> {
    match end {
        Some(end) => time::timeout_at(end, answers.next()).await.ok().flatten(),
        None => answers.next().await,
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
