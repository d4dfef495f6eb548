//! ZooKeeper under test: a server of this test, or the one that `LOCKKIT_TEST_ZK_URL` names.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Link, Store};
use lockkit_core::{
    Kind, LockName,
    spi::{Backend, Descriptor},
    url::StoreUrl,
};
use lockkit_fixture::{
    TestZooKeeper, ZooKeeperOptions, ZooKeeperServer, zookeeper_from_env_or_start,
};
use lockkit_zk::{
    Config, ZooKeeper,
    zookeeper_client::{self as zk, Acls, Client, CreateMode},
};
use tokio::time::sleep;

use crate::shared::{Address, Proxies, Shared, Spare};

const PORT: u16 = 2181;
/// Short, because some cases wait until a lease ends. Long enough for a connection to survive a
/// server that pauses for two seconds.
const SESSION: &str = "18s";
/// A server that has just started, or that pauses, may take longer for its first requests than such
/// sessions allow.
const PATIENCE: Duration = Duration::from_secs(30);

fn options() -> ZooKeeperOptions {
    ZooKeeperOptions::default().with_config("maxSessionTimeout=60000")
}

/// One server. Each case works under its own random prefix.
#[derive(Debug)]
pub(crate) struct ZooKeeperStore {
    name: &'static str,
    parameters: &'static str,
    descriptor: Descriptor,
    place: Place,
    spare: Spare<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    host: SocketAddr,
    server: Shared<ZooKeeperServer>,
}

impl ZooKeeperStore {
    /// Starts the server, or finds it, and reads its abilities, with fair queues and without them.
    pub(crate) fn start() -> Result<[Self; 2], BoxError> {
        let TestZooKeeper { url, server } = zookeeper_from_env_or_start(options())?;
        let place = Place { host: Address::parse(&url, PORT)?.host, server: Shared::new(server) };
        let spare = Spare::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let store = |name, parameters| {
            let host = place.host;
            let mut descriptor = runtime.block_on(async {
                let backend = connect(host, "lockkit-probe", parameters).await?;
                let descriptor = backend.descriptor().clone();
                backend.close().await?;
                admin(host).await?.delete("/lockkit-probe/mutex", None).await?;
                Ok::<_, BoxError>(descriptor)
            })?;
            if !descriptor.capabilities.fair {
                // The other locks are the same with and without fair mutexes.
                (descriptor.capabilities.shared, descriptor.capabilities.permits) = (false, false);
            }
            let store =
                Self { name, parameters, descriptor, place: place.clone(), spare: spare.clone() };
            Ok::<_, BoxError>(store)
        };
        Ok([store("zookeeper", "fair=true")?, store("zookeeper-unfair", "fair=false")?])
    }

    /// Whether the server may be stopped and restarted.
    pub(crate) fn is_ours(&self) -> bool {
        self.place.server.are_ours()
    }
}

#[async_trait]
impl Store for ZooKeeperStore {
    fn name(&self) -> &str {
        self.name
    }

    fn descriptor(&self) -> Descriptor {
        self.descriptor.clone()
    }

    fn site(&self) -> String {
        self.place.host.to_string()
    }

    fn hooks(&self) -> Vec<Hook> {
        let mut hooks = vec![Hook::Flush, Hook::Wire];
        if self.descriptor.capabilities.fair {
            hooks.push(Hook::Foreign);
        }
        if self.is_ours() {
            hooks.extend([Hook::Pause, Hook::Restart]);
        }
        hooks
    }

    fn on_a_server_of_its_own(&self) -> Result<Option<Arc<dyn Store>>, BoxError> {
        if !self.is_ours() {
            return Ok(None);
        }
        let place = self.spare.get_or_start(|| {
            let server = ZooKeeperServer::start_with(options())?;
            let host = Address::parse(&server.url(), PORT)?.host;
            Ok(Place { host, server: Shared::new(Some(server)) })
        })?;
        let name = self.name;
        let parameters = self.parameters;
        let descriptor = self.descriptor.clone();
        Ok(Some(Arc::new(Self { name, parameters, descriptor, place, spare: Spare::default() })))
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(ZooKeeperHarness {
            prefix: format!("lockkit-test-{:016x}", rand::random::<u64>()),
            host: self.place.host,
            parameters: self.parameters,
            server: self.place.server.clone(),
            proxies: Proxies::default(),
            foreign: Mutex::default(),
        }))
    }
}

#[derive(Debug)]
struct ZooKeeperHarness {
    prefix: String,
    host: SocketAddr,
    parameters: &'static str,
    server: Shared<ZooKeeperServer>,
    proxies: Proxies,
    /// The other program's session, and its node.
    foreign: Mutex<Option<(Client, String)>>,
}

impl ZooKeeperHarness {
    /// The folder of a lock in the public format, which Java programs use.
    fn folder(&self, name: &LockName) -> String {
        let mut escaped = String::new();
        for c in name.as_str().chars() {
            if matches!(c, '/' | '%') || u32::from(c) > 0xffff {
                for byte in c.to_string().bytes() {
                    escaped.push_str(&format!("%{byte:02X}"));
                }
            } else {
                escaped.push(c);
            }
        }
        format!("/{}/{}/{escaped}", self.prefix, name.kind())
    }

    /// Everything below the prefix, parents first.
    async fn nodes(&self, admin: &Client) -> Result<Vec<String>, BoxError> {
        let mut nodes = vec![format!("/{}", self.prefix)];
        let mut next = 0;
        while let Some(node) = nodes.get(next).cloned() {
            next += 1;
            match admin.list_children(&node).await {
                Ok(children) => {
                    nodes.extend(children.iter().map(|child| format!("{node}/{child}")))
                }
                Err(zk::Error::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(nodes)
    }
}

#[async_trait]
impl Harness for ZooKeeperHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(connect(self.host, &self.prefix, self.parameters).await?))
    }

    async fn connect_through_faults(&self) -> Result<(Arc<dyn Backend>, Arc<dyn Link>), BoxError> {
        let proxy = self.proxies.start(self.host).await?;
        Ok((Arc::new(connect(proxy.addr(), &self.prefix, self.parameters).await?), proxy))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        let backend = connect(self.host, &self.prefix, self.parameters).await?;
        let held = backend.inspect(name).await?.holders;
        backend.close().await?;
        let admin = admin(self.host).await?;
        let folder = self.folder(name);
        for child in admin.list_children(&folder).await? {
            let path = format!("{folder}/{child}");
            let Some(stat) = admin.check_stat(&path).await? else { continue };
            let created = u64::try_from(stat.czxid)?;
            if held.iter().any(|holder| holder.token.is_some_and(|token| token.get() == created)) {
                match admin.delete(&path, None).await {
                    // The holder may have ended by itself in the meantime.
                    Ok(()) | Err(zk::Error::NoNode) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        let admin = admin(self.host).await?;
        let mut leaks = Vec::new();
        let heartbeats = format!("/{}/session/", self.prefix);
        for node in self.nodes(&admin).await? {
            // The node lives as long as the session, whatever happens to the session's claims.
            if node.starts_with(&heartbeats) {
                continue;
            }
            if admin.check_stat(&node).await?.is_some_and(|stat| stat.ephemeral_owner != 0) {
                leaks.push(format!("the node {node:?}"));
            }
        }
        if self.server.are_ours() {
            let ours = format!("/{}", self.prefix);
            let watched = self.server.lock()?.four_letter("wchp")?;
            let watched = watched.lines().filter(|line| line.starts_with(&ours));
            leaks.extend(watched.map(|node| format!("a watch on {node}")));
        }
        Ok(leaks)
    }

    async fn close(&self) {
        self.proxies.end();
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Err(error) = self.flush().await {
            eprintln!("the nodes of a case are left behind: {error}");
        }
    }

    async fn flush(&self) -> Result<(), BoxError> {
        let admin = admin(self.host).await?;
        for node in self.nodes(&admin).await?.iter().rev() {
            match admin.delete(node, None).await {
                // A claim is still at work in this folder.
                Ok(()) | Err(zk::Error::NoNode | zk::Error::NotEmpty) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn foreign_lock(&self, name: &LockName, _ttl: Duration) -> Result<(), BoxError> {
        let admin = admin(self.host).await?;
        let folder = self.folder(name);
        let marker = match name.kind() {
            // Curator's LeaderSelector is such a mutex.
            Kind::Election | Kind::Mutex => "lock-",
            Kind::RwLock => "__WRIT__",
            kind => return Err(format!("no other program has a {kind}").into()),
        };
        admin.mkdir(&folder, &CreateMode::Container.with_acls(Acls::anyone_all())).await?;
        // Curator uses this name without protection.
        let prefix = format!("{folder}/{marker}");
        let node = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, sequence) = admin.create(&prefix, b"192.168.1.7", &node).await?;
        let path = format!("{prefix}{sequence}");
        *self.foreign.lock().unwrap_or_else(PoisonError::into_inner) = Some((admin, path));
        Ok(())
    }

    async fn foreign_unlock(&self, _name: &LockName) -> Result<bool, BoxError> {
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (admin, path) = foreign.ok_or("there is no foreign lock")?;
        Ok(admin.delete(&path, None).await.is_ok())
    }

    async fn pause(&self) -> Result<(), BoxError> {
        self.server.pause()
    }

    async fn resume(&self) -> Result<(), BoxError> {
        self.server.resume()
    }

    async fn restart(&self) -> Result<(), BoxError> {
        Ok(self.server.lock()?.restart()?)
    }
}

async fn connect(host: SocketAddr, prefix: &str, parameters: &str) -> Result<ZooKeeper, BoxError> {
    let url = format!(
        "zk://{host}/?prefix={prefix}&session_timeout={SESSION}&connect_timeout=4s&{parameters}"
    );
    let start = Instant::now();
    loop {
        match ZooKeeper::connect(Config::from_url(StoreUrl::parse(&url)?)?).await {
            Err(_) if start.elapsed() < PATIENCE => sleep(Duration::from_millis(50)).await,
            answer => return Ok(answer?),
        }
    }
}

async fn admin(host: SocketAddr) -> Result<Client, BoxError> {
    Ok(Client::connector().with_session_timeout(PATIENCE).connect(&host.to_string()).await?)
}
