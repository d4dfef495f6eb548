//! The same work through the client crate alone.

use std::{hint::black_box, sync::Arc};

use lockkit_fixture::ZooKeeperServer;
use lockkit_zk::zookeeper_client::{Acls, Client, CreateMode};

/// Where the contended lock is.
const HOT: &str = "/bare/hot";
const RECORD: &[u8] = b"lockkit/1 00112233445566778899aabbccddeeff";

/// The floor: nobody waits, nothing is kept, no error is handled.
#[derive(Clone)]
pub(crate) struct Bare(Arc<Client>);

impl Bare {
    pub(crate) async fn open(server: &ZooKeeperServer) -> Self {
        let client = Client::connect(&server.addr().to_string()).await.unwrap();
        let this = Self(Arc::new(client));
        this.make("/bare").await;
        this.make(HOT).await;
        this
    }

    async fn make(&self, folder: &str) {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        // It may be there.
        let _ = self.0.create(folder, b"", &options).await;
    }

    /// Create and a look at the folder in one flush, then delete. The look is `exists`, of constant size, or what
    /// lockkit does: a list, which is all that a waiter needs as well.
    pub(crate) async fn pairs(self, name: String, count: usize, list: bool) {
        let folder = format!("/bare/{name}");
        self.make(&folder).await;
        let prefix = format!("{folder}/_c_{:032x}-lock-", rand::random::<u128>());
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        for _ in 0..count {
            let created = self.0.create(&prefix, RECORD, &options);
            let (_, sequence) = if list {
                let listed = self.0.list_children(&folder);
                let created = created.await.unwrap();
                assert_eq!(black_box(listed.await.unwrap()).len(), 1);
                created
            } else {
                let seen = self.0.check_stat(&folder);
                let created = created.await.unwrap();
                assert_eq!(black_box(seen.await.unwrap()).unwrap().num_children, 1);
                created
            };
            self.0.delete(&format!("{prefix}{sequence}"), None).await.unwrap();
        }
    }

    /// Curator's algorithm: each look lists, each wake-up looks again.
    pub(crate) async fn lock(&self) -> String {
        let folder = HOT;
        let prefix = format!("{folder}/_c_{:032x}-lock-", rand::random::<u128>());
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, sequence) = self.0.create(&prefix, RECORD, &options).await.unwrap();
        let path = format!("{prefix}{sequence}");
        loop {
            let mut children = self.0.list_children(folder).await.unwrap();
            // Ten digits at the end.
            children.sort_by(|a, b| a[a.len() - 10..].cmp(&b[b.len() - 10..]));
            let at = children.iter().position(|child| path.ends_with(child.as_str())).unwrap();
            let Some(ahead) = at.checked_sub(1) else { return path };
            let ahead = format!("{folder}/{}", children[ahead]);
            if let Ok((_, _, watcher)) = self.0.get_and_watch_data(&ahead).await {
                watcher.changed().await;
            }
        }
    }

    pub(crate) async fn unlock(&self, path: &str) {
        self.0.delete(path, None).await.unwrap();
    }
}
