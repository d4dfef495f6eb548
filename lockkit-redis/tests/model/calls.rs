//! Calls the scripts as clients do, in ticks, and reads the answers.

use std::{collections::HashMap, rc::Rc};

use crate::{
    fake::{Reply as Raw, Store, Text},
    lua::{Outcome, Run, Scripts},
    mutants::Edit,
    permits,
    rules::{Permits, Pushes, Rules},
    sources,
};

pub(crate) type Tick = i16;

pub(crate) const TICK: i64 = 100;
/// The server's time at the start of the model, in ms.
const START: i64 = 1_700_000_000_000;
const CHANNELS: &str = "wake:";
pub(crate) const CLIENTS: usize = 3;
/// How many owners a client may have, one after another.
pub(crate) const OWNERS: u8 = 3;

/// Added to the place of a waiter that is set aside.
const ASIDE: i64 = 1 << 52;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Acquire {
        lease: Tick,
        not_after: Tick,
    },
    Extend {
        lease: Tick,
    },
    ForceRelease {
        token: i64,
    },
    Raise {
        floor: i64,
    },
    Refresh,
    /// To the client's next owner. With `first`, waiters go first.
    Transfer {
        lease: Tick,
        not_after: Tick,
        first: bool,
        token: i64,
    },
    /// By the owner after the one that made the ticket.
    Resume {
        lease: Tick,
        not_after: Tick,
        token: i64,
    },
    /// Without `owned`, the client only leaves the queue. With `successor`, the client's next owner
    /// may have the lock. Without `waits`, the client has no place in the queue. The token is 0 if
    /// the client does not know it.
    Release {
        unanswered: Option<Tick>,
        owned: bool,
        successor: bool,
        waits: bool,
        token: i64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Busy { now: Tick },
    Granted { now: Tick, lease: Tick, token: i64 },
    Late,
    Extended { lease: Tick },
    Gone,
    Raised { token: i64 },
    Yielded,
    Refreshed { now: Tick, waits: bool },
    Released { last: bool },
    Refused,
}

/// A hand-over, as its new owner receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) token: i64,
    pub(crate) now: Tick,
    pub(crate) window: Tick,
}

/// The state of the lock in the store, in clients and ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) owner: Option<usize>,
    /// The same holder by its number among all owners, as in [`who`].
    pub(crate) holder: Option<usize>,
    pub(crate) until: Option<Tick>,
    /// The last token: the counter.
    pub(crate) token: i64,
    /// The token in the lock.
    pub(crate) granted: Option<i64>,
    /// The counter lapses, although it must not.
    pub(crate) counter_lapses: bool,
    /// In the order of their places, including those that are set aside.
    pub(crate) queue: Vec<usize>,
    pub(crate) aside: Vec<usize>,
    /// Until when each waiter counts as alive.
    pub(crate) live: Vec<(usize, Tick)>,
    /// The permits, in the counted family.
    pub(crate) permits: permits::View,
}

/// The surroundings of a call: when it runs, which clients count as listeners, and whether the
/// server is out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    pub(crate) now: Tick,
    pub(crate) heard: u8,
    pub(crate) full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoreId(u32);

pub(crate) type Done = (StoreId, Answer, Option<(usize, Message)>);

/// The scripts, and every store that they ever left.
pub(crate) struct Redis {
    scripts: Scripts,
    names: Vec<[Text; 2]>,
    keys: Rc<[Text]>,
    rules: Rules,
    stores: Vec<(Rc<Store>, Rc<View>)>,
    ids: HashMap<Rc<Store>, StoreId>,
    known: HashMap<(StoreId, usize, Call, Moment), Done>,
    pub(crate) runs: usize,
}

impl Redis {
    pub(crate) fn new(rules: &Rules, edits: &[Edit]) -> Self {
        let names = (0..CLIENTS * usize::from(OWNERS)).map(|who| {
            let client = who % CLIENTS;
            let label = if client == 0 { ":a label" } else { "" };
            let owner = format!("{:032x}{label}", who + 1);
            let polls = rules.pushes == Pushes::NotToTheFirst && client == 0;
            let told = if polls { "-".to_owned() } else { client.to_string() };
            let count = rules
                .permits
                .map_or(String::new(), |permits| format!("{}:", permits.counts[client]));
            let waiter = format!("{told}:{}:{count}{owner}", i64::from(rules.window) * TICK);
            [owner.into(), waiter.into()]
        });
        let hurry = Edit { script: "hand_over", from: "local looks = 500", to: "local looks = 1" };
        let edits = if rules.hurried { &[edits, &[hurry]].concat()[..] } else { edits };
        let (sources, keys) = match rules.permits {
            None => (sources::exclusive(), &["lock", "counter", "queue", "live"][..]),
            Some(_) => (sources::counted(), &["counter", "queue", "live", "holders", "grants"][..]),
        };
        let sources = sources.into_iter().map(|(name, text)| (name, Edit::all(edits, name, &text)));
        Self {
            scripts: Scripts::new(sources),
            names: names.collect(),
            keys: keys.iter().map(|key| Text::from(*key)).collect(),
            rules: *rules,
            stores: Vec::new(),
            ids: HashMap::new(),
            known: HashMap::new(),
            runs: 0,
        }
    }

    pub(crate) fn empty(&mut self) -> StoreId {
        self.intern(Rc::default())
    }

    pub(crate) fn view(&self, id: StoreId) -> Rc<View> {
        self.stores[at(id)].1.clone()
    }

    /// The store without the keys that have lapsed by this time.
    pub(crate) fn prune(&mut self, id: StoreId, now: Tick) -> StoreId {
        let mut store = (*self.stores[at(id)].0).clone();
        store.prune(ms(now));
        self.intern(Rc::new(store))
    }

    /// Runs a call by this owner: see [`who`].
    pub(crate) fn run(&mut self, id: StoreId, who: usize, call: Call, moment: Moment) -> Done {
        let key = (id, who, call, moment);
        if let Some(done) = self.known.get(&key) {
            return *done;
        }
        let id = if self.rules.batched {
            match self.run_batch(id, who, call, moment) {
                Ok(done) => {
                    self.known.insert(key, done);
                    return done;
                }
                Err(id) => id,
            }
        } else {
            id
        };
        let run = self.arguments(who, call, moment);
        let Outcome { store, answer, published } = self.scripts.run(&self.stores[at(id)].0, &run);
        self.runs += 1;
        let answer = answer.map_or(Answer::Refused, |raw| read(call, &raw));
        let heard = published.into_iter().find(|(channel, _)| run.heard.contains(channel));
        let told = heard.map(|(channel, message)| {
            let client: usize = channel[CHANNELS.len()..].parse().expect("a client");
            let words: Vec<&str> = message.split(' ').collect();
            assert_eq!(words[0], &self.names[client][0][..32], "told to the wrong client");
            let number = |at: usize| words[at].parse::<i64>().expect("a number");
            (
                client,
                Message { token: number(1), now: tick(number(2) / 1000), window: ticks(number(3)) },
            )
        });
        let done = (self.intern(store), answer, told);
        self.known.insert(key, done);
        done
    }

    /// Runs a call as a batch of one. It is an error if the call is left over, or fits into no batch.
    fn run_batch(
        &mut self,
        id: StoreId,
        who: usize,
        call: Call,
        moment: Moment,
    ) -> Result<Done, StoreId> {
        let owner = self.names[who][0].clone();
        let text = |number: i64| Text::from(number.to_string());
        let args = match call {
            Call::Acquire { lease, not_after } => {
                let not_after = text(ms(not_after) * 1000);
                let asked = ["0".into(), owner, text(i64::from(lease) * TICK), not_after];
                asked.into_iter().chain(self.permits(who)).collect()
            }
            Call::Release {
                unanswered: None,
                owned: true,
                successor: false,
                waits: false,
                token: token @ 1..,
            } => {
                let grant = match self.rules.permits {
                    None => format!("{token}:{owner}").into(),
                    Some(_) => owner,
                };
                vec!["1".into(), grant]
            }
            _ => return Err(id),
        };
        let keys = match &*self.keys {
            [lock, counter, queue, _] => [counter, lock, queue].map(Text::clone).into(),
            [counter, queue, _, holders, grants] => {
                [counter, queue, holders, grants].map(Text::clone).into()
            }
            _ => panic!("four or five keys"),
        };
        let run = Run {
            script: "batch",
            keys,
            args,
            now: ms(moment.now),
            full: moment.full,
            denied: false,
            forbidden: "",
            heard: Vec::new(),
        };
        let Outcome { store, answer, .. } = self.scripts.run(&self.stores[at(id)].0, &run);
        self.runs += 1;
        let Ok(Raw::List(answers)) = answer else { return Err(id) };
        let [Raw::Int(now), Raw::Int(number)] = answers[..] else { panic!("{answers:?}") };
        let answer = match call {
            _ if number <= 0 => {
                let left = self.intern(store);
                // A release may remove what is left of permits whose leases are over.
                let removes = matches!(call, Call::Release { .. })
                    && self.view(id).permits.tokens(moment.now).is_empty();
                assert!(left == id || removes, "a call that was left over did something");
                return Err(left);
            }
            Call::Acquire { lease, .. } => {
                Answer::Granted { now: tick(now / 1000), lease, token: number }
            }
            _ => Answer::Released { last: true },
        };
        Ok((self.intern(store), answer, None))
    }

    /// The count and the limit of an owner that wants permits.
    fn permits(&self, who: usize) -> impl Iterator<Item = Text> + use<> {
        let numbers = |Permits { counts, limit }: Permits| [counts[who % CLIENTS], limit];
        let numbers = self.rules.permits.map(numbers).into_iter().flatten();
        numbers.map(|number| number.to_string().into())
    }

    fn arguments(&self, who: usize, call: Call, moment: Moment) -> Run {
        let [owner, waiter] = self.names[who].clone();
        let next = || self.names[who + CLIENTS][0].clone();
        let text = |number: i64| Text::from(number.to_string());
        let lease = |lease: Tick| text(i64::from(lease) * TICK);
        let until = |at: Tick| text(ms(at) * 1000);
        let liveness = lease(2 * self.rules.window);
        let [publish, channels] = ["PUBLISH", CHANNELS].map(Text::from);
        let (script, args) = match call {
            Call::Acquire { lease: ttl, not_after } => {
                let asked =
                    [lease(ttl), until(not_after), waiter, "1".into(), liveness, publish, channels];
                let args = [owner].into_iter().chain(asked).chain(self.permits(who));
                ("acquire", args.collect())
            }
            Call::Extend { lease: ttl } => ("extend", vec![owner, lease(ttl)]),
            Call::ForceRelease { token } => ("force_release", vec![text(token), publish, channels]),
            Call::Raise { floor } => ("raise_token", vec![owner, text(floor)]),
            Call::Transfer { lease: ttl, not_after, first, token } => {
                let first = text(i64::from(first));
                let asked = [lease(ttl), until(not_after), first, publish, channels, text(token)];
                ("transfer", [&[owner, next()][..], &asked].concat())
            }
            Call::Resume { lease: ttl, not_after, token } => {
                let former = Text::from(&self.names[who - CLIENTS][0][..32]);
                let args = [owner, lease(ttl), until(not_after), former, text(token)];
                ("resume", args.into_iter().chain(self.permits(who)).collect())
            }
            Call::Refresh => ("refresh", vec![publish, channels, "1".into(), waiter, liveness]),
            Call::Release { unanswered, owned, successor, waits, token } => {
                let unanswered = unanswered.map_or("0".into(), until);
                let owner = if owned { owner } else { "nobody".into() };
                let token = if token == 0 { String::new() } else { token.to_string() };
                let value = match self.rules.permits {
                    None => format!("{token}:{owner}").into(),
                    Some(_) => owner,
                };
                let waiter = if waits { waiter } else { "".into() };
                let mut args = vec![value, waiter, unanswered, publish, channels];
                args.extend(successor.then(next));
                ("release", args)
            }
        };
        let keys = match script {
            _ if self.rules.permits.is_some() => self.keys.clone(),
            "extend" => self.keys[..1].into(),
            "raise_token" => self.keys[..2].into(),
            _ => self.keys.clone(),
        };
        let heard = (0..CLIENTS).filter(|client| moment.heard & 1 << client != 0);
        let heard = heard.map(|client| format!("{CHANNELS}{client}").into()).collect();
        Run {
            script,
            keys,
            args,
            now: ms(moment.now),
            full: moment.full,
            denied: self.rules.pushes == Pushes::Denied,
            forbidden: "",
            heard,
        }
    }

    fn intern(&mut self, store: Rc<Store>) -> StoreId {
        if let Some(id) = self.ids.get(&store) {
            return *id;
        }
        let id = StoreId(u32::try_from(self.stores.len()).expect("fewer stores"));
        let view = Rc::new(self.look(&store));
        self.stores.push((store.clone(), view));
        self.ids.insert(store, id);
        id
    }

    fn look(&self, store: &Store) -> View {
        let find =
            |which: usize, text: &str| self.names.iter().position(|names| &*names[which] == text);
        let lock = store.string("lock").and_then(|lock| lock.split_once(':'));
        let mut queue: Vec<_> = (store.members("queue").iter())
            .filter_map(|(place, waiter)| Some((place % ASIDE, find(1, waiter)?, *place >= ASIDE)))
            .collect();
        queue.sort_unstable();
        View {
            owner: lock.map(|(_, owner)| find(0, owner).expect("an owner") % CLIENTS),
            holder: lock.and_then(|(_, owner)| find(0, owner)),
            until: store.until("lock").map(tick),
            token: store.string("counter").map_or(0, |token| token.parse().expect("a token")),
            granted: lock.map(|(token, _)| token.parse().expect("a token")),
            counter_lapses: store.until("counter").is_some(),
            queue: queue.iter().map(|&(_, waiter, _)| waiter).collect(),
            aside: queue
                .iter()
                .filter(|(.., aside)| *aside)
                .map(|&(_, waiter, _)| waiter)
                .collect(),
            live: (store.members("live").iter())
                .filter_map(|(dies, waiter)| Some((find(1, waiter)?, tick(dies / 1000))))
                .collect(),
            permits: permits::View::read(store, |owner| find(0, owner)),
        }
    }
}

/// The number of a client's owner among all owners.
pub(crate) fn who(client: usize, owner: u8) -> usize {
    client + CLIENTS * usize::from(owner)
}

fn read(call: Call, raw: &Raw) -> Answer {
    let items = |raw: &Raw| match raw {
        Raw::List(items) => items.clone(),
        number => vec![number.clone()],
    };
    let all = items(raw);
    let last = items(items(raw).last().expect("an answer"));
    let number = |items: &[Raw], at: usize| match items[at] {
        Raw::Int(number) => number,
        ref other => panic!("{call:?} answered {other:?}"),
    };
    let first = number(&all, 0);
    let now = |at| tick(number(&all, at) / 1000);
    match (call, first) {
        (Call::Acquire { .. } | Call::Resume { .. }, 0) => Answer::Busy { now: now(1) },
        (Call::Acquire { lease, .. } | Call::Transfer { lease, .. }, token)
            if matches!(raw, Raw::Int(_)) =>
        {
            Answer::Granted { now: tick(token / 1000), lease, token }
        }
        (Call::Acquire { .. } | Call::Resume { .. }, 1) => {
            Answer::Granted { now: now(1), lease: ticks(number(&all, 2)), token: number(&all, 3) }
        }
        (Call::Acquire { .. } | Call::Resume { .. }, 2) => Answer::Late,
        (Call::Extend { .. }, -2 | -1) | (Call::Raise { .. }, -1) | (Call::Transfer { .. }, 0) => {
            Answer::Gone
        }
        (Call::Raise { .. }, token) => Answer::Raised { token },
        (Call::Transfer { .. }, 1) => {
            Answer::Granted { now: now(1), lease: ticks(number(&all, 2)), token: number(&all, 3) }
        }
        (Call::Transfer { .. }, 2) => Answer::Late,
        (Call::Transfer { .. }, 4) => Answer::Yielded,
        (Call::Extend { .. }, lease) => Answer::Extended { lease: ticks(lease) },
        (Call::Refresh, _) => Answer::Refreshed { now: now(0), waits: number(&last, 1) == 1 },
        (Call::Release { .. } | Call::ForceRelease { .. }, code) => {
            Answer::Released { last: code != -1 }
        }
        _ => panic!("{call:?} answered {raw:?}"),
    }
}

fn at(StoreId(id): StoreId) -> usize {
    usize::try_from(id).expect("32 bits")
}

fn ms(at: Tick) -> i64 {
    START + i64::from(at) * TICK
}

pub(crate) fn tick(ms: i64) -> Tick {
    ticks(ms - START)
}

fn ticks(ms: i64) -> Tick {
    Tick::try_from(ms.div_euclid(TICK)).expect("within the model's time")
}
