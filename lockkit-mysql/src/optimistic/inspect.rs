//! What an operator sees of a lock, and how he frees it.

use std::{num::NonZeroU32, time::Duration};

use lockkit_core::{
    FencingToken, Kind, LockName, OwnerId, Result,
    spi::{Holder, Inspection, Mode, Released},
};
use mysql_async::Row;

use super::store::Store;
use crate::{
    error::{self, Phase},
    names,
    server::value,
    sql::NOW,
};

impl Store {
    /// # Errors
    /// What the server says.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let tables = self.pool.config().tables();
        let (lock, holder) = (tables.table("lock"), tables.table("holder"));
        let columns =
            format!("fence,label,{NOW}-CAST(acquired_us AS SIGNED),CAST(expires_us AS SIGNED)-{NOW}");
        let this = format!("kind=? AND name=? AND expires_us>{NOW}");
        let question = if has_holders(name.kind()) {
            format!(
                "SELECT owner,{columns},mode,permits,(SELECT permits FROM {lock} WHERE kind=? AND name=?) \
                 FROM {holder} WHERE {this} ORDER BY fence"
            )
        } else {
            format!("SELECT owner,{columns} FROM {lock} WHERE {this}")
        };
        let twice = if has_holders(name.kind()) { 2 } else { 1 };
        let params = (0..twice).flat_map(|_| [name.kind().as_str().into(), name.as_str().into()]).collect();
        let mut connection = self.pool.get(self.pool.config().connect_timeout).await?;
        let rows = self.pool.checked(connection.rows(&question, params).await, Phase::Read, "inspecting")?;
        let holders = rows.iter().map(seen).collect::<Option<_>>();
        Ok(Inspection::new(holders.ok_or_else(|| error::nonsense("inspecting"))?, None))
    }

    /// Those that are held: a row does not tell who waits for it.
    ///
    /// # Errors
    /// What the server says.
    pub(crate) async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        let table = self.pool.config().tables().table(if has_holders(kind) { "holder" } else { "lock" });
        names::held(&self.pool, &table, &format!("expires_us>{NOW}"), kind, prefix).await
    }

    /// # Errors
    /// What the server says.
    pub(crate) async fn force_release(&self, name: &LockName, token: u64) -> Result<Released> {
        let tables = self.pool.config().tables();
        let this = format!("WHERE kind=? AND name=? AND fence=? AND expires_us>{NOW}");
        let statement = if has_holders(name.kind()) {
            format!("DELETE FROM {} {this}", tables.table("holder"))
        } else {
            format!("UPDATE {} SET owner='',expires_us=0,touched_us={NOW} {this}", tables.table("lock"))
        };
        let params = vec![name.kind().as_str().into(), name.as_str().into(), token.into()];
        let mut connection = self.pool.get(self.pool.config().connect_timeout).await?;
        let answer = connection.run(&statement, params).await;
        let freed = self.pool.checked(answer, Phase::Write, "freeing by force")?.affected > 0;
        self.waiters.call_first(name);
        Ok(if freed { Released::Freed } else { Released::NotHeld })
    }
}

fn has_holders(kind: Kind) -> bool {
    matches!(kind, Kind::RwLock | Kind::Semaphore)
}

/// `None` if a column has another type than it should.
fn seen(row: &Row) -> Option<Holder> {
    let micros = |index| Some(Duration::from_micros(u64::try_from(value::<i64>(row, index)?).unwrap_or(0)));
    let mode = match value::<Option<String>>(row, 5).flatten().as_deref() {
        None | Some("x") => Mode::Exclusive,
        Some("s") => Mode::Shared,
        Some(_) => {
            let count = NonZeroU32::new(value(row, 6)?)?;
            // The limit went with the row of the name, if an operator has deleted it.
            let limit = value::<Option<u32>>(row, 7)?.and_then(NonZeroU32::new).unwrap_or(count);
            Mode::Permits { count, limit }
        }
    };
    let (owner, fence): (String, u64) = (value(row, 0)?, value(row, 1)?);
    let label = Some(value::<Vec<u8>>(row, 2)?).filter(|label| !label.is_empty());
    let holder = Holder::new(mode)
        .with_label(label.map(|label| String::from_utf8_lossy(&label).into_owned()))
        .with_age(micros(3)?)
        .with_remaining(micros(4)?);
    Some(match owner.parse::<OwnerId>() {
        Ok(owner) => holder.with_grant(owner, FencingToken::new(fence)),
        Err(_) => holder,
    })
}
