//! The floor of the optimistic strategy: the same work through the bare driver.

use std::time::Instant;

use mysql_async::{Conn, Value, prelude::Queryable as _};

use super::{
    sql::{self, TABLES},
    stage::Stage,
};

pub(crate) const KIND: &str = "m";
pub(crate) const OWNER: &str = "00112233445566778899aabbccddeeff";
pub(crate) const LEASE_US: u64 = 30_000_000;

#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// lockkit's own statements.
    Statements,
    /// Two updates by primary key, without a check of the owner, and without the server's time.
    Updates,
}

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

/// Takes and frees one name after the other. Errors are not handled.
pub(crate) async fn pairs(
    mut conn: Conn,
    work: Work,
    names: Vec<String>,
    until: Instant,
) -> (u64, Conn) {
    let (taken, freed) = match work {
        Work::Statements => (sql::acquire_if_free(), sql::release_in_place()),
        Work::Updates => (sql::TAKE.to_owned(), sql::FREE.to_owned()),
    };
    let taken = conn.prep(taken).await.unwrap();
    let freed = conn.prep(freed).await.unwrap();
    let mut count = 0;
    for name in names.iter().cycle() {
        if Instant::now() >= until {
            break;
        }
        match work {
            Work::Statements => {
                conn.exec_drop(&taken, if_free_params(name, OWNER)).await.unwrap();
                assert!(conn.last_insert_id().is_some_and(|fence| fence > LEASE_US));
                conn.exec_drop(&freed, (KIND, name, OWNER)).await.unwrap();
            }
            Work::Updates => {
                conn.exec_drop(&taken, (OWNER, LEASE_US, KIND, name)).await.unwrap();
                conn.exec_drop(&freed, (KIND, name)).await.unwrap();
            }
        }
        count += 1;
    }
    (count, conn)
}

/// The parameters of [`sql::acquire`].
pub(crate) fn acquire_params(name: &str, owner: &str) -> Vec<Value> {
    let owner = || Value::from(owner);
    let lease = || Value::from(LEASE_US);
    let label = || Value::from("");
    let mut params = vec![KIND.into(), name.into(), owner(), lease(), label(), u64::MAX.into()];
    params.extend([owner(), label(), owner(), owner(), owner(), lease()]);
    params
}

/// The parameters of [`sql::acquire_by_update`].
pub(crate) fn update_params(name: &str, owner: &str) -> Vec<Value> {
    let owner = || Value::from(owner);
    let lease = Value::from(LEASE_US);
    let mut params = vec![owner(), "".into(), owner(), owner(), owner(), lease];
    params.extend([KIND.into(), name.into(), u64::MAX.into()]);
    params
}

/// The parameters of [`sql::acquire_if_free`].
pub(crate) fn if_free_params(name: &str, owner: &str) -> Vec<Value> {
    let lease = Value::from(LEASE_US);
    let not_after = Value::from(u64::MAX);
    let mut params = vec![owner.into(), "".into(), 1.into(), lease];
    params.extend([KIND.into(), name.into(), not_after, owner.into()]);
    params
}
