//! One Redis or Valkey server.

use libtest_mimic::Failed;
use lockkit_fixture::{
    RedisOptions, RedisReply, RedisServer, ServerProcess, WallClock, valkey_server,
};
use lockkit_torture::site::{BoxError, ServerFault, Site};

use super::{
    clock, lasting, momentary,
    server::{Alone, Server, kill, stop},
    weak,
};

const CLIENT_KILL: &str = "client-kill";
const CROWD: &str = "crowd";
const FULL: &str = "full";
const SCRIPT_FLUSH: &str = "script-flush";

/// Adds thousands of waiters of dead processes behind the first waiter for each name. These waiters
/// lapse after two seconds.
const QUEUE_A_CROWD: &str = "
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local bases = {}
  for _, key in ipairs(redis.call('KEYS', '*:{*}*')) do bases[string.match(key, '^(.-})')] = true end
  for base in pairs(bases) do
    local permits = string.find(base, ':rwlock:') and '2147483647:' or string.find(base, ':semaphore:') and '1:' or ''
    for i = 1, 3000 do
      local waiter = string.format('%016x:500:%s%032x', i % 100, permits, i)
      redis.call('ZADD', base .. ':queue', 'NX', now + i, waiter)
      redis.call('ZADD', base .. ':live', now + 2000000, waiter)
    end
    for _, part in ipairs({':queue', ':live'}) do
      local keep = math.max(2000, redis.call('PTTL', base .. part))
      redis.call('PEXPIRE', base .. part, keep)
    end
  end
  return 1";

const STEP: &str = "a step of the server's clock over the lease: the lock is free at once, its holder believes until its next renewal";

/// A server with no keys of other programs.
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

/// A restart loses nothing here.
fn durable_faults() -> Vec<ServerFault> {
    // This is longer than the longest lease, so holders of all kinds must renew in the meantime.
    let full = lasting(FULL, 100..=4_000);
    vec![stop(), kill(), full, momentary(CROWD), momentary(SCRIPT_FLUSH), momentary(CLIENT_KILL)]
}

pub(super) fn volatile() -> Result<Box<dyn Site>, Failed> {
    let server = Redis::start(RedisOptions::default())?;
    let faults =
        vec![weak(kill(), "one server without persistence: any restart loses all locks"), stop()];
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

    fn process(&mut self) -> &mut ServerProcess {
        &mut self.server
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
            CROWD => {
                self.server.ask(["EVAL", QUEUE_A_CROWD, "0"])?;
                Ok("every queue".to_owned())
            }
            FULL => {
                self.server.ask([
                    "CONFIG",
                    "SET",
                    "maxmemory-policy",
                    "noeviction",
                    "maxmemory",
                    "1",
                ])?;
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

/// Lists a server's keys below a prefix, without those that may remain. These are notes, and the data
/// that all lockers share.
pub(super) fn leaks(server: &RedisServer, namespace: &str) -> Result<Vec<String>, BoxError> {
    let mut leaks = Vec::new();
    let keys = server.ask(["KEYS", &format!("{namespace}:*")])?;
    for key in keys.elements().iter().map(RedisReply::text) {
        let lives: i64 = server.ask(["PTTL", &key])?.text().parse()?;
        let stays = lives == -2
            || (key.ends_with("}:note") && lives == -1)
            || key == format!("{namespace}:keys")
            // On a cluster, each slot has a counter.
            || key == format!("{namespace}:token")
            || key.starts_with(&format!("{namespace}:token:{{"));
        if !stays {
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
