//! The Lua scripts, and what they answer.

use std::sync::LazyLock;

use redis::{Cmd, RedisResult, Script, Value};

/// One attempt to get a lock.
pub(crate) static ACQUIRE: LazyLock<Source> =
    LazyLock::new(|| Source::new(include_str!("scripts/acquire.lua")));
/// Renews a lease.
pub(crate) static EXTEND: LazyLock<Source> =
    LazyLock::new(|| Source::new(include_str!("scripts/extend.lua")));
/// Gives a lock back.
pub(crate) static RELEASE: LazyLock<Source> =
    LazyLock::new(|| Source::new(include_str!("scripts/release.lua")));
/// Looks at a lock.
pub(crate) static INSPECT: LazyLock<Source> =
    LazyLock::new(|| Source::new(include_str!("scripts/inspect.lua")));
/// Frees somebody's lock.
pub(crate) static FORCE_RELEASE: LazyLock<Source> =
    LazyLock::new(|| Source::new(include_str!("scripts/force_release.lua")));

/// A script's text and its hash.
#[derive(Debug)]
pub(crate) struct Source {
    body: &'static str,
    hash: String,
}

impl Source {
    fn new(body: &'static str) -> Self {
        Self { body, hash: Script::new(body).get_hash().to_owned() }
    }
}

/// One call of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) script: &'static LazyLock<Source>,
    pub(crate) keys: &'a [&'a str],
    pub(crate) args: &'a [Arg<'a>],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a> {
    Number(i64),
    Text(&'a str),
}

impl Call<'_> {
    /// The call by its hash, which a server knows that has seen the script before.
    pub(crate) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// The call with the script's text, which the server remembers.
    pub(crate) fn by_text(&self) -> Cmd {
        self.command("EVAL", self.script.body)
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let keys: usize = self.keys.iter().map(|key| key.len()).sum();
        let mut command =
            Cmd::with_capacity(3 + self.keys.len() + self.args.len(), script.len() + keys + 160);
        command.arg(verb).arg(script).arg(self.keys.len());
        for key in self.keys {
            command.arg(key);
        }
        for arg in self.args {
            match arg {
                Arg::Number(number) => command.arg(number),
                Arg::Text(text) => command.arg(text),
            };
        }
        command
    }
}

/// What an attempt found. `now` is the server's time in µs; leases are in ms.
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
        fence: i64,
    },
    Late {
        now: i64,
    },
    Exhausted {
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
            | Self::Exhausted { now } => now,
        }
    }

    pub(crate) fn from_reply(reply: &Value) -> RedisResult<Self> {
        use Value::Int;
        Ok(match reply {
            Value::Array(fields) => match **fields {
                [Int(0), Int(now), Int(ttl)] => Self::Busy { now, ttl },
                [Int(1), Int(now), Int(lease), Int(fence)] => Self::Granted { now, lease, fence },
                [Int(2), Int(now)] => Self::Late { now },
                [Int(3), Int(now)] => Self::Exhausted { now },
                _ => return Err(strange(reply)),
            },
            _ => return Err(strange(reply)),
        })
    }
}

/// What a look at a lock found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) now: i64,
    /// In ms; negative if the key never expires.
    pub(crate) ttl: i64,
    pub(crate) owner: Vec<u8>,
    pub(crate) fence: Option<Vec<u8>>,
}

impl Seen {
    /// `None` if the lock is free.
    pub(crate) fn from_reply(reply: Value) -> RedisResult<Option<Self>> {
        use Value::{BulkString, Int, Nil};
        let Value::Array(fields) = reply else { return Err(strange(&reply)) };
        match <[Value; 4]>::try_from(fields) {
            Ok([Int(_), Int(_), Nil, _]) => Ok(None),
            Ok([Int(now), Int(ttl), BulkString(owner), Nil]) => {
                Ok(Some(Self { now, ttl, owner, fence: None }))
            }
            Ok([Int(now), Int(ttl), BulkString(owner), BulkString(fence)]) => {
                Ok(Some(Self { now, ttl, owner, fence: Some(fence) }))
            }
            Ok(other) => Err(strange(&Value::Array(other.into()))),
            Err(other) => Err(strange(&Value::Array(other))),
        }
    }
}

/// The answer of a script that returns one number.
pub(crate) fn number(reply: &Value) -> RedisResult<i64> {
    match reply {
        Value::Int(number) => Ok(*number),
        _ => Err(strange(reply)),
    }
}

fn strange(reply: &Value) -> redis::RedisError {
    (
        redis::ErrorKind::UnexpectedReturnType,
        "an answer that lockkit's scripts never give",
        format!("{reply:?}"),
    )
        .into()
}
