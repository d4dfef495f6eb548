//! Judges what a server's settings mean for the locks in it.

use std::collections::HashMap;

use lockkit_core::{
    Result,
    spi::{Diagnostic, Severity},
};

use crate::{
    connection::Step,
    error::{self, Phase},
    handshake::{is_on, value},
    pool::Pool,
};

/// A server leaves out the variables that it does not know. The names differ between MySQL, MariaDB
/// and their versions.
const QUESTIONS: &str = "SELECT VERSION();\
    SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit','innodb_doublewrite','log_bin',\
    'sync_binlog','wsrep_on','group_replication_group_name','group_replication_single_primary_mode',\
    'group_replication_consistency','rpl_semi_sync_master_timeout','rpl_semi_sync_source_timeout',\
    'rpl_semi_sync_master_wait_point','rpl_semi_sync_source_wait_point','max_connections');\
    SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status','Rpl_semi_sync_source_status',\
    'Rpl_semi_sync_master_clients','Rpl_semi_sync_source_clients','Slaves_connected','Threads_connected',\
    'wsrep_cluster_size');";

/// A server that waits this long for its replicas waits until an operator repairs them.
const A_DAY_MS: u64 = 24 * 3_600 * 1_000;

/// Judges the settings of the server that takes the changes.
pub(crate) async fn diagnose(pool: &Pool) -> Result<Vec<Diagnostic>> {
    let what = "asking for its settings";
    let mut side = pool.get_side(pool.config().connect_timeout).await?;
    let answer = side.script(QUESTIONS).await;
    let steps = pool.checked(answer, Phase::Read, what)?;
    let facts = Facts::read(&steps).ok_or_else(|| error::nonsense(what))?;
    Ok(judge(&facts))
}

/// Variables and status values, by their names in lower case.
struct Facts {
    version: String,
    texts: HashMap<String, String>,
}

impl Facts {
    fn read(steps: &[Step]) -> Option<Self> {
        let (version, tables) = steps.split_first()?;
        let version = value(version.rows.first()?, 0)?;
        let rows = tables.iter().flat_map(|table| &table.rows);
        let pairs =
            rows.map(|row| Some((value::<String>(row, 0)?.to_ascii_lowercase(), value(row, 1)?)));
        Some(Self { version, texts: pairs.collect::<Option<_>>()? })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        self.text(name).is_some_and(is_on)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Looks under both names, because servers differ in the name that they use.
    fn either<T>(&self, names: [&str; 2], look: impl Fn(&Self, &str) -> Option<T>) -> Option<T> {
        names.into_iter().find_map(|name| look(self, name))
    }
}

fn judge(facts: &Facts) -> Vec<Diagnostic> {
    let mut diagnostics =
        vec![Diagnostic::new(Severity::Good, "version", facts.version.as_str()), flush(facts)];
    diagnostics.push(cluster(facts).unwrap_or_else(|| replication(facts)));
    diagnostics.extend(binlog(facts));
    diagnostics.push(connections(facts));
    diagnostics
}

/// Whether the server writes a commit to the disk before it answers.
fn flush(facts: &Facts) -> Diagnostic {
    let what = "innodb_flush_log_at_trx_commit";
    match facts.text(what) {
        None => unknown(what),
        Some("1") => Diagnostic::new(Severity::Good, what, "1"),
        Some(other) => Diagnostic::new(Severity::Weak, what, other).with_advice(
            "a crash of the machine loses the grants of the last second, so other clients get \
             these locks while their holders still work; set it to 1",
        ),
    }
}

/// Galera or Group Replication. `None` for a server that is in no such cluster.
fn cluster(facts: &Facts) -> Option<Diagnostic> {
    if facts.is_on("wsrep_on") {
        let size = facts.text("wsrep_cluster_size").unwrap_or("an unknown number of");
        let found = format!("Galera, {size} nodes");
        return Some(Diagnostic::new(Severity::Note, "replication", found).with_advice(
            "two nodes may both grant a lock, and then one commit fails; strategy=optimistic stays \
             safe, but needs retries; send all clients to one node",
        ));
    }
    let group = facts.text("group_replication_group_name").filter(|name| !name.is_empty())?;
    if facts.is_on("group_replication_single_primary_mode") {
        let consistency = facts.text("group_replication_consistency").unwrap_or("EVENTUAL");
        let found = format!("group {group}, one primary, consistency {consistency}");
        if !consistency.eq_ignore_ascii_case("EVENTUAL") {
            return Some(Diagnostic::new(Severity::Good, "replication", found));
        }
        return Some(Diagnostic::new(Severity::Weak, "replication", found).with_advice(
            "a new primary may grant a lock before it has applied grants of the former one; set \
             group_replication_consistency to BEFORE_ON_PRIMARY_FAILOVER",
        ));
    }
    let found = format!("group {group}, several primaries");
    Some(Diagnostic::new(Severity::Note, "replication", found).with_advice(
        "row locks exclude only clients of the same node; use strategy=optimistic, or \
         group_replication_single_primary_mode=ON",
    ))
}

fn replication(facts: &Facts) -> Diagnostic {
    let what = "replication";
    let clients = facts
        .either(["rpl_semi_sync_source_clients", "rpl_semi_sync_master_clients"], Facts::number);
    let semi_sync = facts
        .either(["rpl_semi_sync_source_status", "rpl_semi_sync_master_status"], |facts, name| {
            facts.text(name).map(is_on)
        });
    let point = facts.either(
        ["rpl_semi_sync_source_wait_point", "rpl_semi_sync_master_wait_point"],
        |facts, name| facts.text(name).map(str::to_owned),
    );
    match (semi_sync, facts.number("slaves_connected")) {
        (Some(true), _) => {
            let timeout_ms = facts.either(
                ["rpl_semi_sync_source_timeout", "rpl_semi_sync_master_timeout"],
                Facts::number,
            );
            semi_synchronous(
                clients.unwrap_or(0),
                &point.unwrap_or_default(),
                timeout_ms.unwrap_or(0),
            )
        }
        (_, Some(0)) => Diagnostic::new(Severity::Note, what, "no replica").with_advice(
            "there is no failover, so none can lose a lock; while the server is down, no client \
             gets a lock",
        ),
        (_, Some(count)) => Diagnostic::new(
            Severity::Weak,
            what,
            format!("asynchronous, {count} replicas"),
        )
        .with_advice(
            "a failover can lose a grant while its holder still works; use semi-synchronous \
             replication with AFTER_SYNC, and let the resource compare fencing tokens",
        ),
        (_, None) => Diagnostic::new(Severity::Unknown, what, "not semi-synchronous").with_advice(
            "this server does not report the number of its replicas; if it has replicas, a \
             failover can lose a grant",
        ),
    }
}

fn semi_synchronous(replicas: u64, point: &str, timeout_ms: u64) -> Diagnostic {
    let found = format!("semi-synchronous, {replicas} replicas, {point}, timeout {timeout_ms} ms");
    let advice = if replicas == 0 {
        "no replica confirms a commit, so a failover can lose a grant while its holder still works"
    } else if !point.eq_ignore_ascii_case("AFTER_SYNC") {
        "other clients see a commit before a replica has it; set the wait point to AFTER_SYNC"
    } else if timeout_ms < A_DAY_MS {
        "if no replica confirms within the timeout, the server continues without replicas, and a \
         failover can lose a grant; set a day or more, so that the server blocks instead of losing \
         locks"
    } else {
        return Diagnostic::new(Severity::Good, "replication", found);
    };
    Diagnostic::new(Severity::Weak, "replication", found).with_advice(advice)
}

/// Whether a replica, or the server itself after a crash, may lack commits.
fn binlog(facts: &Facts) -> Option<Diagnostic> {
    if !facts.is_on("log_bin") {
        return None;
    }
    let what = "sync_binlog";
    Some(match facts.text(what) {
        None => unknown(what),
        Some("1") => Diagnostic::new(Severity::Good, what, "1"),
        Some(other) => Diagnostic::new(Severity::Weak, what, other).with_advice(
            "after a crash, replicas may lack grants, or have grants that the server has lost; set \
             it to 1",
        ),
    })
}

/// Each row lock that is held or waited for takes a connection of its own.
fn connections(facts: &Facts) -> Diagnostic {
    let what = "max_connections";
    let (Some(most), Some(now)) = (facts.number(what), facts.number("threads_connected")) else {
        return unknown(what);
    };
    let found = format!("{now} of {most} in use");
    if now.saturating_mul(5) < most.saturating_mul(4) {
        return Diagnostic::new(Severity::Good, what, found);
    }
    Diagnostic::new(Severity::Note, what, found).with_advice(
        "without a free connection, clients can neither take nor renew locks; raise \
         max_connections, or lower pool_size in the URL",
    )
}

fn unknown(what: &str) -> Diagnostic {
    Diagnostic::new(Severity::Unknown, what, "not told")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severities(texts: &[(&str, &str)]) -> Vec<(String, Severity)> {
        let texts =
            texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let diagnostics = judge(&Facts { version: "1".to_owned(), texts });
        diagnostics
            .into_iter()
            .skip(1)
            .map(|diagnostic| (diagnostic.what, diagnostic.severity))
            .collect()
    }

    fn severity(of: &str, texts: &[(&str, &str)]) -> Severity {
        severities(texts)
            .into_iter()
            .find(|(what, _)| what == of)
            .unwrap_or_else(|| panic!("no {of}"))
            .1
    }

    #[test]
    fn grants_that_a_crash_loses_are_reported() {
        let flush = "innodb_flush_log_at_trx_commit";
        assert_eq!(severity(flush, &[(flush, "1")]), Severity::Good);
        assert_eq!(severity(flush, &[(flush, "2")]), Severity::Weak);
        assert_eq!(
            severity("sync_binlog", &[("log_bin", "ON"), ("sync_binlog", "0")]),
            Severity::Weak
        );
        assert!(!severities(&[("log_bin", "OFF")]).iter().any(|(what, _)| what == "sync_binlog"));
    }

    #[test]
    fn grants_that_a_failover_loses_are_reported() {
        let of = "replication";
        assert_eq!(severity(of, &[("slaves_connected", "0")]), Severity::Note);
        assert_eq!(severity(of, &[("slaves_connected", "2")]), Severity::Weak);
        assert_eq!(severity(of, &[]), Severity::Unknown);
        let semi = |replicas, point, timeout| {
            let texts = [
                ("rpl_semi_sync_source_status", "ON"),
                ("rpl_semi_sync_source_clients", replicas),
                ("rpl_semi_sync_source_wait_point", point),
                ("rpl_semi_sync_source_timeout", timeout),
            ];
            severity(of, &texts)
        };
        assert_eq!(semi("1", "AFTER_SYNC", "4294967295"), Severity::Good);
        assert_eq!(semi("0", "AFTER_SYNC", "4294967295"), Severity::Weak, "nobody confirms");
        assert_eq!(semi("1", "AFTER_COMMIT", "4294967295"), Severity::Weak);
        assert_eq!(semi("1", "AFTER_SYNC", "10000"), Severity::Weak, "then it goes on without");
        let group = ("group_replication_group_name", "a");
        let single = ("group_replication_single_primary_mode", "ON");
        let consistency = "group_replication_consistency";
        assert_eq!(
            severity(of, &[group, single, (consistency, "BEFORE_ON_PRIMARY_FAILOVER")]),
            Severity::Good
        );
        assert_eq!(severity(of, &[group, single, (consistency, "EVENTUAL")]), Severity::Weak);
        assert_eq!(severity(of, &[group]), Severity::Note);
        assert_eq!(severity(of, &[("wsrep_on", "ON")]), Severity::Note);
    }

    #[test]
    fn a_lack_of_free_connections_is_reported() {
        let of = "max_connections";
        assert_eq!(severity(of, &[(of, "100"), ("threads_connected", "79")]), Severity::Good);
        assert_eq!(severity(of, &[(of, "100"), ("threads_connected", "80")]), Severity::Note);
        assert_eq!(severity(of, &[]), Severity::Unknown);
    }
}
