//! Removes the rows of unused names.

use lockkit_core::Result;

use super::{Store, sql::Sql};
use crate::{
    channel::Checkout,
    error::{self, Phase},
    idle::{IdleNames, WHAT},
    sql::NOW,
};

impl Store {
    /// Removes the rows of names that were not used for the retention, and returns how many.
    ///
    /// A row is removed only while its lock is ours. A claim that waited for the row finds no row,
    /// and makes it anew. Its token begins with the server's clock, which is ahead of the removed
    /// token. The lease of a dead holder counts from the time when its row is first found free.
    ///
    /// # Errors
    /// Returns the server's error.
    pub(super) async fn collect_garbage(&self) -> Result<u64> {
        let config = self.pool.config();
        let retention = config.retention.as_micros();
        let idle =
            format!("acquired_us<{NOW}-GREATEST({retention},open_us) AND fence<{NOW}-{retention}");
        let mut names = IdleNames::new(&self.sql.fence, &idle);
        let mut removed = 0;
        while let Some((mut connection, page)) = names.next(&self.pool).await? {
            for this in page {
                removed += self.remove(&mut connection, &this, &idle).await?;
            }
        }
        Ok(removed)
    }

    /// Removes one name, if it has no holder and is still idle.
    async fn remove(&self, connection: &mut Checkout, this: &str, idle: &str) -> Result<u64> {
        let Sql { row, fence, .. } = &self.sql;
        let script = format!(
            "START TRANSACTION;SELECT 1 FROM {row} WHERE {this} FOR UPDATE NOWAIT;\
             UPDATE {fence} SET acquired_us={NOW},owner='' WHERE {this} AND open_us>0 AND owner<>'';\
             DELETE FROM {fence} WHERE {this} AND {idle};\
             DELETE FROM {row} WHERE {this} AND NOT EXISTS (SELECT 1 FROM {fence} WHERE {this});COMMIT"
        );
        match connection.script(&script).await {
            Ok(steps) => Ok(steps.get(3).map_or(0, |step| step.outcome.affected)),
            // The name is in use after all.
            Err(error) if error::is_taken(&error) || error::is_race(&error) => {
                self.pool.checked(connection.script("ROLLBACK").await, Phase::Read, WHAT)?;
                Ok(0)
            }
            Err(error) => self.pool.checked(Err(error), Phase::Write, WHAT),
        }
    }
}
