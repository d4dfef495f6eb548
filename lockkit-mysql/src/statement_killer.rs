//! Ends on the server what was dropped midway here.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinSet, time};

use crate::{
    channel::{Channel, DropHandler},
    connection::GivenUp,
    server::Server,
};

/// How long one `KILL` may take; and longer, where a connection for it may.
const PATIENCE: Duration = Duration::from_secs(3);

/// Kills statements whose futures were dropped. The server would go on with them, and with the
/// locks that they wait for, until it notices that the socket is closed: only when it has an answer
/// to give.
#[derive(Debug)]
pub(crate) struct StatementKiller {
    /// A connection of its own: those of the pool may all be taken by locks that wait for this one.
    side: Channel,
    patience: Duration,
    kills: Mutex<JoinSet<()>>,
}

impl StatementKiller {
    pub(crate) fn new(side: Channel, connect_timeout: Duration) -> Self {
        Self { side, patience: PATIENCE.max(connect_timeout), kills: Mutex::default() }
    }

    /// Waits for what is under way, but not for runtimes that nobody drives.
    pub(crate) async fn finish(&self) {
        let mut kills =
            std::mem::take(&mut *self.kills.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = time::timeout(self.patience, async { while kills.join_next().await.is_some() {} })
            .await;
    }
}

impl DropHandler for StatementKiller {
    /// Takes care of a connection in the background. Outside a runtime its socket is closed, and
    /// the server is left to its own timeouts.
    fn dropped(&self, given_up: GivenUp) {
        let Ok(runtime) = Handle::try_current() else { return };
        let side = self.side.clone();
        let patience = self.patience;
        let mut kills = self.kills.lock().unwrap_or_else(PoisonError::into_inner);
        while kills.try_join_next().is_some() {}
        kills.spawn_on(
            async move {
                // The socket stays open until then, or its number could be another connection's.
                let _ = time::timeout(patience, kill(&side, &given_up.server, patience)).await;
            },
            &runtime,
        );
    }
}

async fn kill(side: &Channel, victim: &Server, patience: Duration) {
    let killed = async {
        let mut connection = side.get(patience).await?;
        if !connection.server().is_same_run(victim) {
            return Ok(());
        }
        connection.kill(victim.thread).await.map(drop)
    };
    if let Err(error) = killed.await {
        tracing::debug!(target: "lockkit", %error, "a statement that was given up can't be killed; its timeout ends it");
    }
}
