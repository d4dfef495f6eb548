//! Whether a server is still the primary.

use lockkit_core::spi::Role;
use redis::{RedisError, RedisResult, ServerErrorKind, Value};

/// What a server answers to `ROLE`. A user may not be allowed to ask.
pub(crate) fn of(answer: RedisResult<Value>) -> Role {
    let Ok(Value::Array(role)) = answer else { return Role::Unknown };
    match role.first() {
        Some(Value::BulkString(name)) if name == b"master" => Role::Primary,
        Some(Value::BulkString(name)) if name == b"slave" => Role::Replica,
        _ => Role::Unknown,
    }
}

/// An error if a server says that it is a replica by now: another one knows the truth.
pub(crate) fn check(answer: RedisResult<Value>) -> RedisResult<()> {
    if of(answer) == Role::Replica { Err(replica()) } else { Ok(()) }
}

/// As the server itself refuses a write.
pub(crate) fn replica() -> RedisError {
    (
        redis::ErrorKind::Server(ServerErrorKind::ReadOnly),
        "the server that was asked is a replica by now",
    )
        .into()
}
