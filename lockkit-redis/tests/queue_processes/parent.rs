//! Starts a server and client processes, and reads the server's statistics.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libtest_mimic::Failed;
use lockkit_fixture::{Peer, RedisReply, RedisServer, until};

/// Every expected event comes within this time.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Store(pub(crate) RedisServer);

impl Store {
    pub(crate) fn start() -> Result<Self, Failed> {
        Ok(Self(RedisServer::start()?))
    }

    fn figure(&self, section: &str, prefix: &str) -> Result<u64, Failed> {
        let info = self.0.ask(["INFO", section])?.text();
        let figure = info.lines().find_map(|line| line.strip_prefix(prefix)).unwrap_or("0");
        let digits: String = figure.chars().take_while(char::is_ascii_digit).collect();
        Ok(digits.parse()?)
    }

    pub(crate) fn dataset(&self) -> Result<u64, Failed> {
        self.figure("memory", "used_memory_dataset:")
    }

    pub(crate) fn integer<const N: usize>(&self, words: [&str; N]) -> Result<i64, Failed> {
        match self.0.ask(words)? {
            RedisReply::Integer(number) => Ok(number),
            other => Err(format!("{words:?}: {other:?}").into()),
        }
    }

    pub(crate) fn waiters(&self) -> Result<i64, Failed> {
        self.members("lockkit:mutex:{a}:queue")
    }

    pub(crate) fn members(&self, zset: &str) -> Result<i64, Failed> {
        self.integer(["ZCARD", zset])
    }

    pub(crate) fn wait_for_waiters(&self, waiters: i64) -> Result<(), Failed> {
        eventually("the queue has not its length", || Ok(self.waiters()? == waiters))
    }

    /// Makes a silent waiter keep its place in these keys for an hour.
    pub(crate) fn stays_for_an_hour(
        &self,
        [queue, live]: &[&str; 2],
        waiter: &str,
    ) -> Result<(), Failed> {
        let end = (SystemTime::now() + Duration::from_secs(3_600))
            .duration_since(UNIX_EPOCH)?
            .as_micros();
        assert_eq!(
            self.integer(["ZADD", live, "XX", "CH", &end.to_string(), waiter])?,
            1,
            "it is forgotten"
        );
        for key in [queue, live] {
            assert_eq!(self.integer(["EXPIRE", key, "3600"])?, 1);
        }
        Ok(())
    }

    /// Checks that no key of a name and no subscription is left.
    pub(crate) fn assert_clean(&self) -> Result<(), Failed> {
        let script = "local left = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
                      local stays = key == 'lockkit:keys' or key == 'lockkit:token' \
                      if not stays then left[#left + 1] = key end end return table.concat(left, ' ')";
        let left = self.0.ask(["EVAL", script, "0"])?.text();
        assert!(left.is_empty(), "{left}");
        eventually("a subscription is left", || Ok(self.channels()? == 0))
    }

    pub(crate) fn channels(&self) -> Result<usize, Failed> {
        Ok(self.0.ask(["PUBSUB", "CHANNELS"])?.elements().len())
    }

    pub(crate) fn client(&self, role: &str) -> Result<Peer, Failed> {
        Ok(Peer::start(&format!("{} {role}", self.0.url()))?)
    }
}

pub(crate) fn eventually(
    what: &str,
    is_so: impl Fn() -> Result<bool, Failed>,
) -> Result<(), Failed> {
    until(SOON, what, || is_so().map(|is_so| is_so.then_some(())).transpose())
}
