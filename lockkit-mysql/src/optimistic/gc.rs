//! Rows of names that nobody uses any more.

use lockkit_core::Result;

use super::store::Store;
use crate::{
    error::{self, Phase},
    server::value,
    sql::{NOW, literal},
};

/// How many rows one request removes.
const PAGE: usize = 100;
const WHAT: &str = "removing the rows of unused names";

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
        let (lock, holder) = (config.tables().table("lock"), config.tables().table("holder"));
        let retention = config.retention.as_micros();
        let idle = format!("expires_us<{NOW} AND touched_us<{NOW}-{retention} AND fence<{NOW}-{retention}");
        let page = format!(
            "SELECT kind,name FROM {lock} WHERE (kind>? OR (kind=? AND name>?)) AND {idle} \
             ORDER BY kind,name LIMIT {PAGE}"
        );
        let (mut after, mut removed) = ((Vec::new(), Vec::new()), 0);
        loop {
            let mut connection = self.pool.get(config.connect_timeout).await?;
            let params = vec![after.0.clone().into(), after.0.into(), after.1.into()];
            let rows = self.pool.checked(connection.rows(&page, params).await, Phase::Read, WHAT)?;
            let names =
                rows.iter().map(|row| Some((value(row, 0)?, value(row, 1)?))).collect::<Option<Vec<_>>>();
            let names: Vec<(Vec<u8>, Vec<u8>)> = names.ok_or_else(|| error::nonsense(WHAT))?;
            for (kind, name) in &names {
                // By the primary key: a scan would wait for the rows of others.
                let this = format!("kind={} AND name={}", literal(kind), literal(name));
                let script = format!(
                    "DELETE FROM {holder} WHERE {this} AND expires_us<{NOW};\
                     DELETE FROM {lock} WHERE {this} AND {idle} AND NOT EXISTS (SELECT 1 FROM {holder} WHERE {this})"
                );
                match connection.script(&script).await {
                    Ok(steps) => removed += steps.get(1).map_or(0, |step| step.outcome.affected),
                    // In use after all.
                    Err(error) if error::is_race(&error) => break,
                    Err(error) => return self.pool.checked(Err(error), Phase::Write, WHAT),
                }
            }
            match names.into_iter().nth(PAGE - 1) {
                Some(last) => after = last,
                None => return Ok(removed),
            }
        }
    }
}
