//! Kills on the server the statements whose calls were dropped here.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use lockkit_core::{Error, Result};
use tokio::{runtime::Handle, task::JoinSet, time};

use crate::{
    channel::{Channel, DropHandler},
    connection::GivenUp,
    error::{self, Phase},
    server::Server,
    sql::is_owner,
};

/// How long one `KILL` may take. A longer connect timeout replaces it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Kills statements whose futures were dropped. Without a kill, the server would continue with such
/// a statement, and with the locks that it waits for. The server notices the closed socket only
/// when it has an answer to give.
#[derive(Debug)]
pub(crate) struct StatementKiller {
    /// Side connections, because locks that wait for this kill may take all others.
    side: Channel,
    patience: Duration,
    kills: Mutex<JoinSet<()>>,
}

impl StatementKiller {
    pub(crate) fn new(side: Channel, connect_timeout: Duration) -> Self {
        Self { side, patience: PATIENCE.max(connect_timeout), kills: Mutex::default() }
    }

    /// Waits for the kills that are under way, but not for long, because a runtime may not be
    /// driven any more.
    pub(crate) async fn finish(&self) {
        let mut kills =
            std::mem::take(&mut *self.kills.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = time::timeout(self.patience, async { while kills.join_next().await.is_some() {} })
            .await;
    }

    /// Ends a connection of the program in the background, if it has this user-level lock. Outside
    /// a runtime this does nothing.
    pub(crate) fn end_owner(&self, lock: String, thread: u64) {
        let side = self.side.clone();
        let patience = self.patience;
        self.begin(async move {
            let ended = async {
                let mut connection = side.get(patience).await?;
                let question = format!("SELECT 1 FROM DUAL WHERE {}", is_owner(&lock, thread));
                let asked = connection.script(&question).await;
                let what = "looking up a connection";
                let steps = asked.map_err(|error| error::from_mysql(error, Phase::Read, what))?;
                if steps.first().is_some_and(|step| !step.rows.is_empty()) {
                    connection.kill(thread).await?;
                }
                Ok::<_, Error>(())
            };
            report(ended.await);
        });
    }

    fn begin(&self, kill: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else { return };
        let patience = self.patience;
        let mut kills = self.kills.lock().unwrap_or_else(PoisonError::into_inner);
        while kills.try_join_next().is_some() {}
        kills.spawn_on(
            async move {
                let _ = time::timeout(patience, kill).await;
            },
            &runtime,
        );
    }
}

impl DropHandler for StatementKiller {
    /// Kills a statement in the background. Outside a runtime this only closes the socket, and the
    /// server's own timeouts end the statement.
    fn dropped(&self, given_up: GivenUp) {
        let side = self.side.clone();
        let patience = self.patience;
        self.begin(async move {
            // The socket stays open until the kill is done. Otherwise its number could be that of
            // another connection.
            kill(&side, &given_up.server, patience).await;
        });
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
    report(killed.await);
}

fn report(killed: Result<()>) {
    if let Err(error) = killed {
        tracing::debug!(target: "lockkit", %error, "could not kill an abandoned statement; its \
                                                    timeout ends it");
    }
}
