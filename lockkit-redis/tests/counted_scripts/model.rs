//! Compares the scripts with a model, step by step, at random.
//!
//! The model knows the exact answers of these scripts, which no other store has. A waiter must take
//! over a hand-over within a window. A waiter is set aside if no client hears for it. Tokens follow
//! the server's clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Range, RangeFrom},
    thread,
};

use crate::support::{Answer, Claim, EVERYTHING, Holder, LIVENESS, NEVER, Store, WINDOW};

const STEPS: u64 = 2_500;

/// The expected state of a name, by the rules alone.
#[derive(Debug, Default)]
struct Model {
    now: u64,
    limit: Option<u64>,
    last_token: u64,
    holders: BTreeMap<String, Holder>,
    queue: Vec<Claim>,
    /// Owners in the queue whose client had no connection when their turn came.
    aside: BTreeSet<String>,
    /// Until when each waiter counts as alive.
    live: BTreeMap<String, u64>,
    told: Vec<String>,
}

impl Model {
    fn used(&self) -> u64 {
        self.holders.values().map(|holder| holder.count).sum()
    }

    fn give(&mut self, claim: &Claim, lease: u64) -> u64 {
        self.last_token = self.now.max(self.last_token + 1);
        let owner = claim.owner.clone();
        let deadline = self.now + lease * 1000;
        let holder =
            Holder { owner: owner.clone(), deadline, count: claim.count, token: self.last_token };
        assert!(self.holders.insert(owner, holder).is_none());
        self.last_token
    }

    fn lapse(&mut self) {
        self.holders.retain(|_, holder| holder.deadline > self.now);
    }

    fn forget(&mut self, claim: &Claim) {
        self.queue.retain(|other| other.owner != claim.owner);
        self.aside.remove(&claim.owner);
        self.live.remove(&claim.waiter());
    }

    /// True if the claim is in the queue. Then it is not set aside any more, and is kept alive if
    /// it waits.
    fn asks(&mut self, claim: &Claim) -> bool {
        let queued = self.queue.iter().any(|other| other.owner == claim.owner);
        self.aside.remove(&claim.owner);
        if queued && claim.wait == 1 {
            self.live.insert(claim.waiter(), self.now + LIVENESS * 1000);
        }
        queued
    }

    /// Returns whether a live waiter that hears stays first, and which claims were served.
    fn serve(&mut self, asking: &[&Claim]) -> (bool, Vec<String>) {
        let now = self.now;
        let limit = self.limit.unwrap();
        let asks = |claim: &Claim| asking.iter().any(|other| other.owner == claim.owner);
        let mut served = Vec::new();
        for claim in self.queue.clone() {
            if self.used() >= limit {
                return (true, served);
            }
            if self.aside.contains(&claim.owner) {
                continue;
            }
            if claim.client == "nobody" && !asks(&claim) {
                self.aside.insert(claim.owner);
            } else if self.live[&claim.waiter()] < now {
                self.forget(&claim);
            } else if self.used() + claim.count > limit {
                return (true, served);
            } else {
                let token = self.give(&claim, WINDOW);
                if claim.client == "a" && !asks(&claim) {
                    self.told.push(format!("{} {token} {now} {WINDOW}", claim.id()));
                }
                self.forget(&claim);
                served.push(claim.owner);
            }
        }
        (self.used() >= limit, served)
    }

    fn settle(&mut self) {
        if self.holders.is_empty() && self.queue.is_empty() {
            self.limit = None;
        }
    }

    fn acquire(&mut self, claim: &Claim, lease: u64, wanted: u64) -> Answer {
        self.lapse();
        self.settle();
        let mut stopped = false;
        let mut waited = false;
        if !self.holders.contains_key(&claim.owner) {
            waited = self.asks(claim);
            self.limit.get_or_insert(wanted);
            (stopped, _) = self.serve(&[claim]);
            self.settle();
        }
        if let Some(holder) = self.holders.get_mut(&claim.owner) {
            holder.deadline = holder.deadline.max(self.now + lease * 1000);
            return Answer::Granted {
                lease: (holder.deadline - self.now) / 1000,
                token: holder.token,
            };
        }
        let limit = *self.limit.get_or_insert(wanted);
        if limit != wanted {
            return Answer::Limit(limit);
        }
        if !stopped && self.used() + claim.count <= limit {
            return Answer::Granted { lease, token: self.give(claim, lease) };
        }
        if claim.wait == 1 && !waited {
            self.queue.push(claim.clone());
            self.live.insert(claim.waiter(), self.now + LIVENESS * 1000);
            self.forget_lapsed();
        }
        self.settle();
        Answer::Busy { lapse: self.first_lapse() }
    }

    fn first_lapse(&self) -> i64 {
        let first = self.holders.values().map(|holder| holder.deadline).min();
        first.map_or(-1, |deadline| i64::try_from((deadline - self.now).div_ceil(1000)).unwrap())
    }

    fn release(&mut self, claim: &Claim) -> i64 {
        self.lapse();
        self.forget(claim);
        let freed = self.holders.remove(&claim.owner).is_some();
        self.serve_and_settle(&[]);
        i64::from(freed)
    }

    fn serve_and_settle(&mut self, asking: &[&Claim]) -> Vec<String> {
        let served = if self.limit.is_some() { self.serve(asking).1 } else { Vec::new() };
        self.settle();
        served
    }

    fn forget_lapsed(&mut self) {
        let lapsed = |claim: &Claim, model: &Self| model.live[&claim.waiter()] < model.now;
        for claim in
            self.queue.clone().into_iter().filter(|claim| lapsed(claim, self)).collect::<Vec<_>>()
        {
            self.forget(&claim);
        }
    }

    fn refresh(&mut self, claims: &[&Claim]) -> (i64, Vec<bool>) {
        self.lapse();
        let waits: Vec<_> = claims.iter().map(|claim| self.asks(claim)).collect();
        self.forget_lapsed();
        let served = self.serve_and_settle(claims);
        let waits = waits
            .into_iter()
            .zip(claims)
            .map(|(waits, claim)| waits && !served.contains(&claim.owner));
        (self.first_lapse(), waits.collect())
    }

    fn extend(&mut self, claim: &Claim, lease: u64) -> i64 {
        match self.holders.get_mut(&claim.owner).filter(|holder| holder.deadline > self.now) {
            None => -1,
            Some(holder) => {
                holder.deadline = holder.deadline.max(self.now + lease * 1000);
                i64::try_from((holder.deadline - self.now) / 1000).unwrap()
            }
        }
    }

    fn force_release(&mut self, token: u64) -> i64 {
        self.lapse();
        let before = self.holders.len();
        self.holders.retain(|_, holder| holder.token != token);
        let freed = before - self.holders.len();
        self.serve_and_settle(&[]);
        i64::try_from(freed).unwrap()
    }
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len().try_into().unwrap())).unwrap()].clone()
    }
}

/// Runs each walk on a server of its own. Those servers take most of the time.
fn walks(seeds: Range<u64>, limit: u64, new_claim: fn(&mut Chance, u64) -> Claim) {
    thread::scope(|scope| {
        for seed in seeds {
            scope.spawn(move || walk(seed, limit, new_claim));
        }
    });
}

/// A walk: the scripts and the model take the same random steps.
struct Walk {
    limit: u64,
    new_claim: fn(&mut Chance, u64) -> Claim,
    store: Store,
    chance: Chance,
    model: Model,
    numbers: RangeFrom<u64>,
    claims: Vec<Claim>,
    /// The owner that was granted each token.
    tokens: BTreeMap<u64, String>,
    busy: u64,
    limits: u64,
}

fn walk(seed: u64, limit: u64, new_claim: fn(&mut Chance, u64) -> Claim) {
    let mut walk = Walk::new(seed, limit, new_claim);
    for step in 0..STEPS {
        let context = walk.step(&format!("seed {seed}, step {step}"));
        walk.check_state(&context);
    }
    walk.release_all();
    println!(
        "seed {seed}: {} tokens, {} busy, {} mismatches",
        walk.tokens.len(),
        walk.busy,
        walk.limits
    );
    assert!(walk.tokens.len() > 100 && walk.busy > 100, "the walk went nowhere");
}

impl Walk {
    fn new(seed: u64, limit: u64, new_claim: fn(&mut Chance, u64) -> Claim) -> Self {
        let mut walk = Self {
            limit,
            new_claim,
            store: Store::new(limit),
            chance: Chance(seed),
            model: Model::default(),
            numbers: 1..,
            claims: Vec::new(),
            tokens: BTreeMap::new(),
            busy: 0,
            limits: 0,
        };
        walk.claims = (0..7).map(|_| walk.next_claim()).collect();
        walk
    }

    fn next_claim(&mut self) -> Claim {
        (self.new_claim)(&mut self.chance, self.numbers.next().unwrap())
    }

    /// Runs one script, and compares its answer with the model's. Returns what was done, for the
    /// messages of the checks that follow.
    fn step(&mut self, which: &str) -> String {
        self.store.advance_micros(1 + self.chance.below(2) * self.chance.below(300_000));
        self.model.now = self.store.now;
        let at = usize::try_from(self.chance.below(7)).unwrap();
        let claim = self.claims[at].clone();
        let lease = self.chance.one_of(&[1, 200, 700, 5000]);
        let context = format!("{which}, {claim:?}, lease {lease}, before: {:?}", self.model);
        match self.chance.below(12) {
            0..=5 => self.acquire(claim, lease, &context),
            6 | 7 => {
                assert_eq!(
                    self.store.release(&claim),
                    self.model.release(&claim),
                    "release; {context}"
                );
                self.claims[at] = self.next_claim();
            }
            8 => assert_eq!(
                self.store.extend(&claim, lease),
                self.model.extend(&claim, lease),
                "extend; {context}"
            ),
            9 => self.force_release(&context),
            _ => self.refresh(&context),
        }
        context
    }

    fn acquire(&mut self, claim: Claim, lease: u64, context: &str) {
        let wanted = if self.chance.below(20) == 0 { self.limit + 1 } else { self.limit };
        let claim = if self.chance.below(4) == 0 { claim.impatient() } else { claim };
        let answer = self.store.acquire_with(&claim, lease, NEVER, wanted);
        let expected = self.model.acquire(&claim, lease, wanted);
        assert_eq!(answer, expected, "acquire {wanted}; {context}");
        self.busy += u64::from(answer.is_busy());
        self.limits += u64::from(matches!(answer, Answer::Limit(_)));
    }

    fn force_release(&mut self, context: &str) {
        let held = self.model.holders.values().next().map_or(1, |h| h.token);
        let token = self.chance.one_of(&[held, 1]);
        assert_eq!(
            self.store.force_release(token),
            self.model.force_release(token),
            "force; {context}"
        );
    }

    fn refresh(&mut self, context: &str) {
        let client = self.chance.one_of(&["a", "nobody", "-"]);
        let asking: Vec<_> = self.claims.iter().filter(|claim| claim.client == client).collect();
        assert_eq!(
            self.store.refresh(&asking),
            self.model.refresh(&asking),
            "refresh {client}; {context}"
        );
    }

    /// Compares what the store keeps, and the messages that it has sent, with the model.
    fn check_state(&mut self, context: &str) {
        let view = self.store.inspect();
        let mut holders = view.holders;
        holders.sort();
        let model = &self.model;
        let live: Vec<_> =
            model.holders.values().filter(|h| h.deadline > model.now).cloned().collect();
        assert_eq!(holders, live, "{context}");
        assert_eq!(view.used, live.iter().map(|holder| holder.count).sum::<u64>());
        assert!(view.limit.is_none_or(|limit| view.used <= limit), "{context}");
        let alive = model.live.values().filter(|&&dead_at| dead_at >= model.now).count();
        assert_eq!(view.waiters, u64::try_from(alive).unwrap(), "{context}");
        let (used, sum) = self.store.used();
        assert_eq!((used, sum), (model.used(), model.used()), "{context}");
        assert_eq!(view.limit, model.limit, "{context}");
        for holder in holders {
            assert_eq!(
                *self.tokens.entry(holder.token).or_insert(holder.owner.clone()),
                holder.owner,
                "{context}"
            );
        }
        let mut told = (self.store.told(), std::mem::take(&mut self.model.told));
        told.0.sort();
        told.1.sort();
        assert_eq!(told.0, told.1, "{context}");
        self.store.assert_all_lapse();
    }

    fn release_all(&mut self) {
        for claim in &self.claims {
            self.store.advance_micros(1);
            self.model.now = self.store.now;
            assert_eq!(self.store.release(claim), self.model.release(claim));
        }
        self.store.assert_idle();
    }
}

#[test]
fn c1_c4_a_semaphore_agrees_with_its_model() {
    walks(0..4, 5, |chance, number| {
        Claim::new(number, chance.one_of(&[1, 1, 2, 5]))
            .of(chance.one_of(&["a", "a", "nobody", "-"]))
    });
}

#[test]
fn c1_c4_readers_and_writers_agree_with_their_model() {
    walks(10..14, EVERYTHING, |chance, number| {
        let claim =
            chance.one_of(&[Claim::writer(number), Claim::reader(number), Claim::reader(number)]);
        claim.of(chance.one_of(&["a", "a", "nobody", "-"]))
    });
}
