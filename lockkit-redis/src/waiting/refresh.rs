//! Makes joint requests that keep all due waiters alive.

use std::{sync::Arc, time::Duration};

use lockkit_core::{Clock, OwnerId, Tick};
use redis::{RedisResult, Value};

use super::{
    ClockReading, hears,
    registry::{Inner, WaiterGroup, WaiterRegistry},
};
use crate::{family::Family, keys::Keys, script, servers::Link};

/// A script holds the server up, so one call gets no more than this.
const MOST_WAITERS: usize = 512;
const MOST_GROUPS: usize = 64;

/// The groups of one call of the script. They are of one family, and of one slot where that
/// matters.
#[derive(Debug)]
pub(crate) struct RefreshBatch {
    pub(crate) family: Family,
    groups: Vec<Turn>,
}

#[derive(Debug)]
struct Turn {
    keys: Arc<Keys>,
    waiters: Vec<(OwnerId, Arc<str>, Duration)>,
}

impl RefreshBatch {
    pub(crate) fn slot(&self) -> u16 {
        self.groups.first().map_or(0, |turn| turn.keys.slot)
    }

    /// The first group. It is the only one where each group has a channel of its own.
    pub(crate) fn base(&self) -> &str {
        self.groups.first().map_or("", |turn| &turn.keys.base)
    }

    pub(crate) fn first_keys(&self) -> Option<&Keys> {
        self.groups.first().map(|turn| &*turn.keys)
    }

    pub(crate) fn keys(&self) -> Vec<&str> {
        self.groups.iter().flat_map(|turn| turn.keys.of(self.family)).collect()
    }

    /// For each group the number of its waiters, then each waiter with its liveness in ms.
    pub(crate) fn args(&self) -> impl Iterator<Item = script::Arg<'_>> {
        use script::Arg::{Number, Text};
        self.groups.iter().flat_map(|turn| {
            let waiters = turn
                .waiters
                .iter()
                .flat_map(|(_, member, liveness)| [Text(member), Number(millis(*liveness))]);
            std::iter::once(Number(i64::try_from(turn.waiters.len()).unwrap_or(i64::MAX)))
                .chain(waiters)
        })
    }

    /// Splits the batch into one request for each group.
    pub(crate) fn apart(self) -> impl Iterator<Item = Self> {
        let family = self.family;
        self.groups.into_iter().map(move |turn| Self { family, groups: vec![turn] })
    }

    fn len(&self) -> usize {
        self.groups.iter().map(|turn| turn.waiters.len()).sum()
    }
}

impl WaiterRegistry {
    /// The caller that asks about all groups holds this lock.
    pub(crate) fn turn(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.turn)
    }

    /// The caller that asks about one group holds this lock.
    pub(crate) fn turn_in(&self, base: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.lock().groups.get(base).map(|group| Arc::clone(&group.turn)).unwrap_or_default()
    }

    /// The batches to ask about now, for all groups or for one.
    pub(crate) fn due(&self, only: Option<&str>) -> Vec<RefreshBatch> {
        let now = Clock::Boot.now();
        let mut inner = self.lock();
        let Inner { groups, owners } = &mut *inner;
        let mut batches: Vec<RefreshBatch> = Vec::new();
        let wanted: Vec<&WaiterGroup> = match only {
            Some(base) => groups.get(base).into_iter().collect(),
            None => groups.values().collect(),
        };
        for group in wanted {
            let known = group.waiters.iter().filter_map(|owner| Some((owner, owners.get(owner)?)));
            let queued: Vec<_> = known.filter(|(_, waiter)| waiter.queued).collect();
            let Some(period) = queued.iter().map(|(_, waiter)| waiter.period()).min() else {
                continue;
            };
            // A group that is nearly due is included.
            let due =
                group.refreshed.is_none_or(|at| at.after(period / 2) <= now) || group.lapse <= now;
            if !due {
                continue;
            }
            for waiters in queued.chunks(MOST_WAITERS) {
                let waiters = waiters
                    .iter()
                    .map(|(owner, w)| (**owner, Arc::clone(w.member()), w.liveness()))
                    .collect();
                let turn = Turn { keys: Arc::clone(&group.keys), waiters };
                let open = batches.iter_mut().rev().find(|batch| {
                    let fits = batch.len() + turn.waiters.len() <= MOST_WAITERS
                        && batch.groups.len() < MOST_GROUPS;
                    batch.family == group.family && fits
                });
                match open {
                    Some(batch) => batch.groups.push(turn),
                    None => batches.push(RefreshBatch { family: group.family, groups: vec![turn] }),
                }
            }
        }
        batches
    }

    /// Postpones these groups until their next turn. Their waiters ask for themselves, and get the
    /// error.
    pub(crate) fn put_off(&self, batch: &RefreshBatch) {
        let mut inner = self.lock();
        for turn in &batch.groups {
            if let Some(group) = inner.groups.get_mut(&turn.keys.base) {
                group.refreshed = Some(Clock::Boot.now());
            }
            for (owner, ..) in &turn.waiters {
                if let Some(waiter) = inner.owners.get_mut(owner) {
                    waiter.wake();
                }
            }
        }
    }

    /// Reads the answer to a batch. It wakes the waiters that wait no more, and those whose
    /// messages can't arrive on this connection.
    pub(crate) fn refreshed(
        &self,
        batch: &RefreshBatch,
        link: &Link,
        sent: Tick,
        reply: &Value,
    ) -> RedisResult<i64> {
        let waiters: Vec<_> = batch.groups.iter().map(|turn| turn.waiters.len()).collect();
        let (server_time, answers) =
            answers(reply, &waiters).ok_or_else(|| script::strange(reply))?;
        let seen = ClockReading { link: link.number(), sent, server_time };
        let mut inner = self.lock();
        for (turn, (ttl, waits)) in batch.groups.iter().zip(answers) {
            let group = inner.groups.get_mut(&turn.keys.base);
            // Another group of the same name may have been entered since.
            if let Some(group) = group.filter(|group| Arc::ptr_eq(&group.keys, &turn.keys)) {
                group.saw(seen, script::ttl(ttl));
                if group.disturbed.is_none_or(|at| at < sent) {
                    group.refreshed = Some(sent);
                }
            }
            for ((owner, member, _), waits) in turn.waiters.iter().zip(waits) {
                if (*waits == Value::Int(0) || !link.pushes() && hears(member))
                    && let Some(waiter) = inner.owners.get_mut(owner)
                {
                    waiter.wake();
                }
            }
        }
        Ok(server_time)
    }
}

/// How long a group's lock lasts, and which of its waiters still wait.
type Answer<'a> = (i64, &'a [Value]);

/// Reads `{now, {ttl, whether each waiter still waits}, …}`, for groups with these numbers of
/// waiters.
pub(crate) fn answers<'a>(reply: &'a Value, waiters: &[usize]) -> Option<(i64, Vec<Answer<'a>>)> {
    let Value::Array(fields) = reply else { return None };
    let [Value::Int(now), answers @ ..] = &**fields else { return None };
    let answers = answers.iter().map(|answer| match answer {
        Value::Array(answer) => match &**answer {
            [Value::Int(ttl), waits @ ..] => Some((*ttl, waits)),
            _ => None,
        },
        _ => None,
    });
    let answers: Vec<_> = answers.collect::<Option<_>>()?;
    let fits = answers.iter().map(|(_, waits)| waits.len()).eq(waiters.iter().copied());
    fits.then_some((*now, answers))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use lockkit_core::{Kind, LockName, spi::Wake};
    use lockkit_fixture::RedisServer;

    use super::*;
    use crate::{
        config::Config,
        store::Store,
        waiting::{News, Registration, Waiter},
    };

    #[tokio::test]
    async fn c8_an_answer_from_before_a_disturbance_does_not_calm_the_waiters() {
        let server = RedisServer::start().unwrap();
        // A server may not answer for seconds.
        let patience = Duration::from_secs(30);
        let config =
            Config::new("127.0.0.1", server.port()).with_connect_timeout(patience).unwrap();
        let keys =
            Arc::new(config.keyspace().keys(&LockName::new(Kind::Mutex, "a").unwrap()).unwrap());
        let store = Store::new(config);
        let groups = store.waiters();
        let link = store.route(0).next().await.unwrap().link;
        let waiter = Waiter::new("c:3000:me".into(), Duration::from_secs(3), Wake::none());
        let mut place =
            Registration::enter(groups, &keys, keys.family(), OwnerId::random(), waiter);
        let sent = Clock::Boot.now();
        place.waits(ClockReading { link: link.number(), sent, server_time: 1 }, None);
        assert!(matches!(place.news(false), News::Waits(_)));

        let answer = Value::Array(vec![
            Value::Int(1),
            Value::Array(vec![Value::Int(30_000), Value::Int(1)]),
        ]);
        let ask = || {
            let [batch] = groups.due(None).try_into().unwrap();
            (batch, Clock::Boot.now())
        };
        groups.wake_all();
        let (batch, sent) = ask();
        groups.wake_all();
        groups.refreshed(&batch, &link, sent, &answer).unwrap();
        assert_eq!(place.news(false), News::Refresh);
        let (batch, sent) = ask();
        groups.refreshed(&batch, &link, sent, &answer).unwrap();
        assert!(matches!(place.news(false), News::Waits(_)));
    }
}
