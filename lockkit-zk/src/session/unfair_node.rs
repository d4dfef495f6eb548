//! The node of an unfair mutex. It has a fixed path, so it looks like the node of the next holder.
//!
//! One transaction makes the node, writes to its folder, and makes a second node beside it. The
//! version of the folder then distinguishes the grants for as long as the folder exists. A folder
//! that is deleted and made again starts to count its versions again. The second node, whose name
//! is unique, proves that the folder is still the same.

use lockkit_core::spi::Released;
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteError, MultiWriteResult, Stat};

/// The node's name in its folder. Its data ends with the id of the attempt that made it.
pub(crate) const HELD: &str = "held";
/// How often a release looks again after another client wrote to the folder meanwhile.
const MOST_LOOKS: u32 = 3;
const ID_DIGITS: usize = 32;

/// The node of an unfair mutex, and an attempt to make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnfairNode {
    folder: String,
    id: String,
    /// The version that the grant gave to the folder, once it is known.
    version: Option<i32>,
}

impl UnfairNode {
    /// An attempt with a unique id.
    pub(crate) fn new(folder: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            id: format!("{:032x}", rand::random::<u128>()),
            version: None,
        }
    }

    /// The attempt that wrote this data.
    pub(crate) fn of(folder: &str, data: &[u8]) -> Option<Self> {
        let id = std::str::from_utf8(data.rsplit(|byte| *byte == b'\n').next()?).ok()?;
        let is_ours = id.len() == ID_DIGITS
            && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_ours.then(|| Self { folder: folder.to_owned(), id: id.to_owned(), version: None })
    }

    /// The length of the paths of both nodes.
    pub(crate) fn bytes(folder: &str) -> usize {
        2 * (folder.len() + 1 + HELD.len()) + 1 + ID_DIGITS
    }

    pub(super) fn folder(&self) -> &str {
        &self.folder
    }

    /// Records the version that the grant gave to the folder.
    pub(super) fn granted_by(&mut self, version: i32) {
        self.version = Some(version);
    }

    /// Whether no grant of this attempt was seen.
    pub(super) fn is_unseen(&self) -> bool {
        self.version.is_none()
    }

    /// Whether this name is the second node of this attempt.
    pub(super) fn is_beside(&self, name: &str) -> bool {
        name.strip_prefix(HELD).and_then(|rest| rest.strip_prefix('-')) == Some(&self.id)
    }

    /// Whether a name in the folder belongs to an unfair mutex.
    pub(crate) fn is_known(name: &str) -> bool {
        name.strip_prefix(HELD).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    fn held(&self) -> String {
        format!("{}/{HELD}", self.folder)
    }

    fn proof(&self) -> String {
        format!("{}/{HELD}-{}", self.folder, self.id)
    }

    /// Makes the node. Returns the state of the folder, because a written node has a valid zxid,
    /// and the new node has the same one. In servers of the 3.8 series, a node that a transaction
    /// made has no valid zxid (ZOOKEEPER-4026).
    ///
    /// # Errors
    /// `NodeExists` if another claim has the lock.
    pub(crate) async fn make(
        &self,
        client: &Client,
        record: &[u8],
        acls: Acls<'static>,
    ) -> Result<Stat, Error> {
        let ephemeral = CreateMode::Ephemeral.with_acls(acls);
        let data = [record, b"\n", self.id.as_bytes()].concat();
        let mut writer = client.new_multi_writer();
        writer.add_set_data(&self.folder, b"", None)?;
        writer.add_create(&self.held(), &data, &ephemeral)?;
        writer.add_create(&self.proof(), b"", &ephemeral)?;
        match writer.commit().await {
            Ok(results) => match results.first() {
                Some(MultiWriteResult::SetData { stat }) => Ok(*stat),
                _ => Err(Error::UnexpectedError(
                    "the server answered a transaction with unexpected results".to_owned(),
                )),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Looks for the node after a request without an answer.
    ///
    /// # Errors
    /// The server does not answer; the state is still unknown.
    pub(super) async fn find(&mut self, client: &Client) -> Result<Option<(String, Stat)>, Error> {
        let held = self.held();
        // The requests have this order so that the second read shows a grant that comes between the
        // two reads.
        let synced = client.sync(&self.folder);
        let folder = client.check_stat(&self.folder);
        let node = client.get_data(&held);
        synced.await?;
        let version = folder.await?.map(|folder| folder.version);
        self.version = None;
        match node.await {
            Ok((data, stat)) if data.ends_with(self.id.as_bytes()) => {
                self.version = version;
                Ok(Some((held, stat)))
            }
            Ok(_) | Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The nodes that prove the grant, and the versions that they must have. -1 means any version.
    ///
    /// # Errors
    /// The server does not answer; the state is unknown.
    pub(super) async fn proofs(
        &mut self,
        client: &Client,
    ) -> Result<Option<[(String, i32); 3]>, Error> {
        let known = match self.version {
            Some(version) => Some(version),
            None => self.find(client).await?.and(self.version),
        };
        let Some(version) = known else { return Ok(None) };
        Ok(Some([(self.folder.clone(), version), (self.proof(), -1), (self.held(), -1)]))
    }

    /// Forgets the version, because the folder has another one by now.
    pub(super) fn forget_version(&mut self) {
        self.version = None;
    }

    /// Deletes the node, and never the node of another claim.
    ///
    /// # Errors
    /// The error of the server. Unless it is final, the deletion may have been applied.
    pub(crate) async fn free(&mut self, client: &Client) -> Result<Released, Error> {
        for _ in 0..MOST_LOOKS {
            let known = match self.version {
                Some(version) => Some(version),
                None => self.find(client).await?.and(self.version),
            };
            let Some(version) = known else { return self.withdraw(client).await };
            let mut writer = client.new_multi_writer();
            writer.add_check_version(&self.folder, version)?;
            writer.add_delete(&self.proof(), None)?;
            writer.add_delete(&self.held(), None)?;
            match writer.commit().await {
                Ok(_) => return Ok(Released::Freed),
                Err(MultiWriteError::OperationFailed { source: Error::BadVersion, .. }) => {
                    self.version = None
                }
                Err(MultiWriteError::OperationFailed { source: Error::NoNode, .. }) => {
                    return self.withdraw(client).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Throttled)
    }

    /// Deletes only the second node, which may have stayed. The first node does not belong to this
    /// attempt any more.
    async fn withdraw(&self, client: &Client) -> Result<Released, Error> {
        match client.delete(&self.proof(), None).await {
            Ok(()) | Err(Error::NoNode) => Ok(Released::NotHeld),
            Err(error) => Err(error),
        }
    }
}
