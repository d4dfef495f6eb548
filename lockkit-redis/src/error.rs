//! Translates the errors of the client library and the server.

use std::io;

use lockkit_core::{Error, ErrorKind};
use redis::{ConnectionAddr, ErrorKind as ClientKind, RedisError, ServerErrorKind};

use crate::config::{BACKEND, Config};

/// The phase in which an error came up. Only a write can have an outcome that its caller must know
/// about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Read,
    Write,
}

/// Why there is no connection. All callers that waited for it share this error.
#[derive(Clone, Debug)]
pub(crate) enum OpenError {
    Client(RedisError),
    Closed,
    /// The server may evict keys. The text is its maxmemory-policy.
    Evicts(String),
    /// No node of the cluster has this slot.
    NoNode(u16),
    NoRuntime,
    /// The sentinels don't know this service.
    NoService(String),
    /// The node knows no slots.
    NoSlots,
    /// An error of the server that the sentinels name.
    Primary(ConnectionAddr, Box<Self>),
    Replica,
    Silent,
    Strange,
    /// Other lockers of the prefix use other keys for mutexes. The text is the value that they have
    /// written.
    Strategy(String),
}

impl From<RedisError> for OpenError {
    fn from(error: RedisError) -> Self {
        Self::Client(error)
    }
}

/// An error of our own.
pub(crate) fn ours(kind: ErrorKind, reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(kind, reason).with_backend(BACKEND)
}

/// The error for a key that a newer lockkit has written.
pub(crate) fn newer(key: &str) -> Error {
    let reason = format!(
        "a newer lockkit wrote the key {key:?} in a format that this version does not know; \
         lockkit did not change the key; upgrade this program, because locks under another prefix \
         would not exclude these"
    );
    ours(ErrorKind::NewerFormat, reason)
}

/// The error for a connection that could not be opened. No request was sent, so the outcome is
/// known.
pub(crate) fn opening(error: &OpenError, config: &Config) -> Error {
    opening_at(&config.site().to_string(), error, config)
}

fn opening_at(at: &str, error: &OpenError, config: &Config) -> Error {
    let (kind, context) = match error {
        OpenError::Client(error) => return translated(error.clone(), Phase::Open, at, config),
        OpenError::Primary(address, error) => {
            return opening_at(&format!("{address} (the primary of {at})"), error, config);
        }
        OpenError::Closed => (ErrorKind::Closed, "the locker was shut down".to_owned()),
        OpenError::NoRuntime => (
            ErrorKind::NoRuntime,
            "could not open a connection outside of a tokio runtime; call lockkit inside one"
                .to_owned(),
        ),
        OpenError::Evicts(policy) => (ErrorKind::Unsupported, may_evict(policy)),
        OpenError::NoNode(slot) => (
            ErrorKind::Unavailable,
            format!("no node of {at} has slot {slot}; is the cluster complete?"),
        ),
        OpenError::NoService(service) => (
            ErrorKind::Unavailable,
            format!(
                "the sentinels do not know the service {service:?}; check the path of the store URL"
            ),
        ),
        OpenError::NoSlots => (
            ErrorKind::Unavailable,
            format!("the nodes of {at} have no slots yet; is the cluster complete?"),
        ),
        OpenError::Replica => (
            ErrorKind::ReadOnly,
            format!("the server at {at} is a replica and takes no writes; connect to the primary"),
        ),
        OpenError::Silent => (
            ErrorKind::Unavailable,
            format!(
                "the server at {at} did not answer within {:?} (connect_timeout); is it running and reachable?",
                config.connect_timeout
            ),
        ),
        OpenError::Strategy(theirs) => return other_keys(theirs, config),
        OpenError::Strange => (
            ErrorKind::Unexpected,
            format!(
                "the server at {at} does not answer as a Redis server does; check host and port"
            ),
        ),
    };
    Error::new(kind, context).with_backend(BACKEND)
}

fn other_keys(theirs: &str, config: &Config) -> Error {
    let keyspace = config.keyspace();
    let (key, _) = keyspace.strategy_key();
    let own = keyspace.strategy();
    if is_newer(theirs.as_bytes()) {
        return newer(&key);
    }
    let reason = format!(
        "other programs use the prefix {:?} with keys={theirs}, and mutexes with keys={own} would \
         not exclude theirs; use another prefix, or, if no program uses keys={theirs} any more, \
         delete the key {key:?}",
        keyspace.prefix
    );
    ours(ErrorKind::InvalidOption, reason)
}

/// True for a value that a newer lockkit has written.
pub(crate) fn is_newer(value: &[u8]) -> bool {
    value.strip_prefix(b"lockkit/").and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit)
}

pub(crate) fn may_evict(policy: &str) -> String {
    format!(
        "the server's maxmemory-policy is {policy}, so the server may evict held locks when memory \
         is short; set maxmemory-policy to noeviction"
    )
}

/// Translates an error of the client.
pub(crate) fn from_redis(error: RedisError, phase: Phase, config: &Config) -> Error {
    translated(error, phase, &config.site().to_string(), config)
}

fn translated(error: RedisError, phase: Phase, at: &str, config: &Config) -> Error {
    let (kind, meaning) = match meaning(&error) {
        (ErrorKind::Unsupported, _) if config.is_cluster() && error.redirect_node().is_some() => (
            ErrorKind::Unavailable,
            "the nodes of the cluster do not agree yet on the node of the name's slot; try again \
             soon",
        ),
        meaning => meaning,
    };
    let told = said(&error);
    let said = config.secrets().fold(told.clone(), |said, secret| said.replace(secret, "***"));
    let context = match phase {
        Phase::Open => format!("connecting to {at}: {meaning} ({said})"),
        Phase::Read | Phase::Write => format!("{meaning} ({said})"),
    };
    let ours = Error::new(kind, context).with_backend(BACKEND);
    let unknown = phase == Phase::Write && (error.code().is_none() || stopped_halfway(&error));
    let ours = if unknown { ours.with_outcome_unknown() } else { ours };
    let quotes = error.detail().is_some_and(|detail| detail.contains(QUOTE));
    if said == told && !quotes { ours.with_source(error) } else { ours }
}

/// A server quotes the arguments of an unknown command, which may be AUTH. The server also cuts the
/// arguments off, so a search for a long password would not find it.
const QUOTE: &str = ", with args beginning with";

/// True if a script was stopped after it may have written. A node that gives a slot away does not
/// let a script create a key there.
fn stopped_halfway(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains(NON_LOCAL_KEY))
}

const NON_LOCAL_KEY: &str = "attempted to access a non local key";

/// True if this connection will never take a write again.
pub(crate) fn is_wrong_role(error: &RedisError) -> bool {
    matches!(code(error), Some("READONLY" | "MASTERDOWN"))
}

/// True if the server might take the older protocol. It is old, or a proxy, or its HELLO was
/// renamed or forbidden.
pub(crate) fn refuses_resp3(error: &RedisError) -> bool {
    match error.kind() {
        ClientKind::RESP3NotSupported | ClientKind::Server(ServerErrorKind::NoPerm) => true,
        _ => {
            code(error) == Some("NOPROTO")
                || error
                    .detail()
                    .is_some_and(|text| text.contains("unknown command") && text.contains("HELLO"))
        }
    }
}

/// The server's words, without the position in our script and without our arguments.
fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => {
            let detail = detail.split(" script: ").next().unwrap_or(detail);
            let detail = detail.split(QUOTE).next().unwrap_or(detail);
            format!("{code} {detail}")
        }
        (Some(code), None) => code.to_owned(),
        // The client's parser explains an error in several lines.
        (None, _) => error.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

/// The error's code. Redis before 7 wraps an error inside a script:
/// `ERR Error running script (…): …: -READONLY …`.
fn code(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    let inner = || {
        let (_, inner) =
            error.detail()?.strip_prefix("Error running script")?.rsplit_once("user_script:")?;
        let word = |word: &&str| word.len() > 2 && word.bytes().all(|b| b.is_ascii_uppercase());
        inner.split([' ', ':', '-']).find(word)
    };
    if code == "ERR" { Some(inner().unwrap_or(code)) } else { Some(code) }
}

fn meaning(error: &RedisError) -> (ErrorKind, &'static str) {
    match error.kind() {
        ClientKind::Server(_) | ClientKind::Extension => server_meaning(error),
        ClientKind::AuthenticationFailed => (ErrorKind::Authentication, WRONG_LOGIN),
        ClientKind::Io => io_meaning(error),
        ClientKind::InvalidClientConfig => {
            (ErrorKind::Unavailable, "the client library refused the address; check the store URL")
        }
        ClientKind::Parse => (
            ErrorKind::Unexpected,
            "the server does not speak Redis's protocol; is this the port of a Redis server?",
        ),
        ClientKind::UnexpectedReturnType | ClientKind::Client => {
            (ErrorKind::Unexpected, "the server gave an answer that no Redis server gives here")
        }
        ClientKind::RESP3NotSupported => {
            (ErrorKind::Unsupported, "the server does not speak RESP3")
        }
        ClientKind::MasterNameNotFoundBySentinel
        | ClientKind::NoValidReplicasFoundBySentinel
        | ClientKind::EmptySentinelList
        | ClientKind::ClusterConnectionNotFound => {
            (ErrorKind::Unavailable, "the client library found no server; check the store URL")
        }
        // The client library may add kinds.
        _ => (
            ErrorKind::Unexpected,
            "the client library reported an error that lockkit does not know",
        ),
    }
}

const WRONG_LOGIN: &str =
    "the server refused the user name or password; check them in the store URL";

fn server_meaning(error: &RedisError) -> (ErrorKind, &'static str) {
    use ErrorKind as K;
    match code(error).unwrap_or_default() {
        "BUSY" => {
            (K::Unavailable, "the server is busy with a client's long script; see SCRIPT KILL")
        }
        "CLUSTERDOWN" | "TRYAGAIN" => (
            K::Unavailable,
            "the cluster is not ready; do its nodes run, and does each slot have a node?",
        ),
        "LOADING" => (K::StoreLoading, "the server is still loading its data; try again soon"),
        "MASTERDOWN" => (
            K::Unavailable,
            "the server is a replica and has lost its primary; connect to the primary",
        ),
        "MISCONF" => (
            K::StoreFull,
            "the server takes no writes, because it can't save its data to disk; see its log",
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => (
            K::Unsupported,
            "the server is part of a cluster; write the store URL as redis+cluster://",
        ),
        "NOAUTH" => (K::Authentication, "the server requires a password; add it to the store URL"),
        "NOPERM" => (K::PermissionDenied, NO_RIGHTS),
        "NOREPLICAS" => (
            K::Unavailable,
            "the server takes no writes, because it has fewer replicas than min-replicas-to-write; \
             check the replicas",
        ),
        "OOM" => (K::StoreFull, "the server is out of memory; raise maxmemory or remove keys"),
        "READONLY" => {
            (K::ReadOnly, "the server is a replica and takes no writes; connect to the primary")
        }
        "UNBLOCKED" => {
            (K::Unavailable, "the server was demoted while the request waited for replicas")
        }
        "WRONGPASS" => (K::Authentication, WRONG_LOGIN),
        "WRONGTYPE" => (
            K::WrongType,
            "a key of another type has the name of the lock's key or of its token's key; remove \
             that key, or choose another prefix",
        ),
        "ERR" => plain_meaning(error.detail().unwrap_or_default()),
        _ => (K::Unexpected, "the server reported an error that lockkit does not know"),
    }
}

const NO_RIGHTS: &str = "the user lacks rights; lockkit needs ~<prefix>:* &<prefix>:* +eval +evalsha +time +role \
                         +config|get +command|info +scan +exists +get +mget +set +del +pttl +pexpire +zadd +zcount +zrange \
                         +zrangebyscore +zrem +zscore +hget +hmget +hgetall +hexists +hset +hmset +hdel +publish \
                         +subscribe +pubsub|numsub, on a cluster also +cluster|slots +asking +spublish +ssubscribe \
                         +sunsubscribe +pubsub|shardnumsub, and with wait_replicas +wait";

/// True if the user may run scripts, and lacks a right that this script needs.
pub(crate) fn lacks_right_of_script(error: &RedisError) -> bool {
    error.detail().is_some_and(is_right_of_scripts)
}

fn is_right_of_scripts(detail: &str) -> bool {
    detail.contains("user executing the script can't") || detail.contains("ACL failure in script")
}

/// Depending on the server's version, some errors have no code of their own.
fn plain_meaning(detail: &str) -> (ErrorKind, &'static str) {
    let has = |text| detail.contains(text);
    if is_right_of_scripts(detail) {
        (ErrorKind::PermissionDenied, NO_RIGHTS)
    } else if has(NON_LOCAL_KEY) {
        (
            ErrorKind::Unavailable,
            "the name's slot is moving to another node of the cluster; try again soon",
        )
    } else if has("max number of clients") {
        (ErrorKind::Unavailable, "the server has too many clients; raise maxclients")
    } else if has("invalid password")
        || has("no password is set")
        || has("without any password configured")
    {
        (ErrorKind::Authentication, WRONG_LOGIN)
    } else if has("DB index is out of range") {
        (ErrorKind::InvalidUrl, "the server has no such database; check the path of the store URL")
    } else {
        (ErrorKind::Unexpected, "the server reported an error that lockkit does not know")
    }
}

fn io_meaning(error: &RedisError) -> (ErrorKind, &'static str) {
    let meaning = if error.is_connection_refusal() {
        "no server listens there; is Redis running?"
    } else if error.is_timeout() {
        "the connection timed out; is the server reachable?"
    } else {
        match io_kind(error) {
            Some(io::ErrorKind::PermissionDenied) => {
                "this user may not use the socket; give it the right to write to the socket"
            }
            // The standard library has no kind for this error.
            _ if error.to_string().contains("failed to lookup address") => {
                "could not resolve the host name; check it in the store URL"
            }
            _ => "the connection broke",
        }
    };
    (ErrorKind::Unavailable, meaning)
}

fn io_kind(error: &RedisError) -> Option<io::ErrorKind> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<io::Error>().map(io::Error::kind)
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn from_server(line: &str) -> RedisError {
        parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap().extract_error().unwrap_err()
    }

    fn translated(line: &str) -> Error {
        let config = Config::new("h", 1).with_credentials(None, "hunter2");
        from_redis(from_server(line), Phase::Write, &config)
    }

    #[test]
    fn c13_each_refusal_of_the_server_has_its_kind_and_a_known_outcome() {
        use ErrorKind as K;
        for (line, kind) in [
            ("LOADING Redis is loading the dataset in memory", K::StoreLoading),
            (
                "READONLY You can't write against a read only replica. script: 1, on @user_script:5.",
                K::ReadOnly,
            ),
            ("MASTERDOWN Link with MASTER is down", K::Unavailable),
            (
                "OOM command not allowed when used memory > 'maxmemory'. script: 1, on @user_script:5.",
                K::StoreFull,
            ),
            ("MISCONF Redis is configured to save RDB snapshots", K::StoreFull),
            ("NOAUTH Authentication required.", K::Authentication),
            ("WRONGPASS invalid username-password pair or user is disabled.", K::Authentication),
            (
                "NOPERM this user has no permissions to run the 'evalsha' command",
                K::PermissionDenied,
            ),
            (
                "ERR The user executing the script can't run this command or subcommand",
                K::PermissionDenied,
            ),
            (
                "ERR ACL failure in script: No permissions to access a key script: 1",
                K::PermissionDenied,
            ),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", K::WrongType),
            (
                "ERR Error running script (call to f_6b): @user_script:9: WRONGTYPE Operation against",
                K::WrongType,
            ),
            (
                "ERR Error running script (call to f_6b): @user_script: 9: -READONLY You can't",
                K::ReadOnly,
            ),
            (
                "ERR Error running script (call to f_6b): @user_script:9: OOM command not",
                K::StoreFull,
            ),
            ("BUSY Redis is busy running a script.", K::Unavailable),
            ("MOVED 1234 10.0.0.1:6379", K::Unsupported),
            (
                "UNBLOCKED force unblock from blocking operation, instance state changed",
                K::Unavailable,
            ),
            ("ERR max number of clients reached", K::Unavailable),
            ("ERR something else", K::Unexpected),
            ("NEWCODE of a later version", K::Unexpected),
        ] {
            let error = translated(line);
            assert_eq!(error.kind(), kind, "{line}: {error}");
            assert!(!error.is_outcome_unknown(), "{line}: {error}");
            assert!(!error.to_string().contains("user_script:5"), "{error}");
        }
    }

    #[test]
    fn c5_a_write_that_was_not_answered_is_unknown_and_a_read_or_a_connect_is_not() {
        let config = Config::new("h", 1);
        let unknown_host =
            io::Error::other("failed to lookup address information: Name or service not known");
        let unknown_host = from_redis(unknown_host.into(), Phase::Open, &config);
        assert!(unknown_host.to_string().contains("could not resolve"), "{unknown_host}");
        let broken = || RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(from_redis(broken(), Phase::Write, &config).is_outcome_unknown());
        assert!(!from_redis(broken(), Phase::Read, &config).is_outcome_unknown());
        assert!(!from_redis(broken(), Phase::Open, &config).is_outcome_unknown());
        assert_eq!(from_redis(broken(), Phase::Write, &config).kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn c13_the_primary_that_the_sentinels_name_is_named() {
        let config = Config::sentinel([("s1", 26379)], "service");
        let refused = RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        for error in
            [OpenError::Client(refused), OpenError::Replica, OpenError::Silent, OpenError::Strange]
        {
            let primary = ConnectionAddr::Tcp("10.0.0.7".to_owned(), 6379);
            let text = opening(&OpenError::Primary(primary, Box::new(error)), &config).to_string();
            assert!(
                text.contains("10.0.0.7:6379 (the primary of service of the sentinels s1:26379)"),
                "{text}"
            );
        }
    }

    #[test]
    fn c13_an_empty_password_hides_nothing() {
        let config = Config::new("h", 1).with_credentials(None, "");
        let error = from_redis(from_server("WRONGPASS invalid password"), Phase::Open, &config);
        assert!(error.to_string().contains("WRONGPASS invalid password"), "{error}");
    }

    #[test]
    fn c13_a_server_that_quotes_the_password_is_not_quoted() {
        // The password stays hidden even where the server has cut it off.
        for quoted in ["hunter2", "hunter"] {
            let line = format!("ERR unknown command 'AUTH', with args beginning with: '{quoted}' ");
            let error = translated(&line);
            assert!(!format!("{error} {error:?}").contains("hunter"), "{error:?}");
            assert!(error.to_string().contains("unknown command 'AUTH'"), "{error}");
        }
    }
}
