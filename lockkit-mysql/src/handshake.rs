//! Sets up a fresh connection, and asks the server for the facts about itself.

use lockkit_core::{
    Clock, ErrorKind, Result, Tick,
    spi::{Role, ServerClock},
};
use mysql_async::{Conn, Row, prelude::FromValue};

use crate::{
    config::Strategy,
    connection::{Connection, Step},
    error::{self, Phase},
    server::Server,
    sql::{LEAST_TOKEN, NOW},
};

/// The settings that our statements rely on. They override `init_connect`, the server's defaults
/// and a proxy's settings. A statement waits for a row for one second at most, so that a late
/// statement can't wait for long.
///
/// The character set comes first, because the server converts parameters and the literals of the
/// following statements to it. A name that was converted would be another name.
pub(crate) const SETTINGS: &str = "SET NAMES utf8mb4;SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;\
    SET SESSION TRANSACTION READ WRITE;\
    SET autocommit=1,completion_type='NO_CHAIN',sql_safe_updates=0,sql_select_limit=DEFAULT,timestamp=DEFAULT,\
    sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',innodb_lock_wait_timeout=1,lock_wait_timeout=3,\
    wait_timeout=28800/*!50708,max_execution_time=0*//*M!100300,max_statement_time=0,idle_transaction_timeout=0,\
    idle_readonly_transaction_timeout=0,idle_write_transaction_timeout=0*/;";

const FACTS: &str = "SHOW GLOBAL STATUS LIKE 'Uptime';\
    SHOW GLOBAL VARIABLES WHERE Variable_name IN ('hostname','port','read_only','super_read_only','innodb_read_only',\
    'wsrep_on','group_replication_group_name','group_replication_single_primary_mode');";

/// If the server takes longer than this for the statements, the client asks again. It computes the
/// server's start from the time and the uptime. If these are far apart, the server looks like a
/// later run of itself. Then a connection of the same run would count as ended.
const LONGEST_FACTS_US: u64 = 500_000;

/// Asks whether the server takes changes. MariaDB does not know `super_read_only`, and skips it.
pub(crate) const ROLE: &str =
    "SELECT @@GLOBAL.read_only,@@GLOBAL.innodb_read_only/*!50708 ,@@GLOBAL.super_read_only*/";

/// Reads the answer to [`ROLE`].
pub(crate) fn role(steps: &[Step]) -> Option<Role> {
    let row = steps.first()?.rows.first()?;
    let texts =
        (0..row.len()).map(|index| value::<String>(row, index)).collect::<Option<Vec<_>>>()?;
    Some(if texts.iter().any(|text| is_on(text)) { Role::Replica } else { Role::Primary })
}

/// Sets up a fresh connection, and learns the server's time from it.
///
/// # Errors
/// [`ErrorKind::ReadOnly`] for a replica, [`ErrorKind::Unsupported`] for a cluster on which row
/// locks do not reach the other nodes.
pub(crate) async fn introduce(
    conn: Conn,
    number: u64,
    strategy: Strategy,
    clock: &std::sync::OnceLock<ServerClock>,
) -> Result<Connection> {
    let greeted = u64::from(conn.id());
    let mut connection = Connection::new(conn, number, Server::default());
    let answer = connection.script(SETTINGS).await;
    answer.map_err(|error| error::from_mysql(error, Phase::Open, "setting up the session"))?;
    let what = "asking for the server's identity";
    let question = format!("SELECT CONNECTION_ID(),{NOW};{FACTS}SELECT {NOW}");
    let facts = loop {
        let sent = Clock::Boot.now();
        let answer = connection.script(&question).await;
        let steps = answer.map_err(|error| error::from_mysql(error, Phase::Open, what))?;
        let facts = Facts::read(&steps).ok_or_else(|| error::nonsense(what))?;
        facts.check(strategy)?;
        observe(clock, sent, facts.now_us);
        if facts.took_us < LONGEST_FACTS_US {
            break facts;
        }
    };
    let started_us = facts.now_us.saturating_sub(facts.uptime_s.saturating_mul(1_000_000));
    let host = facts.text("hostname");
    let port = facts.text("port");
    // A proxy greets with a number of its own, and takes the number in a `KILL` for one of its own.
    // The greeting has room for 32 bits.
    let is_direct = greeted == facts.thread & u64::from(u32::MAX);
    connection.set_server(Server::new(host, port, started_us, facts.thread, is_direct));
    Ok(connection)
}

/// Learns the server's time from an answer that holds it.
pub(crate) fn observe(clock: &std::sync::OnceLock<ServerClock>, sent: Tick, now_us: u64) {
    let now = i64::try_from(now_us).unwrap_or(i64::MAX);
    clock.get_or_init(|| ServerClock::new(sent, now)).observe(sent, now, Clock::Boot.now());
}

struct Facts {
    thread: u64,
    now_us: u64,
    /// How long the server took for all statements, from `now_us` on.
    took_us: u64,
    uptime_s: u64,
    variables: Vec<(String, String)>,
}

impl Facts {
    fn read(steps: &[Step]) -> Option<Self> {
        let [ids, uptime, variables, end, ..] = steps else { return None };
        let ids = ids.rows.first()?;
        let pair = |row: &Row| Some((value::<String>(row, 0)?, value::<String>(row, 1)?));
        let (_, uptime) = pair(uptime.rows.first()?)?;
        let variables = variables.rows.iter().map(pair).collect::<Option<_>>()?;
        let now_us = value(ids, 1)?;
        let end_us = value::<u64>(end.rows.first()?, 0)?;
        Some(Self {
            thread: value(ids, 0)?,
            now_us,
            took_us: end_us.abs_diff(now_us),
            uptime_s: uptime.parse().ok()?,
            variables,
        })
    }

    fn text(&self, name: &str) -> String {
        let found = self.variables.iter().find(|(variable, _)| variable == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    fn is_on(&self, name: &str) -> bool {
        is_on(&self.text(name))
    }

    fn check(&self, strategy: Strategy) -> Result<()> {
        let read_only = ["read_only", "super_read_only", "innodb_read_only"]
            .into_iter()
            .find(|name| self.is_on(name));
        if let Some(variable) = read_only {
            let reason = format!(
                "the server has {variable} set, so it is not a primary; name the primary in the URL"
            );
            return Err(error::ours(ErrorKind::ReadOnly, reason));
        }
        if self.now_us < LEAST_TOKEN {
            let reason = "the server's clock shows a time before the year 2002; set it, because \
                          fencing tokens start from it";
            return Err(error::ours(ErrorKind::Unsupported, reason));
        }
        let group = !self.text("group_replication_group_name").is_empty()
            && !self.is_on("group_replication_single_primary_mode");
        if strategy == Strategy::Pessimistic && (self.is_on("wsrep_on") || group) {
            let reason = "the server is part of a cluster with several primaries, where a row lock \
                          excludes only clients of the same node; use strategy=optimistic";
            return Err(error::ours(ErrorKind::Unsupported, reason));
        }
        Ok(())
    }
}

/// Whether a switch is on. Its value is a number or a word.
pub(crate) fn is_on(text: &str) -> bool {
    !matches!(text.to_ascii_uppercase().as_str(), "" | "OFF" | "0")
}

/// A value of a row, if it is there and of this type.
pub(crate) fn value<T: FromValue>(row: &Row, index: usize) -> Option<T> {
    row.get_opt(index)?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(variables: &[(&str, &str)]) -> Facts {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Facts { thread: 7, now_us: 2 * LEAST_TOKEN, took_us: 0, uptime_s: 1, variables }
    }

    #[test]
    fn c13_a_server_that_takes_no_writes_is_refused_by_name() {
        for (name, value) in
            [("read_only", "ON"), ("read_only", "NO_LOCK"), ("super_read_only", "1")]
        {
            let error = facts(&[(name, value)]).check(Strategy::Optimistic).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ReadOnly);
            assert!(error.to_string().contains(name), "{error}");
        }
        facts(&[("read_only", "OFF"), ("super_read_only", "0")])
            .check(Strategy::Optimistic)
            .unwrap();
    }

    #[test]
    fn c1_row_locks_are_refused_where_they_hold_on_one_node_only() {
        let galera = facts(&[("wsrep_on", "ON")]);
        let name = ("group_replication_group_name", "aaaa");
        let multi = facts(&[name, ("group_replication_single_primary_mode", "OFF")]);
        for cluster in [&galera, &multi] {
            let error = cluster.check(Strategy::Pessimistic).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            cluster.check(Strategy::Optimistic).unwrap();
        }
        let single =
            facts(&[name, ("group_replication_single_primary_mode", "ON"), ("wsrep_on", "OFF")]);
        single.check(Strategy::Pessimistic).unwrap();
    }
}
