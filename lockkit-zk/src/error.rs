//! Translates the errors of the client and the servers into lockkit's errors.

use std::borrow::Cow;

use lockkit_core::{Error, ErrorKind};
use zookeeper_client as zk;

use crate::version;

/// The short name of this backend.
pub(crate) const BACKEND: &str = "zookeeper";

/// `Error(EphemeralOnLocalSession)` of the server, for which the client has no name.
const EPHEMERAL_ON_LOCAL_SESSION: i32 = -120;

/// The kind of request that failed. Only a write can have an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Read,
    Write,
}

/// The meaning of a client error for the request and its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The server answered, and refused the request.
    Refused,
    /// The session is over. The servers have deleted its nodes, or will do so.
    SessionOver,
    /// The request may have been applied.
    Unknown,
}

/// Decides whether a request may have been applied, and whether its session is over.
pub(crate) fn fate(error: &zk::Error) -> Fate {
    use zk::Error as E;
    match error {
        E::SessionExpired | E::ClientClosed | E::AuthFailed | E::SessionMoved => Fate::SessionOver,
        // The client reports an RST and silence as `Custom`, a clean end as `ConnectionLoss`, and
        // the end of its own task as `UnexpectedError`.
        E::ConnectionLoss
        | E::Custom(_)
        | E::UnexpectedError(_)
        | E::UnmarshalError { .. }
        | E::Throttled
        | E::Timeout
        | E::NoHosts => Fate::Unknown,
        _ => Fate::Refused,
    }
}

/// Translates an error that occurred during `what` at `path`.
pub(crate) fn from_zk(error: zk::Error, phase: Phase, what: &str, path: &str) -> Error {
    let (kind, advice) = kind_and_advice(&error);
    let unknown = phase == Phase::Write && fate(&error) == Fate::Unknown;
    let ours = ours(kind, format!("{what} {path:?} failed: {error}; {advice}")).with_source(error);
    if unknown { ours.with_outcome_unknown() } else { ours }
}

/// The kind of the error, and advice for an operator.
fn kind_and_advice(error: &zk::Error) -> (ErrorKind, &'static str) {
    use zk::Error as E;
    match error {
        E::NoAuth => (
            ErrorKind::PermissionDenied,
            "the ACL of the node or of its folder does not allow this; use the credentials that \
             created the node, or another prefix",
        ),
        E::AuthFailed => (
            ErrorKind::Authentication,
            "the server refused the credentials; check the ones in the URL",
        ),
        E::InvalidAcl => (
            ErrorKind::Authentication,
            "the server knows no user as the owner of the node; acl=creator needs user:password@ \
             in the URL",
        ),
        E::NotReadOnly => (
            ErrorKind::ReadOnly,
            "the server has lost its quorum and takes no writes; check the other servers",
        ),
        E::QuotaExceeded => {
            (ErrorKind::StoreFull, "the quota of this part of the tree is used up; raise it")
        }
        E::NoNode => (
            ErrorKind::Unavailable,
            "another client deleted the chroot, or a folder of lockkit; try again, and leave these \
             nodes alone",
        ),
        E::NoChildrenForEphemerals => (
            ErrorKind::WrongType,
            "an ephemeral node of another program is in the place of lockkit's folder; use another \
             prefix",
        ),
        E::Unimplemented => (
            ErrorKind::Unsupported,
            "the server does not know this request; lockkit needs ZooKeeper 3.6 or later",
        ),
        E::UnexpectedErrorCode(EPHEMERAL_ON_LOCAL_SESSION) => (
            ErrorKind::Unsupported,
            "the server makes local sessions, which can't own locks; set \
             localSessionsUpgradingEnabled=true",
        ),
        E::SessionExpired | E::ClientClosed | E::SessionMoved => {
            (ErrorKind::Unavailable, "the session has ended; the next attempt opens a new one")
        }
        _ if fate(error) == Fate::Unknown => (
            ErrorKind::Unavailable,
            "the connection broke, or the server fell silent; is the ensemble running and \
             reachable?",
        ),
        _ => (ErrorKind::Unexpected, "no known server gives this answer"),
    }
}

/// An error of this backend.
pub(crate) fn ours(kind: ErrorKind, reason: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, reason).with_backend(BACKEND)
}

/// The error for a node that a newer lockkit wrote or made.
pub(crate) fn newer(path: &str) -> Error {
    let reason = format!(
        "a newer lockkit wrote {path:?} in a format that this version does not know; lockkit did \
         not change the node; upgrade this program, because locks under another prefix would not \
         exclude these"
    );
    ours(ErrorKind::NewerFormat, reason)
}

/// The error for a node in a lock's folder that does not belong to the lock.
pub(crate) fn stranger(folder: &str, name: &str) -> Error {
    if version::is_newer_name(name) {
        return newer(&format!("{folder}/{name}"));
    }
    let reason = format!(
        "{folder:?} contains {name:?}, which is no node of this kind of lock: another program uses \
         the folder (lockkit does not support kazoo's locks), or another lockkit uses fair=false; \
         use another prefix"
    );
    ours(ErrorKind::WrongType, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c5_a_write_that_was_not_answered_is_unknown_and_a_read_is_not() {
        let lost = || zk::Error::ConnectionLoss;
        assert!(from_zk(lost(), Phase::Write, "creating", "/a").is_outcome_unknown());
        assert!(!from_zk(lost(), Phase::Read, "listing", "/a").is_outcome_unknown());
        assert!(!from_zk(zk::Error::NoAuth, Phase::Write, "creating", "/a").is_outcome_unknown());
        assert!(from_zk(lost(), Phase::Write, "creating", "/a").is_temporary());
    }

    #[test]
    fn c13_errors_have_kinds_and_name_the_action_and_the_remedy() {
        use ErrorKind as K;
        for (error, kind) in [
            (zk::Error::NoAuth, K::PermissionDenied),
            (zk::Error::AuthFailed, K::Authentication),
            (zk::Error::InvalidAcl, K::Authentication),
            (zk::Error::NotReadOnly, K::ReadOnly),
            (zk::Error::QuotaExceeded, K::StoreFull),
            (zk::Error::NoChildrenForEphemerals, K::WrongType),
            (zk::Error::Unimplemented, K::Unsupported),
            (zk::Error::UnexpectedErrorCode(-120), K::Unsupported),
            (zk::Error::SessionExpired, K::Unavailable),
            (zk::Error::MarshallingError, K::Unexpected),
        ] {
            let error = from_zk(error, Phase::Write, "creating", "/a/b");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("creating \"/a/b\""), "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
