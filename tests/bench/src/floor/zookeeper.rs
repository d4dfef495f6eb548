//! The rivals on ZooKeeper, all on one session. The floor makes a node, checks its folder in the
//! same flush, and deletes the node. With `fair=false` it makes and deletes a node at a fixed path.
//! The classic is the lock recipe of the client library, which frees a lock in the background.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use lockkit::{
    OwnerId,
    url::StoreUrl,
    zk::{
        Config,
        zookeeper_client::{Client, CreateMode, Error as ZkError, LockPrefix},
    },
};

use super::{Floor, FloorClient, Rival, held};
use crate::{Error, Result, report::Side};

/// The number of folders to remove at once.
const AT_ONCE: usize = 64;

/// All rivals of lockkit on these servers.
pub(super) async fn rivals(url: StoreUrl) -> Vec<Rival> {
    let sides = [Side::Classic, Side::Floor];
    match ZooKeeperFloor::open(url).await {
        Ok(floor) => {
            sides.map(|side| Rival::new(side, Ok(ZooKeeperFloor { side, ..floor.clone() }))).into()
        }
        Err(error) => sides.map(|side| Rival::without(side, error.to_string())).into(),
    }
}

#[derive(Clone)]
struct ZooKeeperFloor {
    side: Side,
    config: Config,
    client: Arc<Client>,
    /// All folders that clients have made.
    folders: Arc<std::sync::Mutex<HashSet<String>>>,
}

impl ZooKeeperFloor {
    async fn open(url: StoreUrl) -> Result<Self> {
        let config = Config::from_url(url).map_err(opening)?;
        let client = Arc::new(config.open_bare().await.map_err(opening)?);
        Ok(Self { side: Side::Floor, config, client, folders: Arc::default() })
    }

    /// Removes a folder, with the nodes of clients that were stopped during their work.
    async fn remove(&self, folder: String) -> Result<()> {
        let left = match self.client.list_children(&folder).await {
            Err(ZkError::NoNode) => return Ok(()),
            left => left.map_err(cleaning)?,
        };
        let nodes = left.iter().map(|node| format!("{folder}/{node}"));
        for path in nodes.chain([folder.clone()]) {
            match self.client.delete(&path, None).await {
                Ok(()) | Err(ZkError::NoNode) => {}
                Err(error) => return Err(cleaning(error)),
            }
        }
        Ok(())
    }
}

fn opening(error: lockkit::Error) -> Error {
    Error::of("could not connect the bare client to ZooKeeper", error)
}

fn cleaning(error: ZkError) -> Error {
    Error::of("could not remove the nodes of the bare client from ZooKeeper", error)
}

fn failed(error: ZkError) -> Error {
    Error::of("a request of the bare client to ZooKeeper failed", error)
}

#[async_trait]
impl Floor for ZooKeeperFloor {
    async fn clients(&self, tasks: usize) -> Result<Vec<Box<dyn FloorClient>>> {
        let client = || -> Box<dyn FloorClient> {
            Box::new(ZooKeeperClient {
                floor: self.clone(),
                owner: OwnerId::random().to_string(),
                folders: HashMap::new(),
            })
        };
        Ok((0..tasks).map(|_| client()).collect())
    }

    async fn close(&self) -> Result<()> {
        let folders: Vec<_> =
            self.folders.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
        let removals = folders.into_iter().map(|folder| self.remove(folder));
        stream::iter(removals).buffer_unordered(AT_ONCE).try_collect().await
    }
}

impl fmt::Debug for ZooKeeperFloor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperFloor").field("config", &self.config).finish_non_exhaustive()
    }
}

struct ZooKeeperClient {
    floor: ZooKeeperFloor,
    /// The owner id of this client.
    owner: String,
    /// The folder of each name.
    folders: HashMap<String, String>,
}

impl ZooKeeperClient {
    async fn make_folder(&mut self, name: &str) -> Result<String> {
        let ZooKeeperFloor { side, config, client, folders } = &self.floor;
        // A rival's name differs from the name of lockkit's own mutex.
        let made = config.make_mutex_folder(client, &format!("{name}/{side:?}")).await;
        let folder =
            made.map_err(|error| Error::of("could not create a folder in ZooKeeper", error))?;
        folders.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.clone());
        self.folders.insert(name.to_owned(), folder.clone());
        Ok(folder)
    }

    async fn work(&self, folder: &str, hold: Duration) -> Result<Instant, ZkError> {
        let ZooKeeperFloor { config, client, .. } = &self.floor;
        let record = format!("lockkit/1 {}", self.owner);
        if self.floor.side == Side::Classic {
            let prefix = LockPrefix::new_curator(folder, "lock-")?;
            let _lock = client.lock(prefix, record.as_bytes(), config.acls()).await?;
            return Ok(held(hold).await);
        }
        let path = if config.is_fair() {
            let prefix = format!("{folder}/_c_{}-lock-", self.owner);
            let options = CreateMode::EphemeralSequential.with_acls(config.acls());
            let created = client.create(&prefix, record.as_bytes(), &options);
            let seen = client.check_stat(folder);
            let (_, sequence) = created.await?;
            seen.await?;
            format!("{prefix}{sequence}")
        } else {
            let path = format!("{folder}/held");
            client
                .create(&path, record.as_bytes(), &CreateMode::Ephemeral.with_acls(config.acls()))
                .await?;
            path
        };
        let granted = held(hold).await;
        client.delete(&path, None).await?;
        Ok(granted)
    }
}

#[async_trait]
impl FloorClient for ZooKeeperClient {
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant> {
        let folder = match self.folders.get(name) {
            Some(folder) => folder.clone(),
            None => self.make_folder(name).await?,
        };
        match self.work(&folder, hold).await {
            // The servers remove empty folders.
            Err(ZkError::NoNode) => {
                let folder = self.make_folder(name).await?;
                self.work(&folder, hold).await.map_err(failed)
            }
            answer => answer.map_err(failed),
        }
    }
}
