//! Finds out whether a server is still the primary.

use lockkit_core::spi::Role;
use redis::{RedisError, RedisResult, ServerErrorKind, Value};

/// Reads a server's answer to `ROLE`. The role is unknown if the user may not ask.
pub(crate) fn of(answer: RedisResult<Value>) -> Role {
    let Ok(Value::Array(role)) = answer else { return Role::Unknown };
    match role.first() {
        Some(Value::BulkString(name)) if name == b"master" => Role::Primary,
        Some(Value::BulkString(name)) if name == b"slave" => Role::Replica,
        _ => Role::Unknown,
    }
}

/// Returns an error if the server says that it is a replica now. Then another server knows the
/// truth.
pub(crate) fn check(answer: RedisResult<Value>) -> RedisResult<()> {
    if of(answer) == Role::Replica { Err(replica()) } else { Ok(()) }
}

/// The same error as when a server itself refuses a write.
pub(crate) fn replica() -> RedisError {
    (redis::ErrorKind::Server(ServerErrorKind::ReadOnly), "the server is a replica now").into()
}
