//! A Galera cluster of MariaDB servers.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Error, Result, bail};

use super::{SqlFlavor, SqlServer, program::SqlProgram, server, template};
use crate::ports;

/// Where packages put the library that MariaDB uses for replication, if Galera is installed.
pub const GALERA_LIBRARIES: [&str; 4] = [
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib/libgalera_smm.so",
    "/usr/lib64/galera-4/libgalera_smm.so",
    "/usr/lib64/galera/libgalera_smm.so",
];
const NO_GALERA: &str = "Galera is not installed, so nothing can be tested on a cluster with several primaries. This \
                         command installs it: apt-get install --no-install-recommends galera-4";
/// A port that was free when this process looked may be taken when a node binds it.
const ATTEMPTS: usize = 5;
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);
/// The log line of a node that serves.
const SYNCED: &str = "Synchronized with group, ready for connections";
/// Any number, as long as all nodes have the same.
const CLUSTER: &str = "6c6f636b-6b69-7400-0000-000000000001";

/// Two MariaDB servers on 127.0.0.1 that both take writes and replicate them to each other.
///
/// Both start with copies of one data folder, and a state file says so. Therefore neither has to
/// send its data to the other one, and a node that was killed can't join again. That would need the
/// programs of a state transfer.
#[derive(Debug)]
pub struct GaleraCluster {
    nodes: [SqlServer; 2],
}

impl GaleraCluster {
    /// Starts both nodes, and waits until both serve.
    ///
    /// # Errors
    /// When MariaDB or Galera is not installed (the text says how to get it), or a node does not
    /// come up.
    pub fn start() -> Result<Self> {
        let library = library().context(NO_GALERA)?;
        let mut failure = None;
        for _ in 0..ATTEMPTS {
            match Self::start_on(&library, [ports::free()?, ports::free()?]) {
                Ok(cluster) => return Ok(cluster),
                Err(error) if ports::is_taken(&error) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(failure.unwrap_or_else(|| Error::msg("no attempt was made to start a cluster")))
    }

    /// The nodes. A write on one of them reaches the other a moment later.
    #[must_use]
    pub fn nodes(&self) -> &[SqlServer; 2] {
        &self.nodes
    }

    /// The nodes, for separate use: each can be paused and dropped by itself.
    #[must_use]
    pub fn into_nodes(self) -> [SqlServer; 2] {
        self.nodes
    }

    fn start_on(library: &Path, ports: [u16; 2]) -> Result<Self> {
        let [first, second] = ports;
        // The first node counts its start as one change. The second node's copy of the data then
        // has that change.
        let founder =
            start(library, first, 0, &["--wsrep-new-cluster", "--wsrep-cluster-address=gcomm://"])?;
        let address = format!("--wsrep-cluster-address=gcomm://127.0.0.1:{first}");
        let joiner = start(library, second, 1, &[&address])?;
        Ok(Self { nodes: [founder, joiner] })
    }
}

fn library() -> Option<PathBuf> {
    GALERA_LIBRARIES.map(PathBuf::from).into_iter().find(|library| library.is_file())
}

/// Starts a node whose data are those after `changes` changes, and waits until it serves.
fn start(library: &Path, port: u16, changes: u64, arguments: &[&str]) -> Result<SqlServer> {
    let program = SqlProgram::find(SqlFlavor::MariaDb).map_err(Error::msg)?;
    let folder = server::folder()?;
    let data = folder.path().join("data");
    template::copy_to(&program, &data)?;
    let state = format!(
        "# GALERA saved state\nversion: 2.1\nuuid:    {CLUSTER}\nseqno:   {changes}\nsafe_to_bootstrap: 1\n"
    );
    fs::write(data.join("grastate.dat"), state)?;
    // A busy machine must not make the nodes believe that they have lost each other.
    let provider = format!(
        "--wsrep-provider-options=base_port={port};gmcast.listen_addr=tcp://127.0.0.1:{port};gcache.size=16M;\
         evs.suspect_timeout=PT30S;evs.inactive_timeout=PT60S;pc.recovery=false"
    );
    let fixed = [
        "--wsrep-on=ON",
        "--wsrep-node-address=127.0.0.1",
        "--wsrep-sst-method=skip",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
    ];
    let mut all = vec![server::option("wsrep-provider", library), provider.into()];
    all.extend(fixed.iter().chain(arguments).map(Into::into));
    let node = SqlServer::start_on_data(program, folder, None, None, all)?;
    let deadline = Instant::now() + JOIN_TIMEOUT;
    while !node.log().contains(SYNCED) {
        if Instant::now() > deadline {
            bail!(
                "a node did not join its cluster within {JOIN_TIMEOUT:?}; its log:\n{}",
                node.log()
            );
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(node)
}
