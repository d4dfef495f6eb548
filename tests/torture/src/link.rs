//! The connections of one process to the servers. A fault can break them without harm to other
//! processes.

use std::{fmt, net::SocketAddr, time::Duration};

use lockkit::url::{Host, StoreUrl};
use lockkit_conformance::proxy::Proxy;
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

use crate::error::{Error, Result};

/// The time to connect to one address of a server.
const CONNECT: Duration = Duration::from_secs(2);

/// A fault of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkFault {
    /// Nothing passes, and no side gets an error. Sent data arrives when the fault is over.
    Silence,
    /// The servers execute requests, but the replies never arrive.
    LostReplies,
    /// Requests arrive late, and many arrive after their sender has given up.
    LateRequests,
    /// Each round trip takes this long, or up to an eighth longer. A locker still renews a lease
    /// with its own time.
    Slow(Duration),
    /// The same with longer round trips. They are too long for stores that need several round trips
    /// in a lease.
    Slower(Duration),
    /// No connection can be opened, and open connections are reset.
    Refused,
    /// Every connection is reset.
    Reset,
    /// Every connection is reset at the client's side. Sent data arrives when the fault is over.
    ResetLate,
    /// Every connection is reset in the middle of a message.
    CutMidway,
}

impl LinkFault {
    pub(crate) const ALL: [Self; 9] = [
        Self::Silence,
        Self::LostReplies,
        Self::LateRequests,
        Self::Slow(Duration::ZERO),
        Self::Slower(Duration::ZERO),
        Self::Refused,
        Self::Reset,
        Self::ResetLate,
        Self::CutMidway,
    ];

    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Silence => "link-silence",
            Self::LostReplies => "link-lost-replies",
            Self::LateRequests => "link-late-requests",
            Self::Slow(_) => "link-slow",
            Self::Slower(_) => "link-slower",
            Self::Refused => "link-refused",
            Self::Reset => "link-reset",
            Self::ResetLate => "link-reset-late",
            Self::CutMidway => "link-cut-midway",
        }
    }

    /// Whether the fault is over at once, without a heal.
    pub(crate) fn is_momentary(self) -> bool {
        matches!(self, Self::Reset)
    }

    /// Whether the fault breaks a connection, when it begins or when it ends.
    pub(crate) fn breaks_connections(self) -> bool {
        // If a request gets no reply for too long, the client abandons its connection.
        !matches!(self, Self::Slow(_))
    }
}

/// Proxies in front of the servers that a URL names.
pub(crate) struct Link {
    proxies: Vec<Proxy>,
    url: String,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: Vec<_> = self.proxies.iter().map(|proxy| proxy.addr().port()).collect();
        f.debug_struct("Link").field("ports", &ports).finish_non_exhaustive()
    }
}

impl Link {
    /// Puts proxies in front of the servers of `url`. Returns `None` if a proxy is impossible,
    /// because the servers send clients to other addresses, or prove their identity by their name.
    pub(crate) async fn to(url: &str) -> Result<Option<Self>> {
        let parsed =
            StoreUrl::parse(url).map_err(|error| Error::of("cannot use the store URL", error))?;
        let Some(default_port) = default_port(parsed.scheme()) else { return Ok(None) };
        let mut proxies = Vec::new();
        for host in parsed.hosts() {
            let server = reachable(&addresses(host, default_port).await?).await;
            let server = server
                .ok_or_else(|| Error::new(format!("{} has no network address", host.name)))?;
            let proxy = Proxy::start(server).await;
            proxies.push(proxy.map_err(|error| Error::of("could not start a proxy", error))?);
        }
        if proxies.is_empty() {
            return Ok(None);
        }
        let hosts: Vec<_> = proxies.iter().map(|proxy| proxy.addr().to_string()).collect();
        let Some(url) = with_hosts(url, &hosts.join(",")) else { return Ok(None) };
        Ok(Some(Self { proxies, url }))
    }

    /// Whether a link to the servers of `url` is possible.
    pub(crate) fn fits(url: &str) -> Result<bool> {
        let parsed =
            StoreUrl::parse(url).map_err(|error| Error::of("cannot use the store URL", error))?;
        Ok(default_port(parsed.scheme()).is_some() && !parsed.hosts().is_empty())
    }

    /// The URL of the store through the proxies.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Begins a fault. `lasts` is its length, and `chance` is a random number for the remaining
    /// choices.
    pub(crate) fn strike(&self, fault: LinkFault, lasts: Duration, chance: u64) {
        for proxy in &self.proxies {
            match fault {
                LinkFault::Silence => proxy.set(|toxics| {
                    toxics.up.hold = true;
                    toxics.down.hold = true;
                }),
                LinkFault::LostReplies => proxy.set(|toxics| toxics.down.discard = true),
                LinkFault::LateRequests => proxy.set(|toxics| toxics.up.delay = lasts),
                LinkFault::Slow(round_trip) | LinkFault::Slower(round_trip) => {
                    proxy.set(|toxics| {
                        for direction in [&mut toxics.up, &mut toxics.down] {
                            direction.delay = round_trip / 2;
                            direction.jitter = round_trip / 16;
                        }
                    })
                }
                LinkFault::Refused => {
                    proxy.set(|toxics| toxics.refuse = true);
                    proxy.reset_all();
                }
                LinkFault::Reset => proxy.reset_all(),
                LinkFault::ResetLate => proxy.reset_clients(lasts),
                LinkFault::CutMidway => proxy.set(|toxics| {
                    // This cuts within the first few messages. Replies are shorter than requests.
                    if chance.is_multiple_of(2) {
                        toxics.up.cut_after = Some(1 + chance / 2 % 300);
                    } else {
                        toxics.down.cut_after = Some(1 + chance / 2 % 80);
                    }
                }),
            }
        }
    }

    pub(crate) fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }
}

/// The default port of a server that allows a proxy in between.
fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "redis" | "valkey" => Some(6379),
        "mysql" => Some(3306),
        "zk" => Some(2181),
        _ => None,
    }
}

async fn addresses(host: &Host, default_port: u16) -> Result<Vec<SocketAddr>> {
    let asked = (host.name.as_str(), host.port.unwrap_or(default_port));
    let found = lookup_host(asked).await;
    found.map(Iterator::collect).map_err(|error| {
        Error::of(format!("could not look up the address of {}", host.name), error)
    })
}

/// The first address that accepts a connection, as clients choose it. If no address accepts one
/// now, the first address.
async fn reachable(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    for address in addresses {
        if let Ok(Ok(_)) = timeout(CONNECT, TcpStream::connect(address)).await {
            return Some(*address);
        }
    }
    addresses.first().copied()
}

/// The URL with other hosts, and unchanged otherwise.
fn with_hosts(url: &str, hosts: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let user = authority.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
    Some(format!("{scheme}://{user}{hosts}{tail}"))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn only_the_hosts_of_a_url_change() {
        for (url, changed) in [
            ("zk://a:1,b:2/x?fair=false", "zk://h:9/x?fair=false"),
            ("redis://u:p%40w@a", "redis://u:p%40w@h:9"),
            ("mysql://root@[::1]:3306/db?x=/y", "mysql://root@h:9/db?x=/y"),
        ] {
            assert_eq!(with_hosts(url, "h:9").unwrap(), changed);
        }
    }

    #[tokio::test]
    async fn a_server_that_listens_on_the_second_address_of_its_name_is_reached() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let second = server.local_addr().unwrap();
        let first = SocketAddr::new("::1".parse().unwrap(), second.port());
        assert_eq!(reachable(&[first, second]).await, Some(second));
        drop(server);
        assert_eq!(
            reachable(&[first, second]).await,
            Some(first),
            "a server may be down for a while"
        );
        assert_eq!(reachable(&[]).await, None);
    }

    #[tokio::test]
    async fn a_cut_midway_breaks_a_message_of_an_old_connection() {
        for chance in 0..2 {
            let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let link = Link::to(&format!("redis://{}", server.local_addr().unwrap()))
                .await
                .unwrap()
                .unwrap();
            // This is the connection that looked for a listener.
            server.accept().await.unwrap();
            let mut client = TcpStream::connect(link.proxies[0].addr()).await.unwrap();
            let (mut serving, _) = server.accept().await.unwrap();
            let message = [7; 500];
            let (from, to) =
                if chance == 0 { (&mut client, &mut serving) } else { (&mut serving, &mut client) };
            from.write_all(&message).await.unwrap();
            to.read_exact(&mut [0; 500]).await.unwrap();
            link.strike(LinkFault::CutMidway, Duration::ZERO, chance);
            from.write_all(&message).await.unwrap();
            let mut torn = Vec::new();
            to.read_to_end(&mut torn).await.unwrap_err();
            // The reset may arrive before the data.
            assert!(torn.len() <= 1, "{}", torn.len());
        }
    }

    #[tokio::test]
    async fn servers_that_name_other_addresses_get_no_proxy() {
        for url in [
            "redis+sentinel://h/main",
            "redis+cluster://h",
            "memory://",
            "rediss://h",
            "redis+unix:///s",
        ] {
            assert!(Link::to(url).await.unwrap().is_none(), "{url}");
            assert!(!Link::fits(url).unwrap(), "{url}");
        }
        let link = Link::to("redis://:secret@127.0.0.1:1/0").await.unwrap().unwrap();
        assert!(link.url().starts_with("redis://:secret@127.0.0.1:"), "the password goes along");
        assert!(!format!("{link:?}").contains("secret"));
    }
}
