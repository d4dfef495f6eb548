//! The bare client on the same servers, for measurements and for requests that lockkit never sends.

use lockkit_core::{Kind, LockName, Result};
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};

use crate::{
    config::{Config, address},
    error::{Phase, from_zk},
    folder, session,
};

impl Config {
    /// Opens a session of the bare client with the same settings as lockkit's own sessions. Only
    /// the session timeout bounds how long its requests take.
    ///
    /// # Errors
    /// [`Unavailable`](lockkit_core::ErrorKind::Unavailable) with the fault of each server, and
    /// [`InvalidUrl`](lockkit_core::ErrorKind::InvalidUrl) if the chroot does not exist.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn open_bare(&self) -> Result<Client> {
        self.check()?;
        session::open_client(self).await
    }

    /// Makes the folder for the nodes of a mutex in the same way as lockkit does, and returns its
    /// path. The folder is a container: the servers delete it some time after its last use.
    ///
    /// # Errors
    /// [`InvalidName`](lockkit_core::ErrorKind::InvalidName), errors of the servers, and
    /// [`InvalidOption`](lockkit_core::ErrorKind::InvalidOption) if others use the prefix with
    /// another `fair`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn make_mutex_folder(&self, client: &Client, name: &str) -> Result<String> {
        let path = self.layout().lock(&LockName::new(Kind::Mutex, name)?);
        folder::check_strategy(client, self, Kind::Mutex).await?;
        match client.create(&path, b"", &CreateMode::Container.with_acls(self.acls())).await {
            Ok(_) | Err(ZkError::NodeExists) => Ok(path),
            Err(error) => Err(from_zk(error, Phase::Write, "creating", &path)),
        }
    }

    /// The ACLs of the nodes that lockkit makes.
    #[must_use]
    pub fn acls(&self) -> Acls<'static> {
        self.acl.acls()
    }

    /// False with [unfair mutexes](Self::with_unfair_mutexes).
    #[must_use]
    pub fn is_fair(&self) -> bool {
        self.fair
    }

    /// The servers, as `host:port`.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.servers().iter().map(|(host, port)| address(host, *port)).collect()
    }
}
