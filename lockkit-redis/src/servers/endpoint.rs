//! Finds a server, and opens a connection to it.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use redis::ConnectionAddr;
use tokio::time;

use super::{handshake::handshake, link::Link, sentinel::Sentinels};
use crate::{config::BACKEND, error::OpenError, shared::Shared as Common};

/// While a primary does not answer, lockkit asks the sentinels this often whether there is another
/// one.
pub(crate) const SECOND_THOUGHTS: Duration = Duration::from_millis(200);

/// The address of a server, or the way to find it.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    At(ConnectionAddr),
    /// The server that the sentinels name as the primary. They are asked each time that a
    /// connection is opened.
    Primary(Arc<Sentinels>),
}

pub(crate) async fn open(
    common: Arc<Common>,
    endpoint: Endpoint,
    hears: bool,
) -> Result<Arc<Link>, OpenError> {
    let number = common.opened.fetch_add(1, Ordering::Relaxed) + 1;
    // Kept outside of the attempt, because the attempt may be cut short.
    let named = Mutex::new(None);
    let connect = async {
        match &endpoint {
            Endpoint::At(address) => handshake(&common, address.clone(), number, hears).await,
            Endpoint::Primary(sentinels) => {
                open_primary(&common, sentinels, &named, number, hears).await
            }
        }
    };
    let opened = time::timeout(common.config.connect_timeout, connect).await;
    match opened {
        Ok(Ok(link)) => {
            tracing::debug!(target: "lockkit", backend = BACKEND, number, "connected");
            Ok(Arc::new(link))
        }
        opened => {
            let error = opened
                .map_or(OpenError::Silent, |result| result.err().unwrap_or(OpenError::Silent));
            Err(match named.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(primary) => OpenError::Primary(primary, Box::new(error)),
                None => error,
            })
        }
    }
}

/// Opens a connection to the primary. A primary that hangs takes connections and answers nothing,
/// and another server may replace it meanwhile.
async fn open_primary(
    common: &Arc<Common>,
    sentinels: &Sentinels,
    named: &Mutex<Option<ConnectionAddr>>,
    number: u64,
    hears: bool,
) -> Result<Link, OpenError> {
    let (mut address, _) = sentinels.primary().await?;
    loop {
        *named.lock().unwrap_or_else(PoisonError::into_inner) = Some(address.clone());
        address = tokio::select! {
            link = handshake(common, address.clone(), number, hears) => return link,
            other = another_primary(sentinels, &address) => other,
        };
    }
}

/// Returns when the sentinels name another server.
async fn another_primary(sentinels: &Sentinels, present: &ConnectionAddr) -> ConnectionAddr {
    loop {
        time::sleep(SECOND_THOUGHTS).await;
        if let Some(found) = sentinels.another(present).await {
            return found;
        }
    }
}
