//! Calls the scripts for the tests.

use std::{
    collections::HashSet,
    sync::mpsc::{Receiver, channel},
    thread,
};

use lockkit_fixture::RedisServer;
use redis::{Commands as _, Connection, FromRedisValue, Script, Value};

use crate::scripts::counted;

pub(crate) const LEASE: u64 = 10_000;
pub(crate) const WINDOW: u64 = 500;
pub(crate) const LIVENESS: u64 = 2 * WINDOW;
pub(crate) const EVERYTHING: u64 = 0x7FFF_FFFF;
/// A not-after time that never comes, for the usual test.
pub(crate) const NEVER: u64 = 1 << 53;
pub(crate) const START: u64 = 1_700_000_000_000_000;

/// The clock is a key, but keys lapse by the server's own clock. So each key lives for an hour more
/// than a script asks. The script sees the expiry that it asked for last, however slow this machine
/// is.
const SET_CLOCK: &str = r"
local server = redis
local redis = { pcall = server.pcall, call = function(command, key, ...)
  local args = {...}
  if command == 'PEXPIRE' then
    server.call('HSET', 'asked', key, args[1])
    return server.call(command, key, args[1] + 3600000)
  end
  if command == 'TIME' then
    local now = server.call('GET', 'clock')
    return {string.sub(now, 1, -7), tostring(tonumber(string.sub(now, -6)))}
  end
  if command ~= 'PTTL' then return server.call(command, key, ...) end
  local left = server.call(command, key)
  return left < 0 and left or tonumber(server.call('HGET', 'asked', key))
end }
";
/// The parameters of one claim.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) owner: String,
    pub(crate) client: &'static str,
    pub(crate) count: u64,
    pub(crate) wait: u64,
}

impl Claim {
    /// A claim of a client that gets no messages, and waits in the queue.
    pub(crate) fn new(number: u64, count: u64) -> Self {
        Self { owner: format!("{number:032x}:label"), client: "-", count, wait: 1 }
    }

    pub(crate) fn reader(number: u64) -> Self {
        Self::new(number, 1)
    }

    pub(crate) fn writer(number: u64) -> Self {
        Self::new(number, EVERYTHING)
    }

    pub(crate) fn of(self, client: &'static str) -> Self {
        Self { client, ..self }
    }

    pub(crate) fn impatient(self) -> Self {
        Self { wait: 0, ..self }
    }

    pub(crate) fn waiter(&self) -> String {
        format!("{}:{WINDOW}:{}:{}", self.client, self.count, self.owner)
    }

    pub(crate) fn id(&self) -> &str {
        &self.owner[..32]
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Busy { lapse: i64 },
    Granted { lease: u64, token: u64 },
    Late,
    NoToken,
    Limit(u64),
}

impl Answer {
    #[track_caller]
    pub(crate) fn token(self) -> u64 {
        let Self::Granted { token, .. } = self else { panic!("not granted: {self:?}") };
        token
    }

    pub(crate) fn is_busy(self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Holder {
    pub(crate) owner: String,
    pub(crate) deadline: u64,
    pub(crate) count: u64,
    pub(crate) token: u64,
}

#[derive(Debug)]
pub(crate) struct View {
    pub(crate) limit: Option<u64>,
    pub(crate) used: u64,
    pub(crate) waiters: u64,
    pub(crate) holders: Vec<Holder>,
}

pub(crate) struct Store {
    pub(crate) connection: Connection,
    messages: Receiver<String>,
    acquire: Script,
    release: Script,
    extend: Script,
    refresh: Script,
    force_release: Script,
    inspect: Script,
    pub(crate) limit: u64,
    pub(crate) now: u64,
    /// The waiters that got a place in the queue.
    queued: HashSet<String>,
    _server: RedisServer,
}

impl Store {
    pub(crate) fn new(limit: u64) -> Self {
        Self::with_clock(limit, SET_CLOCK)
    }

    pub(crate) fn on_the_servers_clock(limit: u64) -> Self {
        Self::with_clock(limit, "")
    }

    fn with_clock(limit: u64, clock: &str) -> Self {
        let server = RedisServer::start().unwrap();
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_connection().unwrap();
        let messages = subscribe(client.get_connection().unwrap());
        let script = |text| Script::new(&format!("{clock}{text}"));
        let mut store = Self {
            connection,
            acquire: script(counted::ACQUIRE),
            release: script(counted::RELEASE),
            extend: script(counted::EXTEND),
            refresh: script(counted::REFRESH),
            force_release: script(counted::FORCE_RELEASE),
            inspect: script(counted::INSPECT),
            limit,
            now: START,
            queued: HashSet::new(),
            messages,
            _server: server,
        };
        store.advance(0);
        store
    }

    /// Lets milliseconds pass.
    pub(crate) fn advance(&mut self, millis: u64) {
        self.advance_micros(millis * 1000);
    }

    pub(crate) fn advance_micros(&mut self, micros: u64) {
        self.now += micros;
        let _: () = self.connection.set("clock", self.now).unwrap();
    }

    fn call<T: FromRedisValue>(&mut self, script: fn(&Self) -> &Script, args: &[String]) -> T {
        let script = script(self).clone();
        let mut call = script.prepare_invoke();
        for key in ["counter", "queue", "live", "holders", "grants"] {
            call.key(key);
        }
        for arg in args {
            call.arg(arg);
        }
        call.invoke(&mut self.connection).unwrap()
    }

    pub(crate) fn acquire(&mut self, claim: &Claim) -> Answer {
        self.acquire_with(claim, LEASE, NEVER, self.limit)
    }

    pub(crate) fn acquire_with(
        &mut self,
        claim: &Claim,
        lease: u64,
        not_after: u64,
        limit: u64,
    ) -> Answer {
        let asked = lease;
        let numbers =
            [lease, not_after, claim.wait, LIVENESS, claim.count, limit].map(|n| n.to_string());
        let [lease, not_after, wait, liveness, count, limit] = numbers;
        let args = [claim.owner.clone(), lease, not_after, claim.waiter(), wait, liveness];
        let channels = ["PUBLISH".to_owned(), "channel:".to_owned(), count, limit];
        let answer: Value = self.call(|store| &store.acquire, &[&args[..], &channels[..]].concat());
        if let Value::Int(token) = answer {
            self.queued.remove(&claim.waiter());
            return Answer::Granted { lease: asked, token: token.try_into().unwrap() };
        }
        let answer: Vec<i64> = redis::from_redis_value(answer).unwrap();
        if answer[0] == 0 && claim.wait == 1 {
            self.queued.insert(claim.waiter());
        } else if answer[0] == 1 {
            self.queued.remove(&claim.waiter());
        }
        let number = |at: usize| u64::try_from(answer[at]).unwrap();
        match (answer[0], answer.len()) {
            (0, 3) => Answer::Busy { lapse: answer[2] },
            (1, 4) => Answer::Granted { lease: number(2), token: number(3) },
            (2, 2) => Answer::Late,
            (3, 2) => Answer::NoToken,
            (4, 3) => Answer::Limit(number(2)),
            _ => panic!("{answer:?}"),
        }
    }

    pub(crate) fn release(&mut self, claim: &Claim) -> i64 {
        self.release_after(claim, 0)
    }

    pub(crate) fn release_after(&mut self, claim: &Claim, not_before: u64) -> i64 {
        // A claim that never queued names no place, as a client does.
        let waiter =
            if self.queued.contains(&claim.waiter()) { claim.waiter() } else { String::new() };
        let args = [&claim.owner, &waiter, &not_before.to_string(), "PUBLISH", "channel:"];
        self.call(|store| &store.release, &args.map(String::from))
    }

    pub(crate) fn extend(&mut self, claim: &Claim, lease: u64) -> i64 {
        self.call(|store| &store.extend, &[claim.owner.clone(), lease.to_string()])
    }

    /// Returns when the first lease lapses, and for each claim whether it still waits.
    pub(crate) fn refresh(&mut self, claims: &[&Claim]) -> (i64, Vec<bool>) {
        let mut args = vec!["PUBLISH".to_owned(), "channel:".to_owned(), claims.len().to_string()];
        args.extend(claims.iter().flat_map(|claim| [claim.waiter(), LIVENESS.to_string()]));
        let (_, seen): (u64, Vec<i64>) = self.call(|store| &store.refresh, &args);
        (seen[0], seen[1..].iter().map(|&waits| waits == 1).collect())
    }

    pub(crate) fn force_release(&mut self, token: u64) -> i64 {
        self.call(
            |store| &store.force_release,
            &[token.to_string(), "PUBLISH".to_owned(), "channel:".to_owned()],
        )
    }

    pub(crate) fn inspect(&mut self) -> View {
        let answer: Vec<Value> = self.call(|store| &store.inspect, &[]);
        let text: Vec<Option<String>> =
            answer.into_iter().map(|value| redis::from_redis_value(value).unwrap()).collect();
        let number = |at: usize| text[at].as_ref().unwrap().parse().unwrap();
        let holders = (4..text.len()).step_by(4).map(|at| Holder {
            owner: text[at].clone().unwrap(),
            deadline: number(at + 1),
            count: number(at + 2),
            token: number(at + 3),
        });
        let limit = text[1].as_ref().map(|limit| limit.parse().unwrap());
        View { limit, used: number(2), waiters: number(3), holders: holders.collect() }
    }

    /// The owners of the messages to the client `a` since the last call.
    pub(crate) fn told_ids(&mut self) -> Vec<String> {
        self.told().iter().map(|message| message[..32].to_owned()).collect()
    }

    /// The messages to the client `a` since the last call.
    pub(crate) fn told(&mut self) -> Vec<String> {
        let _: () = self.connection.publish("channel:a", "end").unwrap();
        self.messages.iter().take_while(|message| message != "end").collect()
    }

    pub(crate) fn keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> = self.connection.keys("*").unwrap();
        keys.retain(|key| key != "clock" && key != "asked");
        keys.sort();
        keys
    }

    /// Checks that no key but the counter is kept for ever.
    pub(crate) fn assert_all_lapse(&mut self) {
        let script = "for _, key in ipairs(redis.call('KEYS', '*')) do
              if key ~= 'clock' and key ~= 'asked' and key ~= 'counter' and redis.call('PTTL', key) < 0 then return key end
            end
            return ''";
        let kept: String =
            redis::cmd("EVAL").arg(script).arg(0).query(&mut self.connection).unwrap();
        assert_eq!(kept, "", "it is kept for ever");
    }

    /// The expiry that the scripts have asked for, in ms.
    pub(crate) fn ttl(&mut self, key: &str) -> i64 {
        let left = self.lapses_after(key);
        self.connection.hget::<_, _, Option<i64>>("asked", key).unwrap().unwrap_or(left)
    }

    pub(crate) fn lapses_after(&mut self, key: &str) -> i64 {
        let left = self.connection.pttl(key).unwrap();
        assert!(left > 0, "{key} is kept for ever");
        left
    }

    /// The counter of used permits, and the sum that it must equal.
    pub(crate) fn used(&mut self) -> (u64, u64) {
        let grants: Vec<(String, String)> = self.connection.hgetall("grants").unwrap();
        let mut used = 0;
        let mut sum = 0;
        for (field, value) in grants {
            match field.as_str() {
                "used" => used = value.parse().unwrap(),
                "limit" => {}
                _ => sum += value.split(':').next().unwrap().parse::<u64>().unwrap(),
            }
        }
        (used, sum)
    }

    #[track_caller]
    pub(crate) fn assert_idle(&mut self) {
        assert_eq!(self.keys(), ["counter"]);
    }
}

/// Only the client `a` has a connection. It is this one, which ends with the server.
fn subscribe(mut connection: Connection) -> Receiver<String> {
    let (heard, messages) = channel();
    thread::spawn(move || {
        let mut channels = connection.as_pubsub();
        channels.subscribe("channel:a").unwrap();
        let mut message = "subscribed".to_owned();
        while heard.send(message).is_ok() {
            let Ok(next) = channels.get_message() else { break };
            message = next.get_payload().unwrap();
        }
    });
    assert_eq!(messages.recv().unwrap(), "subscribed");
    messages
}
