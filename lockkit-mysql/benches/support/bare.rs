//! The floor of the optimistic strategy: two updates by primary key.

use std::time::Instant;

use mysql_async::{Conn, prelude::Queryable as _};

use super::{sql::TABLES, stage::Stage};

pub(crate) const KIND: &str = "m";
pub(crate) const OWNER: &str = "00112233445566778899aabbccddeeff";
pub(crate) const LEASE_US: u64 = 30_000_000;

/// Makes the tables, and the rows of the names `0` to `63`.
pub(crate) async fn prepare(stage: &Stage) -> Conn {
    let mut conn = stage.open().await;
    conn.query_drop(TABLES).await.unwrap();
    for name in 0..64 {
        for table in ["bare_lock(kind,name)", "bare_row(kind,name)"] {
            let insert = format!("INSERT INTO {table} VALUES(?,?)");
            conn.exec_drop(insert, (KIND, name.to_string())).await.unwrap();
        }
    }
    conn
}

/// Nobody's turn is checked, no time is asked for, no error is handled.
pub(crate) async fn pairs(mut conn: Conn, names: Vec<String>, until: Instant) -> (u64, Conn) {
    let taken = "UPDATE bare_lock SET owner=?,fence=fence+1,expires_us=? WHERE kind=? AND name=?";
    let freed = "UPDATE bare_lock SET owner='',expires_us=0 WHERE kind=? AND name=?";
    let (taken, freed) = (conn.prep(taken).await.unwrap(), conn.prep(freed).await.unwrap());
    let mut count = 0;
    for name in names.iter().cycle() {
        if Instant::now() >= until {
            break;
        }
        conn.exec_drop(&taken, (OWNER, LEASE_US, KIND, name)).await.unwrap();
        conn.exec_drop(&freed, (KIND, name)).await.unwrap();
        count += 1;
    }
    (count, conn)
}
