//! Helpers that the harnesses of all servers share: a server's address, servers that cases stop and
//! start, and proxies.

use std::{
    fmt::Debug,
    net::{SocketAddr, ToSocketAddrs as _},
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lockkit_conformance::{BoxError, proxy::Proxy};
use lockkit_fixture::ServerProcess;

/// The parts of a store's URL: the text before its server, the server, and the text after it.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    before: String,
    pub(crate) host: SocketAddr,
    after: String,
}

impl Address {
    /// Parses a URL. The port is the store's default port where the URL names none.
    pub(crate) fn parse(url: &str, port: u16) -> Result<Self, BoxError> {
        let (scheme, rest) = url.split_once("://").ok_or("the URL has no scheme")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host_start = authority.rfind('@').map_or(0, |at| at + 1);
        let (login, host) = authority.split_at(host_start);
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
        let host = host.to_socket_addrs()?.next().ok_or("the host has no address")?;
        Ok(Self { before: format!("{scheme}://{login}"), host, after: format!("/{path}") })
    }

    pub(crate) fn url(&self) -> String {
        self.url_through(self.host)
    }

    /// The URL that leads to the server through a proxy.
    pub(crate) fn url_through(&self, proxy: SocketAddr) -> String {
        format!("{}{proxy}{}", self.before, self.after)
    }
}

/// The servers of a store, one or several.
pub(crate) trait Servers: Debug + Send {
    /// The servers that take writes.
    fn processes(&self) -> Vec<&ServerProcess>;
}

impl<S: Debug + Deref<Target = ServerProcess> + Send> Servers for S {
    fn processes(&self) -> Vec<&ServerProcess> {
        vec![self]
    }
}

/// The servers of a store, as one case has them. The case may stop them and start them again.
/// `None` if they are not servers of this test.
#[derive(Debug)]
pub(crate) struct Shared<S: Servers> {
    servers: Option<Arc<Mutex<S>>>,
    are_paused: Mutex<bool>,
}

impl<S: Servers> Shared<S> {
    pub(crate) fn new(servers: Option<S>) -> Self {
        Self {
            servers: servers.map(|servers| Arc::new(Mutex::new(servers))),
            are_paused: Mutex::default(),
        }
    }

    pub(crate) fn are_ours(&self) -> bool {
        self.servers.is_some()
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, S>, BoxError> {
        let servers = self.servers.as_ref().ok_or("the server is not ours to stop")?;
        Ok(servers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn pause(&self) -> Result<(), BoxError> {
        self.set_paused(true)
    }

    pub(crate) fn resume(&self) -> Result<(), BoxError> {
        self.set_paused(false)
    }

    fn set_paused(&self, pause: bool) -> Result<(), BoxError> {
        let mut are_paused = self.are_paused.lock().unwrap_or_else(PoisonError::into_inner);
        if *are_paused != pause {
            for process in self.lock()?.processes() {
                if pause {
                    process.pause()?;
                } else {
                    process.resume()?;
                }
            }
            *are_paused = pause;
        }
        Ok(())
    }
}

/// The clone is for another case.
impl<S: Servers> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self { servers: self.servers.clone(), are_paused: Mutex::default() }
    }
}

impl<S: Servers> Drop for Shared<S> {
    fn drop(&mut self) {
        // A failed case must not affect the next ones.
        self.resume().expect("the servers resume");
    }
}

/// One more server for the cases that disturb it. The first of these cases starts it.
#[derive(Debug)]
pub(crate) struct Spare<P>(Arc<Mutex<Option<P>>>);

impl<P: Clone> Spare<P> {
    pub(crate) fn get_or_start(
        &self,
        start: impl FnOnce() -> Result<P, BoxError>,
    ) -> Result<P, BoxError> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = &*place {
            return Ok(place.clone());
        }
        let started = start()?;
        *place = Some(started.clone());
        Ok(started)
    }
}

impl<P> Clone for Spare<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P> Default for Spare<P> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// The proxies of a case. They live until its end, because the cleanup of the case goes through
/// them.
#[derive(Debug, Default)]
pub(crate) struct Proxies(Mutex<Vec<Arc<Proxy>>>);

impl Proxies {
    pub(crate) async fn start(&self, host: SocketAddr) -> Result<Arc<Proxy>, BoxError> {
        let proxy = Arc::new(Proxy::start(host).await?);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&proxy));
        Ok(proxy)
    }

    pub(crate) fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
