//! Lists what is left in the tables of a prefix when no claim holds or waits there.

use lockkit_mysql::{
    Strategy,
    mysql_async::{Conn, Error, Row, prelude::Queryable as _},
};

const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";

/// Lists rows with a lease that has not ended, running statements, and rows that open transactions
/// keep.
pub(crate) async fn leaks(
    admin: &mut Conn,
    strategy: Strategy,
    prefix: &str,
) -> Result<Vec<String>, Error> {
    let there =
        "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME=?";
    let are_there: Option<u8> = admin.exec_first(there, (format!("{prefix}_meta"),)).await?;
    let tables = match strategy {
        _ if are_there.is_none() => [].as_slice(),
        Strategy::Optimistic => &["lock", "holder"],
        Strategy::Pessimistic => &["row", "fence"],
    };
    let mut leaks = Vec::new();
    // This isolation level also shows rows that are not committed yet.
    admin.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").await?;
    for table in tables {
        let table = format!("`{prefix}_{table}`");
        if strategy == Strategy::Optimistic {
            let live = format!("SELECT name FROM {table} WHERE expires_us>{NOW}");
            let names: Vec<Vec<u8>> = admin.query(live).await?;
            leaks.extend(
                names
                    .iter()
                    .map(|name| format!("a live row of {:?}", String::from_utf8_lossy(name))),
            );
        }
        let all: Vec<u8> = admin.query(format!("SELECT 1 FROM {table}")).await?;
        let free: Vec<u8> =
            admin.query(format!("SELECT 1 FROM {table} FOR UPDATE SKIP LOCKED")).await?;
        if free.len() < all.len() {
            leaks.push(format!("{} locked rows of {table}", all.len() - free.len()));
        }
    }
    let running = "SELECT ID,STATE,INFO FROM information_schema.PROCESSLIST WHERE COMMAND='Query' \
                   AND INSTR(INFO,?)>0 AND ID<>CONNECTION_ID()";
    let rows: Vec<Row> = admin.exec(running, (prefix,)).await?;
    leaks.extend(rows.into_iter().map(|row| format!("the statement {:?}", row.unwrap())));
    Ok(leaks)
}
