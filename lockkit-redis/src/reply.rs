//! Reads the answers of the scripts.

use redis::{RedisResult, Value};

use crate::script;

/// The answer of `acquire.lua`. `now` is the server's time in µs; leases are in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// `ttl` is negative if the key never expires.
    Busy {
        now: i64,
        ttl: i64,
    },
    Granted {
        now: i64,
        lease: i64,
        token: i64,
    },
    Late {
        now: i64,
    },
    Exhausted {
        now: i64,
    },
    /// Other claims use the name with another number of permits.
    Mismatch {
        now: i64,
        limit: i64,
    },
    /// A newer lockkit keeps the name.
    Newer {
        now: i64,
    },
}

impl Acquired {
    /// The server's time.
    pub(crate) fn now(&self) -> i64 {
        match *self {
            Self::Busy { now, .. }
            | Self::Granted { now, .. }
            | Self::Late { now }
            | Self::Exhausted { now }
            | Self::Mismatch { now, .. }
            | Self::Newer { now } => now,
        }
    }

    /// `asked` is the lease that the claim asked for, in ms.
    pub(crate) fn from_reply(reply: &Value, asked: i64) -> RedisResult<Self> {
        use Value::Int;
        Ok(match reply {
            // The token is the server's time.
            Int(now @ 0..) => Self::Granted { now: *now, lease: asked, token: *now },
            Value::Array(fields) => match **fields {
                [Int(0), Int(now), Int(ttl)] => Self::Busy { now, ttl },
                [Int(1), Int(now), Int(lease @ 0..), Int(token @ 0..)] => {
                    Self::Granted { now, lease, token }
                }
                [Int(2), Int(now)] => Self::Late { now },
                [Int(3), Int(now)] => Self::Exhausted { now },
                [Int(4), Int(now), Int(limit)] => Self::Mismatch { now, limit },
                [Int(5), Int(now)] => Self::Newer { now },
                _ => return Err(script::strange(reply)),
            },
            _ => return Err(script::strange(reply)),
        })
    }
}

/// The answer of `transfer.lua`, in the same units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferReply {
    NotHeld {
        now: i64,
    },
    Granted {
        now: i64,
        lease: i64,
        token: i64,
    },
    Late {
        now: i64,
    },
    Exhausted {
        now: i64,
    },
    /// Another claim waits, and comes first.
    Yielded {
        now: i64,
    },
    Newer {
        now: i64,
    },
}

impl TransferReply {
    /// The server's time.
    pub(crate) fn now(&self) -> i64 {
        match *self {
            Self::NotHeld { now }
            | Self::Granted { now, .. }
            | Self::Late { now }
            | Self::Exhausted { now }
            | Self::Yielded { now }
            | Self::Newer { now } => now,
        }
    }

    /// `asked` is the lease that the claim asked for, in ms.
    pub(crate) fn from_reply(reply: &Value, asked: i64) -> RedisResult<Self> {
        use Value::Int;
        Ok(match reply {
            // The token is the server's time.
            Int(now @ 0..) => Self::Granted { now: *now, lease: asked, token: *now },
            Value::Array(fields) => match **fields {
                [Int(0), Int(now)] => Self::NotHeld { now },
                [Int(1), Int(now), Int(lease @ 0..), Int(token @ 0..)] => {
                    Self::Granted { now, lease, token }
                }
                [Int(2), Int(now)] => Self::Late { now },
                [Int(3), Int(now)] => Self::Exhausted { now },
                [Int(4), Int(now)] => Self::Yielded { now },
                [Int(5), Int(now)] => Self::Newer { now },
                _ => return Err(script::strange(reply)),
            },
            _ => return Err(script::strange(reply)),
        })
    }
}

/// The answer of `write_note.lua`, in the same units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    NotHeld { now: i64 },
    Yes { now: i64 },
    Late { now: i64 },
    Outdated { now: i64 },
    Newer { now: i64 },
}

impl Written {
    /// The server's time.
    pub(crate) fn now(&self) -> i64 {
        match *self {
            Self::NotHeld { now }
            | Self::Yes { now }
            | Self::Late { now }
            | Self::Outdated { now }
            | Self::Newer { now } => now,
        }
    }

    pub(crate) fn from_reply(reply: &Value) -> RedisResult<Self> {
        use Value::Int;
        Ok(match reply {
            Value::Array(fields) => match **fields {
                [Int(0), Int(now)] => Self::NotHeld { now },
                [Int(1), Int(now)] => Self::Yes { now },
                [Int(2), Int(now)] => Self::Late { now },
                [Int(3), Int(now)] => Self::Outdated { now },
                [Int(4), Int(now)] => Self::Newer { now },
                _ => return Err(script::strange(reply)),
            },
            _ => return Err(script::strange(reply)),
        })
    }
}

#[cfg(test)]
mod properties;
