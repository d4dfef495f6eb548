//! Opens connections of the bare driver to the same server, for measurements and for questions that
//! lockkit does not ask.

use lockkit_core::{Error, ErrorKind, Result};
use mysql_async::{Conn, prelude::Queryable as _};
use tokio::time;

use crate::{
    config::{Config, Strategy},
    error,
    handshake::SETTINGS,
};

impl Config {
    /// Opens a connection of the bare driver, with the settings of lockkit's own connections. It
    /// belongs to no pool of lockkit, and nothing bounds how long its statements may take.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if nothing answers within the connect timeout,
    /// [`Authentication`](ErrorKind::Authentication) for wrong credentials, or any other error of
    /// the connection attempt.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn open_bare(&self) -> Result<Conn> {
        self.check()?;
        let what = format!("connecting to {}", self.address());
        let opening = async {
            let mut conn = self.open().await?;
            let set_up = conn.query_drop(SETTINGS).await;
            set_up.map_err(|error| error::opening(error, &what, self.secret()))?;
            Ok::<_, Error>(conn)
        };
        match time::timeout(self.connect_timeout, opening).await {
            Ok(answer) => answer,
            Err(_) => {
                let reason = format!(
                    "{what} failed: the server did not answer within connect_timeout ({:?})",
                    self.connect_timeout
                );
                Err(error::ours(ErrorKind::Unavailable, reason))
            }
        }
    }

    /// How locks are held.
    #[must_use]
    pub const fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// How many connections there may be at once, without those for housekeeping.
    #[must_use]
    pub const fn pool_size(&self) -> usize {
        self.pool_size
    }
}
