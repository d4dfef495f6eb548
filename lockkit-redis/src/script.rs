//! Calls the Lua scripts.

use std::time::Duration;

use redis::{Cmd, RedisResult, Script, Value};

/// A script's text and its hash.
#[derive(Debug)]
pub(crate) struct Source {
    body: &'static str,
    hash: String,
}

impl Source {
    pub(crate) fn new(body: &'static str) -> Self {
        Self { body, hash: Script::new(body).get_hash().to_owned() }
    }

    pub(crate) fn text(&self) -> &'static str {
        self.body
    }
}

/// One call of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) script: &'static Source,
    pub(crate) keys: &'a [&'a str],
    pub(crate) args: &'a [Arg<'a>],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a> {
    Number(i64),
    Text(&'a str),
}

impl Call<'_> {
    /// The call by the script's hash. A server that has seen the script before knows the hash.
    pub(crate) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// The call with the script's text. The server remembers the script.
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

/// The answer of a script that returns one number.
pub(crate) fn number(reply: &Value) -> RedisResult<i64> {
    match reply {
        Value::Int(number) => Ok(*number),
        _ => Err(strange(reply)),
    }
}

/// A time to live as PTTL gives it. It is negative for a key that never lapses or does not exist.
pub(crate) fn ttl(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

pub(crate) fn strange(reply: &Value) -> redis::RedisError {
    (
        redis::ErrorKind::UnexpectedReturnType,
        "an answer that lockkit's scripts never give",
        format!("{reply:?}"),
    )
        .into()
}
