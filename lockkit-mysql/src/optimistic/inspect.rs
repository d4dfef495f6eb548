//! Shows an operator who holds a lock, and frees it by force.

use std::{num::NonZeroU32, time::Duration};

use lockkit_core::{
    FencingToken, Kind, LockName, OwnerId, Result,
    spi::{Holder, Inspection, Mode, Released},
};
use mysql_async::Row;

use super::store::Store;
use crate::{
    error::{self, Phase},
    handshake::value,
    names,
    sql::{NOW, WRITABLE},
};

impl Store {
    /// # Errors
    /// Returns the server's error.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let tables = self.pool.config().tables();
        let lock = tables.table("lock");
        let holder = tables.table("holder");
        let columns = format!(
            "fence,label,{NOW}-CAST(acquired_us AS SIGNED),CAST(expires_us AS SIGNED)-{NOW}"
        );
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
        let params =
            (0..twice).flat_map(|_| [name.kind().as_str().into(), name.as_str().into()]).collect();
        let mut connection = self.pool.get(self.pool.config().connect_timeout).await?;
        // A demoted server does not know any more who has the lock.
        self.pool.ask_time(&mut connection).await?;
        let rows = self.pool.checked(
            connection.rows(&question, params).await,
            Phase::Read,
            "inspecting",
        )?;
        let holders = rows.iter().map(seen).collect::<Option<_>>();
        Ok(Inspection::new(holders.ok_or_else(|| error::nonsense("inspecting"))?, None))
    }

    /// The names that are held. A row does not show who waits for it.
    ///
    /// # Errors
    /// Returns the server's error.
    pub(crate) async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        let table =
            self.pool.config().tables().table(if has_holders(kind) { "holder" } else { "lock" });
        names::held(&self.pool, &table, &format!("expires_us>{NOW}"), kind, prefix).await
    }

    /// # Errors
    /// Returns the server's error.
    pub(crate) async fn force_release(&self, name: &LockName, token: u64) -> Result<Released> {
        let tables = self.pool.config().tables();
        let this =
            format!("WHERE kind=? AND name=? AND fence=? AND expires_us>{NOW} AND {WRITABLE}");
        let statement = if has_holders(name.kind()) {
            format!("DELETE FROM {} {this}", tables.table("holder"))
        } else {
            format!(
                "UPDATE {} SET owner='',expires_us=0,touched_us={NOW} {this}",
                tables.table("lock")
            )
        };
        let params = vec![name.kind().as_str().into(), name.as_str().into(), token.into()];
        let mut connection = self.pool.get(self.pool.config().connect_timeout).await?;
        let answer = connection.run(&statement, params).await;
        let freed = self.pool.checked(answer, Phase::Write, "freeing by force")?.affected > 0;
        if !freed {
            self.pool.ask_time(&mut connection).await?;
        }
        self.waiters.call_first(name);
        Ok(if freed { Released::Freed } else { Released::NotHeld })
    }
}

fn has_holders(kind: Kind) -> bool {
    matches!(kind, Kind::RwLock | Kind::Semaphore)
}

/// `None` if a column has another type than expected.
fn seen(row: &Row) -> Option<Holder> {
    let micros =
        |index| Some(Duration::from_micros(u64::try_from(value::<i64>(row, index)?).unwrap_or(0)));
    // A mutex has no column for the mode.
    let letter = if row.len() > 5 { Some(value::<String>(row, 5)?) } else { None };
    let mode = match letter.as_deref() {
        None | Some("x") => Mode::Exclusive,
        Some("s") => Mode::Shared,
        Some("p") => {
            let count = NonZeroU32::new(value(row, 6)?)?;
            // The row of the name has the limit, and an operator may have deleted that row.
            let limit = value::<Option<u32>>(row, 7)?.and_then(NonZeroU32::new).unwrap_or(count);
            Mode::Permits { count, limit }
        }
        Some(_) => return None,
    };
    let (owner, token): (String, u64) = (value(row, 0)?, value(row, 1)?);
    let label = Some(value::<Vec<u8>>(row, 2)?).filter(|label| !label.is_empty());
    let holder = Holder::new(mode)
        .with_label(label.map(|label| String::from_utf8_lossy(&label).into_owned()))
        .with_age(micros(3)?)
        .with_remaining(micros(4)?);
    Some(match owner.parse::<OwnerId>() {
        Ok(owner) => holder.with_grant(owner, FencingToken::new(token)),
        Err(_) => holder,
    })
}

#[cfg(test)]
mod tests {
    use mysql_async::{Column, Value, consts::ColumnType};
    use mysql_common::row::new_row;
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn row(values: Vec<Value>) -> Row {
        let columns: Vec<_> =
            values.iter().map(|_| Column::new(ColumnType::MYSQL_TYPE_VAR_STRING)).collect();
        new_row(values, columns.into())
    }

    /// A value of any type that a column can have, sent as text or not.
    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::NULL),
            vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
            "[0-9a-f]{32}".prop_map(Value::from),
            "[xsp1-9]".prop_map(Value::from),
            "-?[0-9]{1,25}".prop_map(Value::from),
            any::<i64>().prop_map(Value::Int),
            any::<u64>().prop_map(Value::UInt),
            any::<f32>().prop_map(Value::Float),
            any::<f64>().prop_map(Value::Double),
            any::<(u16, u8, u8, u8, u8, u8, u32)>()
                .prop_map(|(y, mo, d, h, mi, s, us)| Value::Date(y, mo, d, h, mi, s, us)),
            any::<(bool, u32, u8, u8, u8, u32)>()
                .prop_map(|(n, d, h, m, s, us)| Value::Time(n, d, h, m, s, us)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn c13_a_row_that_makes_no_sense_is_no_holder(values in vec(any_value(), 0..10)) {
            let columns = values.len();
            let stored = values.get(1).cloned();
            if let Some(holder) = seen(&row(values)) {
                prop_assert!(columns >= 5);
                if let Some(token) = holder.token {
                    prop_assert_eq!(mysql_async::from_value_opt::<u64>(stored.unwrap()).ok(), Some(token.get()));
                }
            }
        }

        #[test]
        fn c14_a_holder_is_seen_as_it_was_written(
            id: u128,
            token: u64,
            label in "\\PC{0,20}",
            times in any::<(i64, i64)>(),
            mode in prop_oneof![
                Just((None, Mode::Exclusive)),
                Just((Some(("x", 1, Value::NULL)), Mode::Exclusive)),
                Just((Some(("s", 1, Value::Int(0))), Mode::Shared)),
                (1..=u32::MAX, 1..=u32::MAX).prop_map(|(count, limit)| (
                    Some(("p", count, Value::from(limit))),
                    Mode::Permits { count: count.try_into().unwrap(), limit: limit.try_into().unwrap() },
                )),
            ],
        ) {
            let owner = OwnerId::new(id);
            let mut values: Vec<Value> = vec![
                owner.to_string().into(),
                token.into(),
                label.as_str().into(),
                times.0.into(),
                times.1.into(),
            ];
            let (columns, mode) = mode;
            if let Some((letter, permits, limit)) = columns {
                values.extend([letter.into(), permits.into(), limit]);
            }
            let holder = seen(&row(values)).unwrap();
            let grant = (holder.owner, holder.token);
            prop_assert_eq!(grant, (Some(owner), Some(FencingToken::new(token))));
            prop_assert_eq!((holder.label.unwrap_or_default(), holder.mode), (label, mode));
            let left = Duration::from_micros(u64::try_from(times.1).unwrap_or(0));
            prop_assert_eq!(holder.remaining, Some(left));
        }
    }
}
