//! Reports how the settings of a server endanger its locks.

use std::{collections::HashMap, sync::Arc};

use lockkit_core::{
    Result,
    spi::{Diagnostic, Severity},
};
use redis::{Cmd, RedisResult, Value};

use crate::{
    error::Phase,
    role,
    servers::{Destination, Link},
    store::Store,
};

const SETTINGS: [&str; 4] =
    ["appendfsync", "maxmemory", "maxmemory-policy", "min-replicas-to-write"];

type Texts = HashMap<String, String>;

/// Looks at each server that keeps locks.
pub(crate) async fn diagnose(store: &Store) -> Result<Vec<Diagnostic>> {
    let slots = store.patiently(store.slots()).await??;
    let is_one_of_many = slots.len() > 1;
    let mut diagnostics = Vec::new();
    for slot in slots {
        let facts = store.patiently(ask(store, slot)).await??;
        let place =
            if is_one_of_many { format!(" of the server with slot {slot}") } else { String::new() };
        let wait_replicas = store.config().replicas.map(|(replicas, _)| replicas);
        for mut diagnostic in judge(&facts, wait_replicas) {
            diagnostic.what.push_str(&place);
            diagnostics.push(diagnostic);
        }
    }
    Ok(diagnostics)
}

/// The facts that a server reports about itself.
#[derive(Debug, Default)]
struct Facts {
    /// `None` if we may not ask.
    info: Option<Texts>,
    settings: Option<Texts>,
}

impl Facts {
    /// Refuses the facts of a replica, because they say nothing about the server that grants.
    fn of_primary(self) -> RedisResult<Self> {
        if self.info("role") == Some("slave") { Err(role::replica()) } else { Ok(self) }
    }

    fn info(&self, name: &str) -> Option<&str> {
        self.info.as_ref()?.get(name).map(String::as_str)
    }

    /// `INFO` may know a setting, too, and more users may ask for it.
    fn setting(&self, name: &str) -> Option<&str> {
        let known = self.settings.as_ref().and_then(|settings| settings.get(name));
        known.map(String::as_str).or_else(|| self.info(&name.replace('-', "_")))
    }
}

async fn ask(store: &Store, slot: u16) -> Result<Facts> {
    let facts = |destination: Arc<Destination>| async move {
        facts_of(&destination.link).await?.of_primary()
    };
    store.route(slot).lead(Phase::Read, facts).await
}

/// Asks for the facts. A fact that we may not ask for is left out; a broken connection is an error.
async fn facts_of(link: &Link) -> RedisResult<Facts> {
    let permitted = |answer: RedisResult<Value>| match answer {
        Err(error) if error.is_io_error() || error.is_connection_dropped() => Err(error),
        answer => Ok(answer.ok()),
    };
    let mut config = Cmd::new();
    config.arg("CONFIG").arg("GET");
    let info = permitted(link.ask(Cmd::new().arg("INFO")).await)?;
    let mut settings = Texts::new();
    for name in SETTINGS {
        let Some(answer) = permitted(link.ask(config.clone().arg(name)).await)? else {
            return Ok(Facts { info: info.and_then(lines), settings: None });
        };
        settings.extend(redis::from_redis_value::<Texts>(answer).unwrap_or_default());
    }
    Ok(Facts { info: info.and_then(lines), settings: Some(settings) })
}

/// Reads `name:value` from each line.
fn lines(info: Value) -> Option<Texts> {
    let text = redis::from_redis_value::<String>(info).ok()?;
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    Some(pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
}

fn judge(facts: &Facts, wait_replicas: Option<u32>) -> Vec<Diagnostic> {
    let version = facts.info("redis_version").unwrap_or("not told");
    let mut diagnostics = vec![Diagnostic::new(Severity::Good, "version", version)];
    diagnostics.extend([eviction(facts), restart(facts), failover(facts, wait_replicas)]);
    diagnostics.extend(disk(facts));
    diagnostics
}

fn eviction(facts: &Facts) -> Diagnostic {
    let what = "maxmemory-policy";
    match (facts.setting("maxmemory"), facts.setting(what)) {
        (_, None) => unknown(what, "CONFIG GET maxmemory-policy"),
        (_, Some("noeviction")) => Diagnostic::new(Severity::Good, what, "noeviction"),
        (Some("0"), Some(policy)) => {
            Diagnostic::new(Severity::Note, what, format!("{policy}, without a maxmemory"))
                .with_advice(
                    "the server evicts no keys now; set noeviction before you set a maxmemory",
                )
        }
        (_, Some(policy)) => Diagnostic::new(Severity::Unsafe, what, policy).with_advice(
            "when memory is short, the server evicts held locks, and other clients get them; set \
             maxmemory-policy to noeviction, or use a separate server for locks",
        ),
    }
}

/// Judges whether locks survive a restart of the server.
fn restart(facts: &Facts) -> Diagnostic {
    let what = "persistence";
    let Some(is_on) = facts.info("aof_enabled") else { return unknown(what, "INFO") };
    if is_on != "1" {
        return Diagnostic::new(Severity::Weak, what, "no append-only file").with_advice(
            "a restart of the server loses the locks since its last snapshot, or all locks, so \
             other clients get them while their holders still work; set appendonly yes and \
             appendfsync always",
        );
    }
    match facts.setting("appendfsync") {
        None => unknown("appendfsync", "CONFIG GET appendfsync"),
        Some("always") => Diagnostic::new(Severity::Good, what, "append-only file, appendfsync always"),
        Some(other) => Diagnostic::new(Severity::Weak, what, format!("append-only file, appendfsync {other}")).with_advice(
            "a crash of the machine loses the grants of the last second or more; set appendfsync always, or let the \
             resource compare fencing tokens",
        ),
    }
}

fn failover(facts: &Facts, wait_replicas: Option<u32>) -> Diagnostic {
    let what = "replication";
    let Some(replicas) = facts.info("connected_slaves") else { return unknown(what, "INFO") };
    let count: u32 = replicas.parse().unwrap_or(0);
    let floor: u32 =
        facts.setting("min-replicas-to-write").and_then(|floor| floor.parse().ok()).unwrap_or(0);
    match (count, wait_replicas) {
        (0, Some(wanted)) => {
            Diagnostic::new(Severity::Unsafe, what, format!("no replica, wait_replicas={wanted}"))
                .with_advice("the server grants no lock until that many replicas are connected")
        }
        (0, None) => Diagnostic::new(Severity::Note, what, "no replica").with_advice(
            "there is no failover, so none can lose a lock; while the server is down, no client \
             gets a lock",
        ),
        (_, Some(wanted)) if count < wanted => Diagnostic::new(
            Severity::Unsafe,
            what,
            format!("{count} replicas, wait_replicas={wanted}"),
        )
        .with_advice("the server grants no lock until that many replicas are connected"),
        (_, Some(wanted)) if count > wanted => Diagnostic::new(
            Severity::Weak,
            what,
            format!("{count} replicas, wait_replicas={wanted}"),
        )
        .with_advice(
            "a failover to a replica that did not confirm can lose a grant; wait for all replicas \
             that may be promoted",
        ),
        (_, Some(wanted)) => Diagnostic::new(
            Severity::Good,
            what,
            format!("{count} replicas, wait_replicas={wanted}"),
        ),
        (_, None) => {
            let found = format!("{count} replicas, min-replicas-to-write {floor}");
            Diagnostic::new(Severity::Weak, what, found).with_advice(
                "replication is asynchronous, so a failover can lose a grant while its holder \
                 still works; add wait_replicas=N to the URL, and let the resource compare fencing \
                 tokens",
            )
        }
    }
}

/// Reports failed writes to the disk.
fn disk(facts: &Facts) -> Option<Diagnostic> {
    let failed = |name: &&str| facts.info(name).is_some_and(|status| status != "ok");
    let name = ["aof_last_write_status", "rdb_last_bgsave_status"].into_iter().find(failed)?;
    let found = facts.info(name).unwrap_or_default();
    Some(
        Diagnostic::new(Severity::Weak, name, found)
            .with_advice("the server can't write to its disk; see its log"),
    )
}

fn unknown(what: &str, question: &str) -> Diagnostic {
    Diagnostic::new(Severity::Unknown, what, "not told")
        .with_advice(format!("this user may not run {question}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn severities(
        info: &[(&str, &str)],
        settings: &[(&str, &str)],
        wait: Option<u32>,
    ) -> Vec<(String, Severity)> {
        let facts = Facts { info: Some(texts(info)), settings: Some(texts(settings)) };
        judge(&facts, wait)
            .into_iter()
            .skip(1)
            .map(|diagnostic| (diagnostic.what, diagnostic.severity))
            .collect()
    }

    fn named(severities: [(&str, Severity); 3]) -> Vec<(String, Severity)> {
        severities.map(|(what, severity)| (what.to_owned(), severity)).to_vec()
    }

    #[test]
    fn a_server_that_keeps_its_grants_is_good() {
        let info =
            [("aof_enabled", "1"), ("connected_slaves", "2"), ("aof_last_write_status", "ok")];
        let settings =
            [("maxmemory", "100"), ("maxmemory-policy", "noeviction"), ("appendfsync", "always")];
        let good = [
            ("maxmemory-policy", Severity::Good),
            ("persistence", Severity::Good),
            ("replication", Severity::Good),
        ];
        assert_eq!(severities(&info, &settings, Some(2)), named(good));
        assert_eq!(
            severities(&info, &settings, Some(1))[2].1,
            Severity::Weak,
            "the other one may be promoted"
        );
    }

    #[test]
    fn a_cache_is_distinguished_from_a_store() {
        let info = [("aof_enabled", "0"), ("connected_slaves", "1")];
        let settings = [
            ("maxmemory", "100"),
            ("maxmemory-policy", "allkeys-lru"),
            ("appendfsync", "everysec"),
        ];
        let bad = [
            ("maxmemory-policy", Severity::Unsafe),
            ("persistence", Severity::Weak),
            ("replication", Severity::Weak),
        ];
        assert_eq!(severities(&info, &settings, None), named(bad));
        let settings =
            [("maxmemory", "0"), ("maxmemory-policy", "allkeys-lru"), ("appendfsync", "everysec")];
        assert_eq!(severities(&info, &settings, None)[0].1, Severity::Note);
        assert_eq!(
            severities(&info, &settings, Some(2))[2].1,
            Severity::Unsafe,
            "too few replicas"
        );
    }

    #[test]
    fn a_denied_question_is_unknown() {
        let diagnostics = judge(&Facts::default(), None);
        assert!(
            diagnostics.iter().skip(1).all(|diagnostic| diagnostic.severity == Severity::Unknown),
            "{diagnostics:?}"
        );
        assert_eq!(diagnostics.len(), 4);
    }

    #[test]
    fn a_full_disk_is_reported() {
        let info =
            [("aof_enabled", "1"), ("connected_slaves", "0"), ("aof_last_write_status", "err")];
        assert_eq!(severities(&info, &[], None).last().unwrap().0, "aof_last_write_status");
    }
}
