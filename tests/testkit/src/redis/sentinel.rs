//! A primary with replicas, which sentinels watch.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{
    options::{Place, RedisOptions},
    server::{PORT_ATTEMPTS, RedisServer, START_TIMEOUT},
    wait::wait_for,
};
use crate::ports;

const SERVICE: &str = "lockkit";
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
const REPLICAS: usize = 2;
/// The ports where each host has its own network.
const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// How to run servers with sentinels.
///
/// # Default
/// * down after 1 s.
/// * failover timeout 3 s.
/// * servers as of [`RedisOptions`].
#[derive(Clone, Debug)]
pub struct SentinelOptions {
    down_after: Duration,
    failover_timeout: Duration,
    servers: RedisOptions,
}

impl Default for SentinelOptions {
    fn default() -> Self {
        Self {
            down_after: Duration::from_secs(1),
            failover_timeout: Duration::from_secs(3),
            servers: RedisOptions::default(),
        }
    }
}

impl SentinelOptions {
    /// How long a server is silent until a sentinel considers it down.
    #[must_use]
    pub fn with_down_after(mut self, down_after: Duration) -> Self {
        self.down_after = down_after;
        self
    }

    /// How long a failover may take. The next attempt starts after twice that time.
    #[must_use]
    pub fn with_failover_timeout(mut self, failover_timeout: Duration) -> Self {
        self.failover_timeout = failover_timeout;
        self
    }

    /// How to run the watched servers. The sentinels use the servers' password, but have none
    /// themselves.
    #[must_use]
    pub fn with_servers(mut self, servers: RedisOptions) -> Self {
        self.servers = servers;
        self
    }
}

/// A primary, 2 replicas, and 3 sentinels of which 2 must agree, killed when this value is dropped.
#[derive(Debug)]
pub struct SentinelGroup {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl SentinelGroup {
    /// Starts all of them, and waits until the replicas are in sync and the sentinels know all
    /// servers and each other.
    ///
    /// # Errors
    /// As for [`RedisServer::start`], or they don't agree.
    pub fn start() -> Result<Self> {
        Self::start_with(SentinelOptions::default())
    }

    /// As [`start`](Self::start), with these options.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with(options: SentinelOptions) -> Result<Self> {
        let primary = RedisServer::start_as(options.servers.clone())?;
        let mut servers = vec![primary];
        for _ in 0..REPLICAS {
            let replica = options.servers.clone().with_primary(servers[0].port());
            servers.push(RedisServer::start_as(replica)?);
        }
        let sentinels = start_sentinels(&options, &servers)?;
        Self::of(servers, sentinels)
    }

    /// As [`start_with`](Self::start_with), with a server and a sentinel at each place, where all
    /// ports are free.
    pub(super) fn start_at(places: &[Place], options: &SentinelOptions) -> Result<Self> {
        let taken = "a port is taken in a namespace that has just been made";
        let mut servers = Vec::<RedisServer>::new();
        for place in places {
            let server = options.servers.clone().with_place(place.clone());
            let server = match servers.first() {
                None => server,
                Some(primary) => server.with_primary_at(primary.ip(), primary.port()),
            };
            servers.push(RedisServer::start_at(SERVER_PORT, server)?.context(taken)?);
        }
        let addrs: Vec<_> =
            places.iter().map(|place| SocketAddrV4::new(place.ip, SENTINEL_PORT)).collect();
        let mut sentinels = Vec::new();
        for (place, &addr) in places.iter().zip(&addrs) {
            let sentinel = Some(sentinel_config(options, &servers, addr, &addrs));
            let options =
                RedisOptions { sentinel, place: place.clone(), ..RedisOptions::default() };
            sentinels.push(RedisServer::start_at(SENTINEL_PORT, options)?.context(taken)?);
        }
        Self::of(servers, sentinels)
    }

    fn of(servers: Vec<RedisServer>, sentinels: Vec<RedisServer>) -> Result<Self> {
        let group = Self { servers, sentinels };
        for replica in &group.servers[1..] {
            replica.wait_in_sync()?;
        }
        wait_for("agreement of the sentinels", START_TIMEOUT, || {
            let agreed = group.sentinels.iter().map(knows_everybody).collect::<Result<Vec<_>>>()?;
            Ok(agreed.iter().all(|&agreed| agreed).then_some(()))
        })?;
        Ok(group)
    }

    /// The URL of the sentinels, with the name of the watched servers. The caller adds a password.
    #[must_use]
    pub fn url(&self) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(RedisServer::addr).collect();
        format!("redis+sentinel://{}/{SERVICE}", sentinels.join(","))
    }

    /// The name by which the sentinels know the servers.
    #[must_use]
    pub fn service_name(&self) -> &'static str {
        SERVICE
    }

    /// The servers; the first was the primary at the start.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The server `index`, for a test that kills and restarts it. It restarts with its role from
    /// the start, and the sentinels correct that role within about 10 s.
    ///
    /// # Panics
    /// There is no such server.
    #[must_use]
    pub fn server_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.servers[index]
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The sentinel `index`, for a test that kills and restarts it.
    ///
    /// # Panics
    /// There is no such sentinel.
    #[must_use]
    pub fn sentinel_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.sentinels[index]
    }

    /// The index of the primary, by the first sentinel that answers.
    ///
    /// # Errors
    /// When no sentinel answers.
    pub fn primary(&self) -> Result<usize> {
        let mut failure = None;
        for sentinel in &self.sentinels {
            match self.primary_of(sentinel) {
                Ok(index) => return Ok(index),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.context("there are no sentinels")?)
    }

    /// Waits until every sentinel that answers names the same primary, other than `old`. That
    /// server must also consider itself a primary. Returns its index.
    ///
    /// The replicas follow the new primary soon after. The old primary follows it about 10 s later,
    /// if it lives.
    ///
    /// # Errors
    /// When that takes longer than `timeout`.
    pub fn wait_for_new_primary(&self, old: usize, timeout: Duration) -> Result<usize> {
        wait_for("a new primary", timeout, || {
            let mut views =
                self.sentinels.iter().filter_map(|sentinel| self.primary_of(sentinel).ok());
            let index = views.next().context("no sentinel answers")?;
            let agreed = index != old && views.all(|view| view == index);
            Ok((agreed && self.servers[index].is_primary()?).then_some(index))
        })
    }

    /// Whether every sentinel names this server as the primary, and considers it neither down nor
    /// in need of replacement.
    ///
    /// # Errors
    /// When a sentinel does not answer.
    pub fn all_trust(&self, index: usize) -> Result<bool> {
        for sentinel in &self.sentinels {
            let master = sentinel.peek(["SENTINEL", "MASTER", SERVICE])?;
            let mut fields = master.elements().chunks_exact(2);
            let sound =
                fields.any(|field| field[0].text() == "flags" && field[1].text() == "master");
            if self.primary_of(sentinel)? != index || !sound || !knows_everybody(sentinel)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn primary_of(&self, sentinel: &RedisServer) -> Result<usize> {
        let addr = sentinel.peek(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE])?;
        let [ip, port] = addr.elements() else { bail!("a sentinel knows no primary") };
        let addr = format!("{}:{}", ip.text(), port.text());
        let found = self.servers.iter().position(|server| server.addr() == addr);
        found.with_context(|| format!("the sentinels' primary, {addr}, is none of ours"))
    }
}

/// Starts sentinels that know each other and the servers from the start, because the discovery
/// takes seconds.
fn start_sentinels(options: &SentinelOptions, servers: &[RedisServer]) -> Result<Vec<RedisServer>> {
    'attempt: for _ in 0..PORT_ATTEMPTS {
        let on = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let ports = (0..SENTINELS).map(|_| ports::free()).collect::<Result<Vec<_>>>()?;
        let mut sentinels = Vec::new();
        for &port in &ports {
            let config = sentinel_config(
                options,
                servers,
                on(port),
                &ports.iter().map(|&port| on(port)).collect::<Vec<_>>(),
            );
            let options = RedisOptions { sentinel: Some(config), ..RedisOptions::default() };
            match RedisServer::start_at(port, options)? {
                Some(sentinel) => sentinels.push(sentinel),
                None => continue 'attempt,
            }
        }
        return Ok(sentinels);
    }
    bail!("the sentinels found no free ports in {PORT_ATTEMPTS} attempts")
}

fn sentinel_config(
    options: &SentinelOptions,
    servers: &[RedisServer],
    own: SocketAddrV4,
    sentinels: &[SocketAddrV4],
) -> String {
    let mut lines = vec![
        format!("sentinel myid {}", sentinel_id(own)),
        format!("sentinel monitor {SERVICE} {} {} {QUORUM}", servers[0].ip(), servers[0].port()),
        format!("sentinel down-after-milliseconds {SERVICE} {}", options.down_after.as_millis()),
        format!("sentinel failover-timeout {SERVICE} {}", options.failover_timeout.as_millis()),
        // All replicas follow a new primary at once.
        format!("sentinel parallel-syncs {SERVICE} {REPLICAS}"),
    ];
    if let Some(password) = options.servers.password() {
        lines.push(format!("sentinel auth-pass {SERVICE} {password}"));
    }
    lines.extend(servers[1..].iter().map(|replica| {
        format!("sentinel known-replica {SERVICE} {} {}", replica.ip(), replica.port())
    }));
    lines.extend(sentinels.iter().filter(|&&addr| addr != own).map(|&addr| {
        let ip = addr.ip();
        let port = addr.port();
        let id = sentinel_id(addr);
        format!("sentinel known-sentinel {SERVICE} {ip} {port} {id}")
    }));
    lines.join("\n") + "\n"
}

/// 40 hexadecimal digits, different for each sentinel.
fn sentinel_id(addr: SocketAddrV4) -> String {
    format!("{:08x}{:032x}", addr.ip().to_bits(), addr.port())
}

/// Whether a failover would find enough votes and replicas.
fn knows_everybody(sentinel: &RedisServer) -> Result<bool> {
    let quorum = sentinel.command(["SENTINEL", "CKQUORUM", SERVICE])?.text();
    if !quorum.starts_with(&format!("OK {SENTINELS} usable")) {
        return Ok(false);
    }
    let replicas = sentinel.ask(["SENTINEL", "REPLICAS", SERVICE])?;
    let linked = replicas.elements().iter().filter(|replica| {
        let fields = replica.elements().chunks_exact(2);
        let has = |name: &str, value: &str| {
            fields.clone().any(|field| field[0].text() == name && field[1].text() == value)
        };
        has("flags", "slave") && has("master-link-status", "ok")
    });
    Ok(linked.count() == REPLICAS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server may stall for seconds, and the sentinels must not consider it down.
    const DOWN_AFTER: Duration = Duration::from_secs(5);
    const FAILOVER_TIMEOUT: Duration = Duration::from_secs(120);

    #[test]
    fn another_server_takes_over_from_a_killed_primary() {
        let servers = RedisOptions::default().with_password("secret");
        let options = SentinelOptions::default().with_servers(servers).with_down_after(DOWN_AFTER);
        let mut group = SentinelGroup::start_with(options).unwrap();
        assert_eq!(group.primary().unwrap(), 0);
        assert_eq!(group.url().matches("127.0.0.1:").count(), 3);
        group.servers()[0].ask(["SET", "a", "b"]).unwrap();
        assert_eq!(group.servers()[0].ask(["WAIT", "2", "30000"]).unwrap().text(), "2");

        group.server_mut(0).kill().unwrap();
        let primary = group.wait_for_new_primary(0, FAILOVER_TIMEOUT).unwrap();
        assert_ne!(primary, 0);
        assert_eq!(group.servers()[primary].ask(["GET", "a"]).unwrap().text(), "b");
        let other = 3 - primary;
        wait_for("the other replica's turn", FAILOVER_TIMEOUT, || {
            Ok((!group.servers()[other].is_primary()?).then_some(()))
        })
        .unwrap();
    }
}
