//! Translates the errors of the driver and the server into lockkit's errors.

use std::{borrow::Cow, ops::Range, time::Duration};

use lockkit_core::{Error, ErrorKind, FencingToken, Result};
use mysql_async as my;

use crate::sql::HIGHEST_TOKEN;

/// The short name of this backend.
pub(crate) const BACKEND: &str = "mysql";

/// The kind of work that an error interrupted. Only a write can have an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Read,
    Write,
}

/// Server errors after which the connection is gone, or soon will be: the server shuts down, or a
/// `KILL` ended the connection.
const FATAL: [u16; 14] =
    [1040, 1053, 1152, 1153, 1156, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 3169, 4031];
/// The numbers of a client's own errors. A proxy answers with one when its connection to the server
/// has broken.
const OF_CLIENT: Range<u16> = 2000..3000;
/// The fatal errors with which the server ends a connection by itself: it shuts down, a `KILL`
/// came, or the connection was idle.
const FAREWELL: [u16; 3] = [1053, 1927, 4031];
/// The commit failed, and another server of the cluster may already have the change.
const IN_DOUBT: [u16; 2] = [1180, 3100];
pub(crate) const NO_SUCH_TABLE: u16 = 1146;
pub(crate) const NO_SUCH_COLUMN: u16 = 1054;
pub(crate) const TABLE_DENIED: u16 = 1142;
pub(crate) const NO_SUCH_THREAD: u16 = 1094;
pub(crate) const LOCK_WAIT_TIMEOUT: u16 = 1205;
pub(crate) const LOCK_NOWAIT: u16 = 3572;
const READ_ONLY: u16 = 1290;
/// The transaction was begun as `READ ONLY`.
pub(crate) const READ_ONLY_TRANSACTION: u16 = 1792;
pub(crate) const DEADLOCK: u16 = 1213;
/// Galera has rolled a transaction back, and its savepoint with it: see
/// [`transaction`](crate::connection::Connection::transaction).
pub(crate) const SAVEPOINT_GONE: u16 = 1305;
/// Another primary of the group was faster, so this transaction was rolled back at its commit.
const CERTIFICATION: u16 = 3101;

/// The error number of a server's refusal.
pub(crate) fn code(error: &my::Error) -> Option<u16> {
    if let my::Error::Server(refusal) = error { Some(refusal.code) } else { None }
}

/// Whether the connection can't be used any more. A request on it may have been applied.
pub(crate) fn is_fatal(error: &my::Error) -> bool {
    code(error).is_none_or(|code| is_end(code) || IN_DOUBT.contains(&code))
}

/// Whether this error ends its connection.
fn is_end(code: u16) -> bool {
    FATAL.contains(&code) || OF_CLIENT.contains(&code)
}

/// Whether the server has ended the connection, and the transaction that was open on it. The server
/// may give this answer also to a statement that it did run, so the answer proves nothing about
/// that statement. The later statements were not run.
pub(crate) fn is_farewell(error: &my::Error) -> bool {
    code(error).is_some_and(|code| FAREWELL.contains(&code))
}

/// Whether the statement lost a race for rows and was rolled back completely. The caller can send
/// it again.
pub(crate) fn is_race(error: &my::Error) -> bool {
    matches!(code(error), Some(DEADLOCK | CERTIFICATION | LOCK_WAIT_TIMEOUT | SAVEPOINT_GONE))
}

/// Whether the server is no primary any more, and refuses to write.
pub(crate) fn is_demotion(error: &my::Error) -> bool {
    code(error).is_some_and(|code| of_server(code).0 == ErrorKind::ReadOnly)
}

/// The error that a server which is no primary gives to users who may not write there.
pub(crate) fn demoted() -> my::Error {
    let message = "read_only is set".to_owned();
    let state = "HY000".to_owned();
    my::Error::Server(my::ServerError { code: READ_ONLY, message, state })
}

/// Whether another transaction locked the row for longer than the statement was to wait.
pub(crate) fn is_taken(error: &my::Error) -> bool {
    matches!(code(error), Some(LOCK_WAIT_TIMEOUT | LOCK_NOWAIT))
}

/// Translates an error that came up during `what`.
pub(crate) fn from_mysql(error: my::Error, phase: Phase, what: &str) -> Error {
    let (kind, advice) = match code(&error) {
        Some(code) => of_server(code),
        None => of_driver(&error),
    };
    let unknown = phase == Phase::Write && is_fatal(&error);
    let text = one_line(&error.to_string());
    let ours = ours(kind, format!("{what} failed: {text}; {advice}")).with_source(error);
    if unknown { ours.with_outcome_unknown() } else { ours }
}

/// Translates the error of a connection that could not be opened. Some refusals repeat text that
/// the client sent, and the user name may be the password as well. Then the server's words are left
/// out, because stars in them would show where a short password occurs.
pub(crate) fn opening(error: my::Error, what: &str, secret: Option<&str>) -> Error {
    let number = code(&error);
    let told = from_mysql(error, Phase::Open, what);
    let has_secret = |text: &str| secret.is_some_and(|secret| text.contains(secret));
    if !has_secret(&told.to_string()) {
        return told;
    }
    let mut text =
        "connecting failed; the server's message is hidden, because it contains the password"
            .to_owned();
    if let Some(number) = number {
        let (_, advice) = of_server(number);
        let longer = format!(
            "connecting failed with error {number}; {advice} (the server's message is hidden, \
             because it contains the password)"
        );
        if !has_secret(&longer) {
            text = longer;
        }
    }
    ours(told.kind(), text)
}

fn of_server(code: u16) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    match code {
        1044 | 1142 | 1143 | 1227 | 1370 | 1410 => (
            K::PermissionDenied,
            "grant SELECT, INSERT, UPDATE and DELETE on lockkit's tables to this user",
        ),
        1045 | 1130 | 1251 | 1396 | 1698 | 1862 | 2061 | 3118 | 3878 => {
            (K::Authentication, "the server refused the credentials; check the ones in the URL")
        }
        1049 => (
            K::InvalidUrl,
            "the database does not exist; create it, or name another one in the URL",
        ),
        NO_SUCH_TABLE => {
            (K::WrongType, "lockkit's tables do not exist; connect again, or create them")
        }
        1054 | 1136 | 1264 | 1292 | 1364 | 1366 | 1406 => (
            K::WrongType,
            "the table has columns that this version of lockkit does not expect; use another \
             table_prefix, or the same version everywhere",
        ),
        1209 | READ_ONLY | READ_ONLY_TRANSACTION | 1836 | 3100 => (
            K::ReadOnly,
            "the server is not a primary, or was demoted; name the primary in the URL",
        ),
        1021 | 1030 | 1041 | 1114 | 1118 | 1598 => {
            (K::StoreFull, "the server has no space left; free some")
        }
        1129 => (
            K::PermissionDenied,
            "the server blocks this host after many failed connections; run FLUSH HOSTS there",
        ),
        1040 | 1203 | 1226 => (
            K::Unavailable,
            "the server has no free connection; raise max_connections, or lower pool_size",
        ),
        1665 => (K::Unsupported, "the server's binlog_format is STATEMENT; set ROW or MIXED"),
        1461 => (
            K::Unavailable,
            "the server has too many prepared statements; raise max_prepared_stmt_count",
        ),
        1969 | 3024 => (
            K::Unavailable,
            "the statement took longer than the server's time limit; is the server overloaded?",
        ),
        1180 => (K::Unavailable, "the server failed during a commit; see its log"),
        1047 => (
            K::Unavailable,
            "the node has lost its cluster, or is joining it; try again soon, or connect to \
             another node",
        ),
        DEADLOCK | CERTIFICATION | LOCK_WAIT_TIMEOUT | LOCK_NOWAIT | SAVEPOINT_GONE | 1020
        | 1412 | 1615 => (K::Unavailable, "other transactions used the same row; try again"),
        code if is_end(code) => (K::Unavailable, "the server closed the connection; try again"),
        _ => (K::Unexpected, "no known server gives this answer"),
    }
}

fn of_driver(error: &my::Error) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    use my::{DriverError as D, Error as E};
    match error {
        #[cfg(feature = "tls")]
        E::Io(my::IoError::Io(error))
            if error.get_ref().is_some_and(|error| error.is::<rustls::Error>()) =>
        {
            NO_TRUST
        }
        #[cfg(feature = "tls")]
        E::Io(my::IoError::Tls(_)) => NO_TRUST,
        // All of `Io`, because the driver knows TLS also when another crate enables that feature of
        // it.
        E::Io(_) | E::Driver(D::ConnectionClosed | D::PacketOutOfOrder) => (
            K::Unavailable,
            "the connection broke, or no server listens there; is the server running and reachable?",
        ),
        E::Driver(D::PoolDisconnected) => (
            K::Closed,
            "the program disconnected the pool that it gave to lockkit, or ended its runtime",
        ),
        E::Driver(
            D::UnknownAuthPlugin { .. } | D::MysqlOldPasswordDisabled | D::CleartextPluginDisabled,
        ) => (
            K::Authentication,
            "this user's authentication plugin is not supported; use a password",
        ),
        E::Driver(D::NoClientSslFlagFromServer) => {
            (K::Unsupported, "the server does not support TLS; write mysql://, or turn TLS on")
        }
        E::Driver(_) | E::Other(_) | E::Server(_) | E::Url(_) => (
            K::Unavailable,
            "the driver does not understand the server's answer; is this a MySQL or MariaDB server?",
        ),
    }
}

#[cfg(feature = "tls")]
const NO_TRUST: (ErrorKind, &str) = (
    ErrorKind::Unavailable,
    "could not verify the server's certificate; check the parameter ca and the host name",
);

/// The number to which a token is to be raised.
///
/// # Errors
/// [`ErrorKind::InvalidOption`] if the number leaves too little room for later tokens.
pub(crate) fn floor(token: FencingToken) -> Result<u64> {
    if token.get() > HIGHEST_TOKEN {
        let reason = format!(
            "could not raise the token to {token}: the limit is {HIGHEST_TOKEN}, because later \
             tokens must be larger"
        );
        return Err(ours(ErrorKind::InvalidOption, reason));
    }
    Ok(token.get())
}

/// The error for a request that came after its not-after time, twice.
pub(crate) fn late(op_timeout: Duration) -> Error {
    let reason = format!(
        "the request took longer than op_timeout ({op_timeout:?}) to reach the server, so the \
         server ignored it; use a longer op_timeout"
    );
    ours(ErrorKind::Unavailable, reason)
}

/// An error of this backend.
pub(crate) fn ours(kind: ErrorKind, reason: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, reason).with_backend(BACKEND)
}

pub(crate) fn nonsense(what: &str) -> Error {
    ours(
        ErrorKind::Unexpected,
        format!("{what} failed: the server gave an answer that lockkit's statements never give"),
    )
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16) -> my::Error {
        let message = "no\nway".to_owned();
        let state = "HY000".to_owned();
        my::Error::Server(my::ServerError { code, message, state })
    }

    #[test]
    fn c13_a_refused_login_has_a_remedy_even_if_the_user_name_is_the_password() {
        let refusal = || {
            let message =
                "Access denied for user 'lockkit'@'localhost' (using password: YES)".to_owned();
            my::Error::Server(my::ServerError { code: 1045, message, state: "28000".to_owned() })
        };
        let told =
            |secret| opening(refusal(), "connecting to 127.0.0.1:3306", Some(secret)).to_string();
        assert!(told("hunter2").contains("Access denied"), "{}", told("hunter2"));
        let hidden = told("lockkit");
        assert!(!hidden.contains("lockkit"), "{hidden}");
        assert!(
            hidden.contains("error 1045") && hidden.contains("check the ones in the URL"),
            "{hidden}"
        );
        assert!(!told("URL").contains("URL"), "{}", told("URL"));
    }

    #[test]
    fn c5_a_write_is_unknown_when_the_connection_goes_and_known_when_the_server_refuses_it() {
        let gone = || my::Error::Driver(my::DriverError::ConnectionClosed);
        assert!(from_mysql(gone(), Phase::Write, "acquiring").is_outcome_unknown());
        assert!(!from_mysql(gone(), Phase::Read, "peeking").is_outcome_unknown());
        for code in [1927, 1180, 2006, 2013, 3100] {
            assert!(
                from_mysql(server(code), Phase::Write, "acquiring").is_outcome_unknown(),
                "{code}"
            );
        }
        assert!(!from_mysql(server(1213), Phase::Write, "acquiring").is_outcome_unknown());
        assert!(from_mysql(server(1213), Phase::Write, "acquiring").is_temporary());
    }

    #[test]
    fn c13_errors_have_kinds_and_one_line() {
        use ErrorKind as K;
        for (code, kind) in [
            (1044, K::PermissionDenied),
            (1045, K::Authentication),
            (1049, K::InvalidUrl),
            (1040, K::Unavailable),
            (2013, K::Unavailable),
            (2061, K::Authentication),
            (1142, K::PermissionDenied),
            (1146, K::WrongType),
            (1054, K::WrongType),
            (1290, K::ReadOnly),
            (1836, K::ReadOnly),
            (3100, K::ReadOnly),
            (1114, K::StoreFull),
            (1665, K::Unsupported),
            (9999, K::Unexpected),
        ] {
            let error = from_mysql(server(code), Phase::Write, "acquiring");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(
                error.to_string().contains("acquiring") && !error.to_string().contains('\n'),
                "{error}"
            );
        }
    }
}
