//! Rows of names that nobody uses any more.

use lockkit_core::Result;

use super::store::{Store, roll_back};
use crate::{
    connection::Connection,
    error::{self, Phase},
    idle::{IdleNames, WHAT},
    sql::NOW,
};

impl Store {
    /// Removes the rows of names that were not used for the retention, and returns how many.
    ///
    /// A token of the future seeds from the server's clock, so it rises above those of a row that is gone, unless that
    /// clock was set back. So a row stays while its own token is young, or ahead of the clock.
    ///
    /// # Errors
    /// What the server says.
    pub(crate) async fn collect_garbage(&self) -> Result<u64> {
        let config = self.pool.config();
        let retention = config.retention.as_micros();
        let idle = format!("expires_us<{NOW} AND touched_us<{NOW}-{retention} AND fence<{NOW}-{retention}");
        let mut names = IdleNames::new(&config.tables().table("lock"), &idle);
        let mut removed = 0;
        while let Some((mut connection, page)) = names.next(&self.pool).await? {
            for this in page {
                removed += self.remove(&mut connection, &this, &idle).await?;
            }
        }
        Ok(removed)
    }

    /// Removes one name, if it is still idle and nobody holds it.
    async fn remove(&self, connection: &mut Connection, this: &str, idle: &str) -> Result<u64> {
        let tables = self.pool.config().tables();
        let (lock, holder) = (tables.table("lock"), tables.table("holder"));
        let script = format!(
            "DELETE FROM {holder} WHERE {this} AND expires_us<{NOW};\
             DELETE FROM {lock} WHERE {this} AND {idle} AND NOT EXISTS (SELECT 1 FROM {holder} WHERE {this})"
        );
        match connection.script(&script).await {
            Ok(steps) => Ok(steps.get(1).map_or(0, |step| step.outcome.affected)),
            // In use after all.
            Err(error) if error::is_race(&error) => roll_back(connection).await.map(|()| 0),
            Err(error) => self.pool.checked(Err(error), Phase::Write, WHAT),
        }
    }
}
