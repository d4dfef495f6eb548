//! The statements of waiters: one reads who has the locks, and one records that a client waits.

use std::{collections::HashMap, time::Duration};

use lockkit_core::{Kind, LockName};
use mysql_async::{self as my, Row};

use super::record::{Look, Seen};
use crate::{
    connection::Connection,
    handshake::value,
    schedule::MOST_NAMES,
    sql::{NOW, literal},
    tables::Tables,
};

/// How long a waiting writer keeps new readers away without asking again, and how long other
/// clients know that a client waits for a mutex. The client asks again when half of that time is
/// left.
const WANTED: Duration = Duration::from_secs(1);
/// A client records again that it waits when its record lasts for less than this. Records that last
/// for less than [`ALMOST_OVER`] are renewed at the same time, so that one statement renews all of
/// them.
pub(crate) const OVER: Duration = Duration::from_millis(500);
pub(crate) const ALMOST_OVER: Duration = Duration::from_millis(750);

/// Makes the statements about many names at once.
#[derive(Debug)]
pub(crate) struct LookSql {
    rows: String,
    rows_and_holders: String,
    lock: String,
}

/// The state of each name; `None` if the answer makes no sense.
pub(crate) type Looks = Vec<Option<Look>>;

impl LookSql {
    pub(crate) fn new(tables: &Tables) -> Self {
        let lock = tables.table("lock");
        let holder = tables.table("holder");
        let left = |end: &str| format!("CAST(LEAST({end},{}) AS SIGNED)-{NOW}", i64::MAX);
        let of_lock = format!(
            "l.kind,l.name,l.fence,{NOW},{},{},l.permits",
            left("l.wanted_us"),
            left("l.expires_us")
        );
        // In a small table, the server would otherwise read all rows instead of finding some.
        let from = format!("FROM {lock} l FORCE INDEX(PRIMARY)");
        let rows = format!("SELECT {of_lock} {from}");
        let rows_and_holders = format!(
            "SELECT {of_lock},h.mode,h.permits,{} {from} \
             LEFT JOIN {holder} h FORCE INDEX(PRIMARY) ON h.kind=l.kind AND h.name=l.name AND h.expires_us>{NOW}",
            left("h.expires_us")
        );
        Self { rows, rows_and_holders, lock }
    }

    /// Reads who has these locks, without any lock in the database.
    pub(crate) async fn look(
        &self,
        connection: &mut Connection,
        names: &[LockName],
    ) -> Result<Looks, my::Error> {
        let steps = connection.script(&self.question(names)).await?;
        let rows = steps.into_iter().next().map(|step| step.rows).unwrap_or_default();
        Ok(looks(names, &rows))
    }

    /// The statement that reads who has these locks. [`looks`] reads its answer.
    pub(crate) fn question(&self, names: &[LockName]) -> String {
        let has_holders = names.iter().any(|name| has_holders(name.kind()));
        let select = if has_holders { &self.rows_and_holders } else { &self.rows };
        format!("{select} WHERE (l.kind,l.name) IN({})", list(names))
    }

    /// Records that this client waits, unless some client has done so lately. It skips a row on
    /// which another transaction is at work. This statement has locked other rows by then, and
    /// their holders must not wait for it.
    ///
    /// The `LIMIT` limits nothing. It keeps the server from finding and changing the rows in one
    /// step, because that step would wait for rows.
    pub(crate) async fn want(
        &self,
        connection: &mut Connection,
        names: &[LockName],
        client: u64,
    ) -> Result<(), my::Error> {
        let Self { lock, .. } = self;
        let readers = literal(Kind::RwLock.as_str().as_bytes());
        let names = list(names);
        let until = WANTED.as_micros();
        let lately = ALMOST_OVER.as_micros();
        let change = format!(
            "UPDATE (SELECT kind,name FROM {lock} FORCE INDEX(PRIMARY) WHERE (kind,name) IN({names}) \
             AND (expires_us>{NOW} OR kind={readers}) AND wanted_us<{NOW}+{lately} \
             LIMIT {MOST_NAMES} FOR UPDATE SKIP LOCKED) w \
             STRAIGHT_JOIN {lock} l FORCE INDEX(PRIMARY) ON l.kind=w.kind AND l.name=w.name \
             SET l.wanted_by={client},l.wanted_us={NOW}+{until}"
        );
        connection.script(&change).await.map(drop)
    }
}

/// Whether a lock of this kind has a row for each holder.
fn has_holders(kind: Kind) -> bool {
    matches!(kind, Kind::RwLock | Kind::Semaphore)
}

fn list(names: &[LockName]) -> String {
    let text = |text: &str| literal(text.as_bytes());
    let pair =
        |name: &LockName| format!("({},{})", text(name.kind().as_str()), text(name.as_str()));
    names.iter().map(pair).collect::<Vec<_>>().join(",")
}

/// Reads the rows. A name without a row has no holder.
pub(crate) fn looks(names: &[LockName], rows: &[Row]) -> Looks {
    let mut looks: Looks = names.iter().map(|_| Some(Look::default())).collect();
    let key = |name: &LockName| {
        (name.kind().as_str().as_bytes().to_vec(), name.as_str().as_bytes().to_vec())
    };
    let places: HashMap<_, _> = names.iter().map(key).zip(0..).collect::<HashMap<_, usize>>();
    for row in rows {
        let place =
            value::<Vec<u8>>(row, 0).zip(value::<Vec<u8>>(row, 1)).and_then(|key| places.get(&key));
        if let Some(place) = place.copied()
            && let Some(look) = looks.get_mut(place)
        {
            let is_read = match (names.get(place), look.as_mut()) {
                (Some(name), Some(look)) => read(row, name.kind(), look).is_some(),
                _ => false,
            };
            if !is_read {
                *look = None;
            }
        }
    }
    looks
}

/// Adds the content of a row. `None` if the row makes no sense.
fn read(row: &Row, kind: Kind, look: &mut Look) -> Option<()> {
    let positive =
        |left: i64| u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_micros);
    look.version = value(row, 2)?;
    look.now_us = value(row, 3)?;
    look.wanted = positive(value(row, 4)?).unwrap_or_default();
    if has_holders(kind) {
        look.limit = value(row, 6)?;
        if let Some(mode) = value::<Option<String>>(row, 7)? {
            let left = positive(value(row, 9)?).unwrap_or_default();
            look.holders.push(Seen { exclusive: mode == "x", permits: value(row, 8)?, left });
        }
    } else if let Some(left) = positive(value(row, 5)?) {
        look.holders.push(Seen { exclusive: true, permits: 0, left });
    }
    Some(())
}
