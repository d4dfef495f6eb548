//! Removes the rows of unused names.

use lockkit_core::Result;

use super::store::{Store, roll_back};
use crate::{
    connection::Connection,
    error::{self, Phase},
    idle::{IdleNames, WHAT},
    sql::NOW,
};

/// For servers that know it.
const NOWAIT: &str = "/*!80001  NOWAIT*//*M!100300  NOWAIT*/";
/// The largest size of the names of one request, which has them three times. The server may take no
/// more than 64 KB at a time.
const MOST_BYTES: usize = 8 << 10;

impl Store {
    /// Removes the rows of names that were not used for the retention, and returns how many.
    ///
    /// A later token starts at the server's clock. So it is above the tokens of a removed row,
    /// unless that clock was set back. For this reason a row stays while its own token is young, or
    /// ahead of the clock.
    ///
    /// # Errors
    /// Returns the server's error.
    pub(crate) async fn collect_garbage(&self) -> Result<u64> {
        let config = self.pool.config();
        let retention = config.retention.as_micros();
        let idle = format!(
            "expires_us<{NOW} AND touched_us<{NOW}-{retention} AND fence<{NOW}-{retention}"
        );
        let mut names = IdleNames::new(&config.tables().table("lock"), &idle);
        let mut removed = 0;
        while let Some((mut connection, page)) = names.next(&self.pool).await? {
            for group in groups(&page) {
                if let Some(count) = self.remove(&mut connection, group, &idle).await? {
                    removed += count;
                    continue;
                }
                for name in group.chunks(1) {
                    removed += self.remove(&mut connection, name, &idle).await?.unwrap_or(0);
                }
            }
        }
        Ok(removed)
    }

    /// Removes those names that are still idle and have no holder. `None` if another transaction is
    /// at work on one of the rows, because a wait for that row would keep the other rows locked.
    /// Servers that do not know `NOWAIT` wait for a second.
    ///
    /// Each statement has a condition on a column outside the primary key. Without one, the server
    /// may read the whole key in spite of `FORCE INDEX`, and so the rows of others. There is a
    /// count instead of `NOT EXISTS`. MariaDB makes a scan of all holders from `NOT EXISTS`, as
    /// long as they are few. That scan waits for a locked row of another name.
    async fn remove(
        &self,
        connection: &mut Connection,
        group: &[String],
        idle: &str,
    ) -> Result<Option<u64>> {
        let tables = self.pool.config().tables();
        let lock = tables.table("lock");
        let holder = tables.table("holder");
        let these = format!("({})", group.join(" OR "));
        let script = format!(
            "SELECT COUNT(*) FROM {lock} FORCE INDEX(PRIMARY) WHERE {these} AND {idle} FOR UPDATE{NOWAIT};\
             DELETE h FROM {holder} AS h FORCE INDEX(PRIMARY) WHERE {these} AND expires_us<{NOW};\
             DELETE l FROM {lock} AS l FORCE INDEX(PRIMARY) WHERE {these} AND {idle} \
             AND (SELECT COUNT(*) FROM {holder} AS h FORCE INDEX(PRIMARY) WHERE h.kind=l.kind AND h.name=l.name)=0"
        );
        match connection.script(&script).await {
            Ok(steps) => Ok(Some(steps.get(2).map_or(0, |step| step.outcome.affected))),
            // A row is in use after all.
            Err(error) if error::is_taken(&error) || error::is_race(&error) => {
                roll_back(connection).await.map(|()| None)
            }
            Err(error) => self.pool.checked(Err(error), Phase::Write, WHAT),
        }
    }
}

/// Splits the names into parts that fit into one request.
fn groups(names: &[String]) -> impl Iterator<Item = &[String]> {
    let mut bytes = 0;
    names.chunk_by(move |_, next| {
        bytes += next.len();
        let fits = bytes <= MOST_BYTES;
        if !fits {
            bytes = 0;
        }
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_group_are_short_together_and_none_is_left_out() {
        let names: Vec<_> = (0..300).map(|n| "x".repeat(if n < 200 { 45 } else { 550 })).collect();
        let groups: Vec<_> = groups(&names).collect();
        assert!(groups.len() < 12, "{}", groups.len());
        assert!(groups.iter().all(|group| group.concat().len() <= 2 * MOST_BYTES));
        assert_eq!(groups.concat(), names);
    }
}
