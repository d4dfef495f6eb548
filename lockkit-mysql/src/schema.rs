//! Makes the tables and checks their form.

use lockkit_core::{ErrorKind, Result};

use crate::{
    config::{Config, Strategy},
    connection::Connection,
    error::{self, Phase},
    handshake::value,
    sql::literal,
};

/// The statements that make all tables, for the default table prefix.
///
/// Each strategy uses its own two tables, `lockkit_meta` and `lockkit_note`. [`sql`] gives the
/// statements for one strategy, for any prefix. The user of the store URL needs `SELECT`, `INSERT`,
/// `UPDATE` and `DELETE` on the tables, and `CREATE` only to make them at first use.
pub const SQL: &str = include_str!("schema.sql");

/// The format that this version writes.
const VERSION: u32 = 1;
const DEFAULT_PREFIX: &str = "`lockkit_";

/// The statements that make the tables of one strategy.
#[must_use]
pub fn sql(strategy: Strategy, prefix: &str) -> String {
    statements(strategy, prefix).join(";\n\n") + ";\n"
}

fn statements(strategy: Strategy, prefix: &str) -> Vec<String> {
    let tables = match strategy {
        Strategy::Optimistic => ["meta`", "note`", "lock`", "holder`"],
        Strategy::Pessimistic => ["meta`", "note`", "row`", "fence`"],
    };
    let statements = SQL.split(';').map(str::trim);
    let wanted = statements.filter(|statement| {
        let name = statement.split_once(DEFAULT_PREFIX).map(|(_, rest)| rest);
        name.is_some_and(|name| tables.iter().any(|table| name.starts_with(table)))
    });
    wanted
        .map(|statement| {
            without_comments(statement).replace(DEFAULT_PREFIX, &format!("`{prefix}_"))
        })
        .collect()
}

fn without_comments(statement: &str) -> String {
    let lines = statement.lines().filter(|line| !line.trim_start().starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Makes sure that the tables exist, in a form that this version knows, and for this strategy.
///
/// # Errors
/// * [`ErrorKind::NewerFormat`] for tables of a newer lockkit.
/// * [`ErrorKind::WrongType`] if the tables are missing and not to be made, have another form, or
///   are used with the other strategy.
/// * [`ErrorKind::PermissionDenied`] if the user lacks a privilege.
pub(crate) async fn prepare(connection: &mut Connection, config: &Config) -> Result<()> {
    if !are_there(connection, config).await? {
        // Nothing is added to the tables of a newer lockkit.
        check_version(connection, config).await?;
        if !config.create_table {
            return Err(missing(config));
        }
        create(connection, config).await?;
    }
    let strategy = strategy_text(config);
    let meta = config.tables().table("meta");
    let what = format!("reading {meta}");
    let question = format!("SELECT strategy,version,compatible FROM {meta} WHERE id=1");
    let enter = format!(
        "INSERT IGNORE INTO {meta}(id,strategy,version,compatible) VALUES(1,{},{VERSION},{VERSION})",
        literal(strategy.as_bytes())
    );
    let mut rows = asked(connection.rows(&question, Vec::new()).await, Phase::Read, &what)?;
    if rows.is_empty() {
        asked(
            connection.run(&enter, Vec::new()).await,
            Phase::Write,
            &format!("recording the strategy in {meta}"),
        )?;
        rows = asked(connection.rows(&question, Vec::new()).await, Phase::Read, &what)?;
    }
    let row = rows.first().ok_or_else(|| error::nonsense(&what))?;
    let recorded: String = value(row, 0).ok_or_else(|| error::nonsense(&what))?;
    let compatible: u32 = value(row, 2).ok_or_else(|| error::nonsense(&what))?;
    if compatible > VERSION {
        return Err(newer(config, compatible));
    }
    if recorded != strategy {
        let reason = format!(
            "other programs use the table prefix {:?} with strategy={recorded}, and locks of \
             strategy={strategy} would not exclude theirs; use the same strategy, or another \
             table_prefix",
            config.tables().prefix()
        );
        return Err(error::ours(ErrorKind::WrongType, reason));
    }
    check_form(connection, config).await
}

/// Checks the version while it is not known whether all tables exist.
async fn check_version(connection: &mut Connection, config: &Config) -> Result<()> {
    let meta = config.tables().table("meta");
    let question = format!("SELECT compatible FROM {meta} WHERE id=1");
    let answer = connection.rows(&question, Vec::new()).await;
    // A later check reports these errors.
    if let Some(error::NO_SUCH_TABLE | error::NO_SUCH_COLUMN | error::TABLE_DENIED) =
        answer.as_ref().err().and_then(error::code)
    {
        return Ok(());
    }
    let rows = asked(answer, Phase::Read, &format!("reading {meta}"))?;
    match rows.first().and_then(|row| value(row, 0)) {
        Some(compatible) if compatible > VERSION => Err(newer(config, compatible)),
        _ => Ok(()),
    }
}

/// Locks with and without strict leases must not share tables, because a claim without them would
/// not wait for another's lease.
fn strategy_text(config: &Config) -> String {
    let strict = if config.strict_lease { "-strict" } else { "" };
    format!("{}{strict}", config.strategy.as_str())
}

/// Looks at two tables only. A client that made the tables before there were notes has made all
/// others.
async fn are_there(connection: &mut Connection, config: &Config) -> Result<bool> {
    let meta = config.tables().table("meta");
    let note = config.tables().table("note");
    let question = format!("SELECT (SELECT revision FROM {note} LIMIT 1) FROM {meta} LIMIT 1");
    match connection.rows(&question, Vec::new()).await {
        Ok(_) => Ok(true),
        Err(error) if error::code(&error) == Some(error::NO_SUCH_TABLE) => Ok(false),
        // The server does not show a user without a right to a table whether it exists.
        Err(error) if error::code(&error) == Some(error::TABLE_DENIED) && config.create_table => {
            Ok(false)
        }
        Err(error) => {
            Err(error::from_mysql(error, Phase::Read, &format!("reading {meta} and {note}")))
        }
    }
}

async fn create(connection: &mut Connection, config: &Config) -> Result<()> {
    let prefix = config.tables().prefix();
    // The first table is made last, because a client that finds it expects the others.
    for statement in statements(config.strategy, prefix).into_iter().rev() {
        let answer = connection.script(&statement).await;
        answer.map_err(|error| {
            let error = error::from_mysql(error, Phase::Open, "creating lockkit's tables");
            let kind = error.kind();
            if kind == ErrorKind::PermissionDenied {
                let reason =
                    format!("{}; or let another user run: {}", error.context(), shown(config));
                return error::ours(kind, reason).with_source(error);
            }
            error
        })?;
    }
    Ok(())
}

/// Checks every column that this version uses, the keys that make one lock of a name, and the
/// engine. Other engines than InnoDB have no row locks.
async fn check_form(connection: &mut Connection, config: &Config) -> Result<()> {
    let own: [(&str, &str); 2] = match config.strategy {
        Strategy::Optimistic => [
            (
                "lock",
                "kind,name,owner,fence,expires_us,touched_us,acquired_us,wanted_us,wanted_by,permits,label",
            ),
            ("holder", "kind,name,owner,mode,fence,permits,expires_us,acquired_us,label"),
        ],
        Strategy::Pessimistic => [
            ("row", "kind,name"),
            ("fence", "kind,name,fence,owner,acquired_us,open_us,server,started_us,thread,label"),
        ],
    };
    for (table, columns) in own.into_iter().chain([("note", "kind,name,revision,content")]) {
        let table = config.tables().table(table);
        let what = format!("reading {table}");
        let answer =
            connection.rows(&format!("SELECT {columns} FROM {table} LIMIT 0"), Vec::new()).await;
        answer.map_err(|error| match error::code(&error) {
            Some(error::NO_SUCH_TABLE | error::NO_SUCH_COLUMN) => {
                missing(config).with_source(error)
            }
            _ => error::from_mysql(error, Phase::Read, &what),
        })?;
        let key = if columns.contains(",mode,") { "kind,name,owner" } else { "kind,name" };
        check_keys(connection, &table, key, columns).await?;
    }
    Ok(())
}

/// The columns that find names and owners, with their types. These types are compared byte by byte,
/// and nothing is converted.
const COMPARED: [(&str, &str); 3] =
    [("kind", "VARBINARY(16) NOT NULL"), ("name", "VARBINARY(255) NOT NULL"), ("owner", OWNER)];
const OWNER: &str = "VARBINARY(64) NOT NULL DEFAULT ''";

/// Without the primary key, one name would have several rows, and each of them would be granted.
/// Comparisons of text types ignore case and trailing blanks, which makes one lock of several
/// names.
async fn check_keys(
    connection: &mut Connection,
    table: &str,
    key: &str,
    columns: &str,
) -> Result<()> {
    let what = format!("reading {table}");
    let this = format!(
        "TABLE_SCHEMA=DATABASE() AND TABLE_NAME={}",
        literal(table.trim_matches('`').as_bytes())
    );
    let question = format!(
        "SELECT (SELECT ENGINE FROM information_schema.TABLES WHERE {this}),\
         (SELECT GROUP_CONCAT(LOWER(COLUMN_NAME),IF(SUB_PART IS NULL,'','*') ORDER BY SEQ_IN_INDEX) \
         FROM information_schema.STATISTICS WHERE {this} AND INDEX_NAME='PRIMARY'),\
         (SELECT GROUP_CONCAT(LOWER(COLUMN_NAME)) FROM information_schema.COLUMNS WHERE {this} AND DATA_TYPE<>'varbinary')"
    );
    let rows = asked(connection.rows(&question, Vec::new()).await, Phase::Read, &what)?;
    let text = |index| rows.first().and_then(|row| value::<Option<String>>(row, index)).flatten();
    if let Some(engine) = text(0).filter(|engine| !engine.eq_ignore_ascii_case("InnoDB")) {
        let reason = format!(
            "{table} uses the engine {engine}, which has no row locks; run: ALTER TABLE {table} \
             ENGINE=InnoDB"
        );
        return Err(error::ours(ErrorKind::WrongType, reason));
    }
    let others = text(2).unwrap_or_default();
    let is_wrong = |column: &str| others.split(',').any(|other| other == column);
    let used = COMPARED.iter().filter(|(column, _)| columns.split(',').any(|used| used == *column));
    let mut changes: Vec<String> = used
        .filter(|(column, _)| is_wrong(column))
        .map(|(column, form)| format!("MODIFY {column} {form}"))
        .collect();
    let found = text(1);
    if found.as_deref() != Some(key) {
        changes.extend(found.as_ref().map(|_| "DROP PRIMARY KEY".to_owned()));
        changes.push(format!("ADD PRIMARY KEY ({key})"));
    }
    if changes.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "the columns or the key of {table} are not lockkit's, so it can mix up names or owners, or \
         grant a name twice; stop all clients and run: ALTER TABLE {table} {}",
        changes.join(",")
    );
    Err(error::ours(ErrorKind::WrongType, reason))
}

fn asked<T>(answer: Result<T, mysql_async::Error>, phase: Phase, what: &str) -> Result<T> {
    answer.map_err(|error| error::from_mysql(error, phase, what))
}

fn newer(config: &Config, compatible: u32) -> lockkit_core::Error {
    let reason = format!(
        "a newer lockkit wrote the tables {}: their format requires version {compatible}, and this \
         program knows version {VERSION}; lockkit did not change them; upgrade this program, \
         because locks under another table_prefix would not exclude these",
        config.tables().table("*")
    );
    error::ours(ErrorKind::NewerFormat, reason)
}

fn missing(config: &Config) -> lockkit_core::Error {
    let reason =
        format!("lockkit's tables do not exist, or have other columns; run: {}", shown(config));
    error::ours(ErrorKind::WrongType, reason)
}

/// All statements on one line, because an error has one line.
fn shown(config: &Config) -> String {
    sql(config.strategy, config.tables().prefix()).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strategy_makes_its_own_tables_under_the_prefix() {
        let optimistic = sql(Strategy::Optimistic, "jobs");
        for table in ["`jobs_meta`", "`jobs_note`", "`jobs_lock`", "`jobs_holder`"] {
            assert_eq!(
                optimistic.matches(&format!("CREATE TABLE IF NOT EXISTS {table}")).count(),
                1,
                "{optimistic}"
            );
        }
        assert!(
            !optimistic.contains("lockkit")
                && !optimistic.contains("_row`")
                && !optimistic.contains("--")
        );
        let pessimistic = sql(Strategy::Pessimistic, "lockkit");
        assert!(pessimistic.contains("`lockkit_row`") && pessimistic.contains("`lockkit_fence`"));
        assert_eq!(pessimistic.matches("CREATE TABLE").count(), 4);
    }
}
