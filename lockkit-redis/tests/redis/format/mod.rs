//! Tests the data that other versions of lockkit have stored. Data of 0.1.0 are read and written,
//! and data of newer versions are left alone.

mod newer;
mod stored;

use lockkit_core::{
    Kind, LockName, OwnerId,
    spi::{ClaimSpec, Mode},
};

use crate::support::*;

/// A dump of the keys, one a line: type, key, and content. It is as 0.1.0 writes it, but for times
/// that are past 2100.
const STORED: &str = include_str!("stored-1.txt");

fn claim_of(kind: Kind, mode: Mode, owner: OwnerId) -> ClaimSpec {
    ClaimSpec::new(LockName::new(kind, "orders").unwrap(), owner, mode, TTL, OP_TIMEOUT)
}

impl Admin {
    /// Makes the keys of a dump. They lapse within the hour.
    async fn load(&self, dump: &str) {
        for line in dump.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let verb = match words[0] {
                "string" => "SET",
                "zset" => "ZADD",
                "hash" => "HSET",
                other => panic!("{other}"),
            };
            self.ask::<()>(&[&[verb], &words[1..]].concat()).await;
            self.ask::<()>(&["PEXPIRE", words[1], "3600000"]).await;
        }
    }

    async fn dump(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for key in self.all_keys().await {
            let kind: String = self.ask(&["TYPE", &key]).await;
            let fields: Vec<String> = match &*kind {
                "string" => vec![self.ask(&["GET", &key]).await],
                "zset" => {
                    let members: Vec<String> =
                        self.ask(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]).await;
                    members.chunks(2).flat_map(|pair| [pair[1].clone(), pair[0].clone()]).collect()
                }
                "hash" => {
                    let all: Vec<String> = self.ask(&["HGETALL", &key]).await;
                    let mut pairs: Vec<_> = all.chunks(2).map(<[_]>::to_vec).collect();
                    pairs.sort();
                    pairs.concat()
                }
                other => panic!("{other}"),
            };
            lines.push(format!("{kind} {key} {}", fields.join(" ")));
        }
        lines
    }
}
