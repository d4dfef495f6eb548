//! One Redis or Valkey.

use libtest_mimic::Failed;
use lockkit_fixture::{RedisOptions, RedisReply, RedisServer, WallClock, valkey_server};
use lockkit_torture::site::{BoxError, ServerFault, Site};

use super::{
    clock, lasting, momentary,
    server::{Alone, Server, kill, stop},
    weak,
};

const CLIENT_KILL: &str = "client-kill";
const FULL: &str = "full";
const SCRIPT_FLUSH: &str = "script-flush";

const STEP: &str = "a step of the server's clock over the lease: the lock is free at once, its holder believes until its next renewal";

/// A server that has nobody else's keys.
#[derive(Debug)]
pub(super) struct Redis {
    server: RedisServer,
}

impl Redis {
    /// Every write is on its disk before the answer.
    pub(super) fn durable(options: RedisOptions) -> Result<Self, BoxError> {
        Self::start(options.with_args(["--appendonly", "yes", "--appendfsync", "always"]))
    }

    fn start(options: RedisOptions) -> Result<Self, BoxError> {
        Ok(Self { server: RedisServer::start_as(options)? })
    }
}

pub(super) fn durable() -> Result<Box<dyn Site>, Failed> {
    Ok(Box::new(Alone::new("redis", Redis::durable(RedisOptions::default())?, durable_faults())))
}

pub(super) fn valkey() -> Result<Box<dyn Site>, Failed> {
    let program = valkey_server().ok_or("there is no valkey-server")?;
    let server = Redis::durable(RedisOptions::default().with_program(program))?;
    Ok(Box::new(Alone::new("valkey", server, durable_faults())))
}

/// A restart is no loss here.
fn durable_faults() -> Vec<ServerFault> {
    let full = lasting(FULL, 100..=1_500);
    vec![stop(), kill(), full, momentary(SCRIPT_FLUSH), momentary(CLIENT_KILL)]
}

pub(super) fn volatile() -> Result<Box<dyn Site>, Failed> {
    let server = Redis::start(RedisOptions::default())?;
    let faults = vec![weak(kill(), "one server without persistence: any restart loses all locks"), stop()];
    Ok(Box::new(Alone::new("redis-volatile", server, faults)))
}

pub(super) fn clock() -> Result<Box<dyn Site>, Failed> {
    let server = Redis::durable(RedisOptions::default().with_clock())?;
    Ok(Box::new(Alone::new("redis-clock", server, clock::faults(STEP))))
}

impl Server for Redis {
    fn url(&self, namespace: &str) -> String {
        format!("{}?prefix={namespace}", self.server.url())
    }

    fn leaks(&self, namespace: &str) -> Result<Vec<String>, BoxError> {
        leaks(&self.server, namespace)
    }

    fn clock(&self) -> Option<&WallClock> {
        self.server.clock()
    }

    fn pause(&self) -> Result<(), BoxError> {
        Ok(self.server.pause()?)
    }

    fn resume(&self) -> Result<(), BoxError> {
        Ok(self.server.resume()?)
    }

    fn kill(&mut self) -> Result<(), BoxError> {
        Ok(self.server.kill()?)
    }

    fn restart(&mut self) -> Result<(), BoxError> {
        Ok(self.server.restart()?)
    }

    fn strike(&mut self, kind: &str) -> Result<String, BoxError> {
        match kind {
            CLIENT_KILL => {
                for of in ["normal", "pubsub"] {
                    self.server.ask(["CLIENT", "KILL", "TYPE", of, "SKIPME", "yes"])?;
                }
                Ok("every connection".to_owned())
            }
            FULL => {
                self.server.ask(["CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1"])?;
                Ok("the memory".to_owned())
            }
            SCRIPT_FLUSH => {
                self.server.ask(["SCRIPT", "FLUSH"])?;
                Ok("every script".to_owned())
            }
            kind => Err(format!("no fault of a Redis: {kind}").into()),
        }
    }

    fn heal(&mut self, kind: &str) -> Result<(), BoxError> {
        match kind {
            FULL => Ok(self.server.ask(["CONFIG", "SET", "maxmemory", "0"]).map(drop)?),
            _ => Ok(()),
        }
    }
}

/// What a server has below a prefix beside the last tokens of idle names, which lapse.
pub(super) fn leaks(server: &RedisServer, namespace: &str) -> Result<Vec<String>, BoxError> {
    let mut leaks = Vec::new();
    let keys = server.ask(["KEYS", &format!("{namespace}:*")])?;
    for key in keys.elements().iter().map(RedisReply::text) {
        let lives: i64 = server.ask(["PTTL", &key])?.text().parse()?;
        let lapsed = lives == -2;
        if !lapsed && (!key.ends_with("}:fence") || lives < 0) {
            leaks.push(format!("the key {key:?}, which lives for {lives} ms"));
        }
    }
    let wake = format!("{namespace}:wake:");
    let channels = server.ask(["PUBSUB", "CHANNELS", &format!("{namespace}:*")])?;
    let channels = channels.elements().iter().map(RedisReply::text);
    leaks.extend(
        channels
            .filter(|channel| !channel.starts_with(&wake))
            .map(|channel| format!("a subscription to {channel:?}")),
    );
    Ok(leaks)
}
