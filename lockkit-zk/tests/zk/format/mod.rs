//! Nodes of other versions of lockkit: those of 0.1.0 are read and written, and those of newer
//! versions are left alone.

mod newer;
mod stored;

use lockkit_core::{Kind, LockName, OwnerId, spi::ClaimSpec, spi::Mode};
use lockkit_zk::zookeeper_client::{Acls, CreateMode};

use crate::support::*;

const UNFAIR: &str = "fair=false";

fn claim_of(kind: Kind, mode: Mode, owner: OwnerId) -> ClaimSpec {
    ClaimSpec::new(LockName::new(kind, "orders").unwrap(), owner, mode, TTL, OP_TIMEOUT)
}

impl Bed {
    fn path(&self, below: &str) -> String {
        format!("/{}/{below}", self.prefix)
    }

    /// Makes the nodes of a dump. Each line of the dump gives the type of a node, its path under
    /// the prefix, and its data.
    async fn load(&self, admin: &Admin, dump: &str) {
        let options = |mode: CreateMode| mode.with_acls(Acls::anyone_all());
        let root = format!("/{}", self.prefix);
        admin.0.create(&root, b"", &options(CreateMode::Persistent)).await.unwrap();
        for line in dump.lines() {
            let (mode, rest) = line.split_once(' ').unwrap();
            let (path, data) = rest.split_once(' ').unwrap_or((rest, ""));
            let mode = match mode {
                "ephemeral" => CreateMode::Ephemeral,
                "lasting" => CreateMode::Persistent,
                other => panic!("{other}"),
            };
            let data = data.replace("\\n", "\n");
            admin.0.create(&self.path(path), data.as_bytes(), &options(mode)).await.unwrap();
        }
    }

    /// Reads all nodes except those that heartbeats write to, which no other client reads.
    async fn dump(&self, admin: &Admin) -> Vec<String> {
        let mut lines = Vec::new();
        let mut rest = admin.children(&format!("/{}", self.prefix)).await;
        rest.retain(|node| node != "session");
        while let Some(node) = rest.pop() {
            let path = self.path(&node);
            let (data, stat) = admin.0.get_data(&path).await.unwrap();
            let mode = if stat.ephemeral_owner == 0 { "lasting" } else { "ephemeral" };
            let data = String::from_utf8(data).unwrap().replace('\n', "\\n");
            lines.push(format!("{mode} {node} {data}").trim_end().to_owned());
            rest.extend(
                admin.children(&path).await.into_iter().map(|child| format!("{node}/{child}")),
            );
        }
        lines.sort_by_key(|line| line.split(' ').nth(1).unwrap_or_default().to_owned());
        lines
    }
}
