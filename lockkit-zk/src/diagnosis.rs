//! Checks the shape of an ensemble, and reports what it means for the locks.

use lockkit_core::{
    Result,
    spi::{Diagnostic, Severity},
};

use crate::{
    config::{Acl, Config, Heartbeat},
    session::Session,
};

/// The node in which an ensemble lists its members: see "Dynamic Reconfiguration" in ZooKeeper's
/// manual.
const MEMBERS: &str = "/zookeeper/config";

/// Checks the ensemble and the settings that the session agreed on with it.
pub(crate) async fn diagnose(session: &Session, config: &Config) -> Result<Vec<Diagnostic>> {
    let client = session.client()?;
    // A server before 3.5 has no such node, and a newer server may hide it from some users.
    let members = client.get_data(MEMBERS).await.ok().and_then(|(data, _)| voters(&data));
    Ok(vec![
        ensemble(members),
        timeout(session, config),
        heartbeat(config.heartbeat, members),
        acl(config.acl),
    ])
}

/// Counts the servers of a dynamic configuration that have a vote:
/// `server.1=host:port:port:participant;clientport`.
fn voters(config: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(config).ok()?;
    let servers = text.lines().filter(|line| line.starts_with("server."));
    let voters = servers.filter(|line| !line.contains(":observer")).count();
    // A single server lists no members.
    Some(voters.max(1))
}

fn ensemble(voters: Option<usize>) -> Diagnostic {
    let what = "ensemble";
    let Some(voters) = voters else {
        return Diagnostic::new(Severity::Unknown, what, "not told").with_advice(format!(
            "this user can't read {MEMBERS}, or the server is older than 3.5"
        ));
    };
    let found = format!("{voters} voting members");
    match voters {
        1 => Diagnostic::new(Severity::Note, what, "one server").with_advice(
            "there is no failover, so none can lose a lock; while the server is down, no client \
             gets a lock, and holders lose locks that they can't renew in time; run three members",
        ),
        2 => Diagnostic::new(Severity::Note, what, found).with_advice(
            "each change needs both members, so they are no better than one server; run three \
             members",
        ),
        even if even.is_multiple_of(2) => Diagnostic::new(Severity::Note, what, found).with_advice(
            "an ensemble of this even size tolerates no more failures than one with one member less",
        ),
        _ => Diagnostic::new(Severity::Good, what, found),
    }
}

/// The server keeps the timeout inside its own limits, `minSessionTimeout` and `maxSessionTimeout`.
fn timeout(session: &Session, config: &Config) -> Diagnostic {
    let agreed = session.timeout();
    let wanted = config.session_timeout;
    let what = "session timeout";
    if agreed == wanted {
        return Diagnostic::new(Severity::Good, what, format!("{agreed:?}"));
    }
    Diagnostic::new(Severity::Note, what, format!("{agreed:?}, not the {wanted:?} of the URL")).with_advice(
        "the server's bounds changed the session timeout, and a dead holder keeps its locks for \
         that long; see minSessionTimeout and maxSessionTimeout (2 and 20 ticks by default)",
    )
}

/// A server does not show its `syncLimit` to clients.
fn heartbeat(heartbeat: Heartbeat, voters: Option<usize>) -> Diagnostic {
    match heartbeat {
        Heartbeat::Write => Diagnostic::new(Severity::Good, "heartbeat", "write"),
        Heartbeat::Sync if voters == Some(1) => {
            Diagnostic::new(Severity::Good, "heartbeat", "sync")
        }
        Heartbeat::Sync => Diagnostic::new(Severity::Weak, "heartbeat", "sync").with_advice(
            "a leader that lost its followers answers sync for up to syncLimit × tickTime (10 s by \
             default); if that is more than a third of the session timeout, two clients can hold \
             one lock; use heartbeat=write",
        ),
    }
}

fn acl(acl: Acl) -> Diagnostic {
    match acl {
        Acl::Creator => Diagnostic::new(Severity::Good, "acl", "creator"),
        Acl::Open => Diagnostic::new(Severity::Note, "acl", "open").with_advice(
            "each client that reaches the ensemble can delete held locks; use user:password@ and \
             acl=creator in the URL",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_with_a_vote_are_counted() {
        let config =
            b"server.1=a:2888:3888:participant;0.0.0.0:2181\nserver.2=b:2888:3888:participant;2181\n\
                       server.3=c:2888:3888:observer;2181\nversion=100000000";
        assert_eq!(voters(config), Some(2));
        assert_eq!(voters(b"version=0"), Some(1), "a server on its own");
        assert_eq!(voters(b"\xff"), None);
    }

    #[test]
    fn heartbeats_by_sync_are_weak_unless_there_is_one_server() {
        let severities = [None, Some(1), Some(3)].map(|voters| {
            [Heartbeat::Sync, Heartbeat::Write].map(|kind| heartbeat(kind, voters).severity)
        });
        let good = Severity::Good;
        let weak = Severity::Weak;
        assert_eq!(severities, [[weak, good], [good, good], [weak, good]]);
    }

    #[test]
    fn only_an_odd_number_of_three_or_more_is_good() {
        let severities = [None, Some(1), Some(2), Some(3), Some(4), Some(5)]
            .map(|voters| ensemble(voters).severity);
        let good = Severity::Good;
        let note = Severity::Note;
        assert_eq!(severities, [Severity::Unknown, note, note, good, note, good]);
    }
}
