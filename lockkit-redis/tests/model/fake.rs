//! A fake Redis of strings, hashes and sorted sets, as a value: it can be cloned, compared and hashed.

use std::{collections::BTreeMap, rc::Rc};

pub(crate) type Text = Rc<str>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    keys: BTreeMap<Text, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    data: Data,
    /// When the key lapses, in ms of the server.
    until: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Data {
    String(Text),
    /// Sorted by score, then by member.
    Zset(Vec<(i64, Text)>),
    Hash(BTreeMap<Text, Text>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Ok,
    Int(i64),
    Text(Text),
    List(Vec<Self>),
}

pub(crate) type Answer = Result<Reply, String>;

/// At this ms, the fake's clock shows the last µs of a second. Otherwise it shows whole ms.
pub(crate) const END_OF_A_SECOND: i64 = 1_700_000_000_999;

const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// The state of a server while it runs one script.
#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) store: Store,
    /// In ms.
    pub(crate) now: i64,
    /// Out of memory: the server refuses writes that may grow the data, unless the script has
    /// written before.
    pub(crate) full: bool,
    pub(crate) dirty: bool,
    /// The user has no rights on channels.
    pub(crate) denied: bool,
    /// A command that the user may not run.
    pub(crate) forbidden: &'static str,
    /// The channels that a client hears.
    pub(crate) heard: Vec<Text>,
    pub(crate) published: Vec<(Text, Text)>,
}

impl Store {
    /// Removes the keys that have lapsed at this time. A real server keeps a key for one more ms;
    /// the earlier end is the worse one.
    pub(crate) fn prune(&mut self, now: i64) {
        self.keys.retain(|_, entry| entry.until.is_none_or(|until| until > now));
    }

    pub(crate) fn string(&self, key: &str) -> Option<&Text> {
        match &self.keys.get(key)?.data {
            Data::String(text) => Some(text),
            Data::Zset(_) | Data::Hash(_) => None,
        }
    }

    pub(crate) fn until(&self, key: &str) -> Option<i64> {
        self.keys.get(key)?.until
    }

    pub(crate) fn with_expiry(&self, key: &str, until: Option<i64>) -> Self {
        let mut store = self.clone();
        store.keys.entry(key.into()).and_modify(|entry| entry.until = until);
        store
    }

    pub(crate) fn members(&self, key: &str) -> &[(i64, Text)] {
        match self.keys.get(key).map(|entry| &entry.data) {
            Some(Data::Zset(members)) => members,
            _ => &[],
        }
    }

    fn zset(&self, key: &str) -> Result<&[(i64, Text)], String> {
        match self.keys.get(key).map(|entry| &entry.data) {
            Some(Data::String(_) | Data::Hash(_)) => Err(WRONGTYPE.to_owned()),
            _ => Ok(self.members(key)),
        }
    }

    /// The fields of a hash, which are none if there is no such key.
    pub(crate) fn fields(&self, key: &str) -> Result<BTreeMap<Text, Text>, String> {
        match self.keys.get(key).map(|entry| &entry.data) {
            None => Ok(BTreeMap::new()),
            Some(Data::Hash(fields)) => Ok(fields.clone()),
            Some(Data::String(_) | Data::Zset(_)) => Err(WRONGTYPE.to_owned()),
        }
    }
}

impl Server {
    pub(crate) fn run(&mut self, command: &[Text]) -> Answer {
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        if words[0] == self.forbidden {
            return Err("NOPERM this user has no permissions to run the command".to_owned());
        }
        let grows = matches!(words[0], "SET" | "ZADD" | "HSET");
        if self.full && !self.dirty && grows {
            return Err("OOM command not allowed when used memory > 'maxmemory'.".to_owned());
        }
        self.dirty |= grows || matches!(words[0], "DEL" | "PEXPIRE" | "ZREM" | "HDEL");
        match words[0] {
            "PUBLISH" | "PUBSUB" => self.channel_command(&words),
            "ZADD" | "ZREM" => self.zset_write(&words),
            "ZCOUNT" | "ZRANGEBYSCORE" | "ZSCORE" | "ZRANGE" => self.zset_read(&words),
            "HSET" | "HDEL" => self.hash_write(&words),
            "HGET" | "HMGET" | "HEXISTS" | "HGETALL" => self.hash_read(&words),
            _ => self.key_command(&words),
        }
    }

    /// Runs a command on the clock, on any key, or on a string.
    fn key_command(&mut self, words: &[&str]) -> Answer {
        match *words {
            ["TIME"] => {
                let rest = if self.now == END_OF_A_SECOND { 999 } else { 0 };
                let parts = [self.now / 1000, self.now % 1000 * 1000 + rest];
                Ok(Reply::List(parts.map(|part| Reply::Text(part.to_string().into())).into()))
            }
            ["EXISTS", ref keys @ ..] => {
                let there = keys.iter().filter(|key| self.store.keys.contains_key(**key));
                Ok(Reply::Int(i64::try_from(there.count()).expect("few keys")))
            }
            ["GET", key] => match self.store.keys.get(key).map(|entry| &entry.data) {
                None => Ok(Reply::Nil),
                Some(Data::String(text)) => Ok(Reply::Text(text.clone())),
                Some(Data::Zset(_) | Data::Hash(_)) => Err(WRONGTYPE.to_owned()),
            },
            ["MGET", ref keys @ ..] => {
                let value = |key: &&str| self.store.string(key).cloned();
                let values = keys.iter().map(|key| value(key).map_or(Reply::Nil, Reply::Text));
                Ok(Reply::List(values.collect()))
            }
            ["SET", key, .., "NX"] if self.store.keys.contains_key(key) => Ok(Reply::Nil),
            ["SET", key, value, "NX"] => self.set(key, value, None),
            ["SET", key, value, "PX", ttl, "NX"] => self.set(key, value, Some(self.lapse(ttl)?)),
            ["SET", key, value] => self.set(key, value, None),
            ["SET", key, value, "PX", ttl] => self.set(key, value, Some(self.lapse(ttl)?)),
            ["DEL", ref keys @ ..] => {
                let removed = keys.iter().filter(|key| self.store.keys.remove(**key).is_some());
                Ok(Reply::Int(i64::try_from(removed.count()).expect("few keys")))
            }
            ["PTTL", key] => Ok(Reply::Int(match self.store.keys.get(key) {
                None => -2,
                Some(Entry { until: None, .. }) => -1,
                Some(Entry { until: Some(until), .. }) => until - self.now,
            })),
            ["PEXPIRE", key, ttl] => {
                let until = self.lapse(ttl)?;
                let entry = self.store.keys.get_mut(key);
                Ok(Reply::Int(i64::from(entry.map(|entry| entry.until = Some(until)).is_some())))
            }
            _ => unknown(words),
        }
    }

    fn channel_command(&mut self, words: &[&str]) -> Answer {
        match *words {
            ["PUBLISH" | "PUBSUB", ..] if self.denied => {
                Err("NOPERM No permissions to access a channel".to_owned())
            }
            ["PUBLISH", channel, message] => {
                self.published.push((channel.into(), message.into()));
                Ok(Reply::Int(self.listeners(channel)))
            }
            ["PUBSUB", "NUMSUB", channel] => Ok(Reply::List(vec![
                Reply::Text(channel.into()),
                Reply::Int(self.listeners(channel)),
            ])),
            _ => unknown(words),
        }
    }

    fn zset_write(&mut self, words: &[&str]) -> Answer {
        match *words {
            ["ZADD", key, "NX", score, member] => self.zadd(key, &["NX"], integer(score)?, member),
            ["ZADD", key, "XX", "CH", score, member] => {
                self.zadd(key, &["XX", "CH"], integer(score)?, member)
            }
            ["ZADD", key, "CH", score, member] => self.zadd(key, &["CH"], integer(score)?, member),
            ["ZADD", key, ref pairs @ ..] => {
                for pair in pairs.chunks(2) {
                    self.zadd(key, &[], integer(pair[0])?, pair[1])?;
                }
                Ok(Reply::Ok)
            }
            ["ZREM", key, ref members @ ..] => {
                let mut left = self.store.zset(key)?.to_vec();
                let before = left.len();
                left.retain(|(_, other)| !members.contains(&&**other));
                let removed = i64::try_from(before - left.len()).expect("a short set");
                self.put(key, left);
                Ok(Reply::Int(removed))
            }
            _ => unknown(words),
        }
    }

    fn zset_read(&self, words: &[&str]) -> Answer {
        match *words {
            ["ZCOUNT", key, "-inf", most] => {
                let most = integer(most)?;
                let count = self.store.zset(key)?.iter().filter(|(score, _)| *score <= most);
                Ok(Reply::Int(i64::try_from(count.count()).expect("a short set")))
            }
            ["ZRANGEBYSCORE", key, "-inf", most] => {
                let most = integer(most)?;
                let found = self.store.zset(key)?.iter().filter(|(score, _)| *score <= most);
                Ok(Reply::List(found.map(|(_, member)| Reply::Text(member.clone())).collect()))
            }
            ["ZCOUNT", key, least, "+inf"] => {
                let least = integer(least)?;
                let count =
                    self.store.zset(key)?.iter().filter(|(score, _)| *score >= least).count();
                Ok(Reply::Int(i64::try_from(count).expect("a short set")))
            }
            ["ZRANGEBYSCORE", key, "-inf", below, "LIMIT", "0", most] => {
                let below = integer(below.strip_prefix('(').expect("an open end"))?;
                let found = self.store.zset(key)?.iter().filter(|(score, _)| *score < below);
                let most = usize::try_from(integer(most)?).expect("a number of members");
                Ok(Reply::List(
                    found.take(most).map(|(_, member)| Reply::Text(member.clone())).collect(),
                ))
            }
            ["ZSCORE", key, member] => {
                let found = self.store.zset(key)?.iter().find(|(_, other)| &**other == member);
                Ok(found.map_or(Reply::Nil, |(score, _)| Reply::Text(score.to_string().into())))
            }
            ["ZRANGE", key, first, last] => Ok(Reply::List(
                self.range(key, first, last)?
                    .into_iter()
                    .map(|(_, member)| Reply::Text(member))
                    .collect(),
            )),
            ["ZRANGE", key, first, last, "WITHSCORES"] => Ok(Reply::List(
                (self.range(key, first, last)?.into_iter())
                    .flat_map(|(score, member)| {
                        [Reply::Text(member), Reply::Text(score.to_string().into())]
                    })
                    .collect(),
            )),
            _ => unknown(words),
        }
    }

    fn hash_write(&mut self, words: &[&str]) -> Answer {
        let [command, key, rest @ ..] = words else { return unknown(words) };
        let mut fields = self.store.fields(key)?;
        let before = fields.len();
        match *command {
            "HSET" => fields.extend(rest.chunks(2).map(|pair| (pair[0].into(), pair[1].into()))),
            _ => fields.retain(|field, _| !rest.contains(&&**field)),
        }
        let changed = i64::try_from(before.abs_diff(fields.len())).expect("few fields");
        let until = self.store.until(key);
        if fields.is_empty() {
            self.store.keys.remove(*key);
        } else {
            self.store.keys.insert((*key).into(), Entry { data: Data::Hash(fields), until });
        }
        Ok(Reply::Int(changed))
    }

    fn hash_read(&self, words: &[&str]) -> Answer {
        let [command, key, wanted @ ..] = words else { return unknown(words) };
        let fields = self.store.fields(key)?;
        let value = |field: &&str| fields.get(*field).cloned().map_or(Reply::Nil, Reply::Text);
        Ok(match (*command, wanted) {
            ("HGET", [field]) => value(field),
            ("HEXISTS", [field]) => Reply::Int(i64::from(fields.contains_key(*field))),
            ("HMGET", wanted) => Reply::List(wanted.iter().map(value).collect()),
            ("HGETALL", []) => {
                let all = fields.iter().flat_map(|(field, value)| [field, value]);
                Reply::List(all.map(|text| Reply::Text(text.clone())).collect())
            }
            _ => return unknown(words),
        })
    }

    fn listeners(&self, channel: &str) -> i64 {
        i64::from(self.heard.iter().any(|heard| &**heard == channel))
    }

    fn lapse(&self, ttl: &str) -> Result<i64, String> {
        match integer(ttl)? {
            ttl if ttl > 0 => Ok(self.now + ttl),
            _ => Err("ERR invalid expire time in 'set' command".to_owned()),
        }
    }

    fn set(&mut self, key: &str, value: &str, until: Option<i64>) -> Answer {
        self.store.keys.insert(key.into(), Entry { data: Data::String(value.into()), until });
        Ok(Reply::Ok)
    }

    fn zadd(&mut self, key: &str, options: &[&str], score: i64, member: &str) -> Answer {
        let mut members = self.store.zset(key)?.to_vec();
        let old = members.iter().position(|(_, other)| &**other == member);
        let add = !options.contains(&"XX");
        let change = !options.contains(&"NX");
        let count = match old {
            Some(at) if change => {
                let changed = members[at].0 != score;
                members[at].0 = score;
                changed && options.contains(&"CH")
            }
            None if add => {
                members.push((score, member.into()));
                true
            }
            _ => false,
        };
        members.sort();
        self.put(key, members);
        Ok(Reply::Int(i64::from(count)))
    }

    /// Stores a sorted set. Without members, the key is removed.
    fn put(&mut self, key: &str, members: Vec<(i64, Text)>) {
        let until = self.store.until(key);
        if members.is_empty() {
            self.store.keys.remove(key);
        } else {
            self.store.keys.insert(key.into(), Entry { data: Data::Zset(members), until });
        }
    }

    fn range(&self, key: &str, first: &str, last: &str) -> Result<Vec<(i64, Text)>, String> {
        let members = self.store.zset(key)?;
        let count = i64::try_from(members.len()).expect("a short set");
        let place = |word: &str| integer(word).map(|at| if at < 0 { at + count } else { at });
        let first = place(first)?.max(0);
        let last = place(last)?.min(count - 1);
        Ok((first..=last).map(|at| members[usize::try_from(at).expect("inside")].clone()).collect())
    }
}

fn unknown(words: &[&str]) -> Answer {
    Err(format!("ERR the fake doesn't know {words:?}"))
}

fn integer(word: &str) -> Result<i64, String> {
    word.parse().map_err(|_| format!("ERR value is not an integer or out of range: {word}"))
}
