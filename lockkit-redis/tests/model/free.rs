//! Compares the scripts for permits with the same scripts without their first part, which serves
//! what is free. A batch of one request must do what the first part does.

use crate::{
    fake::{Reply, Server, Store, Text},
    lua::{Outcome, Run, Scripts},
    mutants::{Edit, Mutant, first_parts, permit_batches},
    search::Dice,
    sources,
};

const STATES: usize = 40_000;
const NOW: i64 = 1_700_000_000_000;
/// A time of a machine without a clock: its seconds have other digits than those of a token.
const LONG_AGO: i64 = 5_400_000;
const LIMIT: i64 = 4;
/// A token from an hour earlier.
const BEFORE: &str = "1699996400000000";
/// A key of another type.
const STRANGE: &str = "strange";
const US: &str = "us";
const WAITER: &str = "-:500:1:us";

/// A grant before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    No,
    Live,
    Lapsed,
}

/// The damage to the keys before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    HoldersGone,
    GrantsGone,
    /// Our owner has a grant, and is no holder.
    WeAreNoHolder,
    /// Holders of which no permit is used, as after an eviction of their grants.
    StaleHolders,
    StrangeHolders,
    StrangeGrants,
}

/// The keys before the call.
#[derive(Clone, Copy, Debug)]
struct Before {
    now: i64,
    /// Our owner and two others, which have 1, 1 and 2 permits.
    held: [Held; 3],
    wrong: Wrong,
    /// When the keys lapse, in ms.
    until: Option<i64>,
    queue: &'static str,
    /// Our owner is among the live waiters.
    live: bool,
    counter: &'static str,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    acquires: bool,
    full: bool,
    /// The user may not write the counter.
    forbidden: bool,
    lease: i64,
    count: i64,
    limit: i64,
    in_time: bool,
    /// The release names a waiter, or the attempt waits.
    waits: bool,
    /// Until when an earlier request may arrive.
    unanswered: &'static str,
}

fn choose<T: Copy>(dice: &mut Dice, of: &[T]) -> T {
    of[dice.below(of.len())]
}

impl Before {
    fn any(dice: &mut Dice) -> Self {
        let held = [Held::No, Held::No, Held::Live, Held::Live, Held::Lapsed];
        let plain = dice.below(2) == 0;
        let wrong = [
            Wrong::HoldersGone,
            Wrong::GrantsGone,
            Wrong::WeAreNoHolder,
            Wrong::StaleHolders,
            Wrong::StrangeHolders,
            Wrong::StrangeGrants,
        ];
        let counters = [
            "",
            "17",
            BEFORE,
            "1900000000000000",
            "10000000000000000",
            "09007199254740000",
            "lockkit/2 9",
            "9007199254740991",
            STRANGE,
        ];
        Self {
            now: if dice.below(8) == 0 { LONG_AGO } else { NOW },
            held: [(); 3].map(|()| choose(dice, &held)),
            wrong: if plain { Wrong::Nothing } else { choose(dice, &wrong) },
            until: choose(dice, &[Some(900), Some(900), Some(5000), None]),
            queue: if plain { "" } else { choose(dice, &["", "", "there", STRANGE]) },
            live: dice.below(4) == 0,
            counter: if plain { choose(dice, &["", BEFORE]) } else { choose(dice, &counters) },
        }
    }

    fn store(&self) -> Store {
        let mut server = Server { now: self.now, ..Server::default() };
        let mut run = |words: &[&str]| {
            let words: Vec<Text> = words.iter().map(|word| Text::from(*word)).collect();
            server.run(&words).expect("a write");
        };
        match self.counter {
            "" => {}
            STRANGE => run(&["ZADD", "counter", "1", "member"]),
            counter => run(&["SET", "counter", counter]),
        }
        match self.queue {
            "" => {}
            STRANGE => run(&["SET", "queue", "x"]),
            _ => run(&["ZADD", "queue", "1", "-:500:1:waiter"]),
        }
        if self.live {
            run(&["ZADD", "live", "1", WAITER]);
        }
        let mut used = 0;
        for (at, held) in self.held.iter().enumerate() {
            let (owner, count) = [(US, 1), ("another", 1), ("a third", 2)][at];
            if *held == Held::No {
                continue;
            }
            used += count;
            let deadline = self.now + if *held == Held::Live { 800 } else { -100 };
            if self.wrong != Wrong::WeAreNoHolder || owner != US {
                run(&["ZADD", "holders", &(deadline * 1000).to_string(), owner]);
            }
            run(&["HSET", "grants", owner, &format!("{count}:{}", 5 + at)]);
        }
        if used > 0 || self.queue == "there" {
            let (used, limit) = (used.to_string(), LIMIT.to_string());
            run(&["HSET", "grants", "used", &used, "limit", &limit]);
        }
        if let Some(until) = self.until {
            run(&["PEXPIRE", "holders", &until.to_string()]);
            run(&["PEXPIRE", "grants", &until.to_string()]);
        }
        match self.wrong {
            Wrong::Nothing | Wrong::WeAreNoHolder => {}
            Wrong::HoldersGone => run(&["DEL", "holders"]),
            Wrong::GrantsGone => run(&["DEL", "grants"]),
            Wrong::StaleHolders => {
                run(&["DEL", "grants"]);
                run(&["HSET", "grants", "used", "0", "limit", &LIMIT.to_string()]);
                run(&["PEXPIRE", "grants", "900"]);
                run(&["ZADD", "holders", &((self.now + 9000) * 1000).to_string(), "evicted"]);
                run(&["PEXPIRE", "holders", "9000"]);
            }
            Wrong::StrangeHolders => run(&["SET", "holders", "x"]),
            Wrong::StrangeGrants => run(&["SET", "grants", "x"]),
        }
        server.store
    }

    /// True if the first part must do all.
    fn is_free_for(&self, call: &Call) -> bool {
        let [us, ref others @ ..] = self.held;
        let plain = self.wrong == Wrong::Nothing
            && self.queue.is_empty()
            && self.now == NOW
            && !self.held.contains(&Held::Lapsed);
        let used = [1, 2].iter().zip(others).filter(|(_, held)| **held == Held::Live);
        let used: i64 = used.map(|(count, _)| count).sum();
        let fits = used == 0 || call.limit == LIMIT;
        plain
            && if call.acquires {
                us == Held::No
                    && ["", BEFORE].contains(&self.counter)
                    && call.in_time
                    && fits
                    && used + call.count <= call.limit
                    && !call.full
                    && !call.forbidden
            } else {
                us == Held::Live && !call.waits && call.unanswered == "0"
            }
    }
}

impl Call {
    fn any(dice: &mut Dice) -> Self {
        Self {
            acquires: dice.below(2) == 0,
            full: dice.below(8) == 0,
            forbidden: dice.below(8) == 0,
            lease: choose(dice, &[700, 6000]),
            count: choose(dice, &[1, 1, 2, 4, 5]),
            limit: choose(dice, &[LIMIT, LIMIT, 5]),
            in_time: dice.below(8) > 0,
            waits: dice.below(4) == 0,
            unanswered: choose(dice, &["0", "0", "1", "1800000000000000"]),
        }
    }

    fn run(
        &self,
        scripts: &Scripts,
        script: &'static str,
        before: &Before,
        store: &Store,
    ) -> Outcome {
        let until = if self.in_time { "1800000000000000" } else { "1" };
        let [lease, count, limit] =
            [self.lease, self.count, self.limit].map(|number| number.to_string());
        let wait = i64::from(self.waits).to_string();
        let waiter = if self.waits { WAITER } else { "" };
        let args = if self.acquires {
            vec![US, &lease, until, WAITER, &wait, "1000", "PUBLISH", "wake:", &count, &limit]
        } else {
            vec![US, waiter, self.unanswered, "PUBLISH", "wake:"]
        };
        let keys = &["counter", "queue", "live", "holders", "grants"];
        scripts.run(store, &self.input(before, script, keys, &args))
    }

    /// Runs a batch of this call alone. Returns `None` if such a call is in no batch.
    fn run_batch(&self, scripts: &Scripts, before: &Before, store: &Store) -> Option<Outcome> {
        let until = if self.in_time { "1800000000000000" } else { "1" };
        let [lease, count, limit] =
            [self.lease, self.count, self.limit].map(|number| number.to_string());
        let args = if self.acquires {
            vec!["0", US, &lease, until, &count, &limit]
        } else if self.waits || self.unanswered != "0" {
            return None;
        } else {
            vec!["1", US]
        };
        let keys = &["counter", "queue", "holders", "grants"];
        Some(scripts.run(store, &self.input(before, "batch", keys, &args)))
    }

    fn input(&self, before: &Before, script: &'static str, keys: &[&str], args: &[&str]) -> Run {
        let texts = |words: &[&str]| words.iter().map(|word| Text::from(*word)).collect::<Vec<_>>();
        Run {
            script,
            keys: texts(keys).into(),
            args: texts(args),
            now: before.now,
            full: self.full,
            denied: false,
            forbidden: if self.forbidden { "SET" } else { "" },
            heard: Vec::new(),
        }
    }
}

/// Returns the first difference, if there is one, and how often the first parts did all.
fn compare(edits: &[Edit]) -> (Option<String>, usize) {
    let names = ["acquire", "release", "batch"];
    let all = sources::counted().into_iter().filter(|(name, _)| names.contains(name));
    let all = all.map(|(name, text)| (name, Edit::all(edits, name, &text)));
    let firsts = sources::counted_first_parts();
    let firsts = firsts.map(|(of, name, text)| (name, Edit::all(edits, of, &text)));
    let rests = sources::counted_without_first_parts();
    let scripts = Scripts::new(all.chain(rests).chain(firsts));
    let mut dice = Dice(11);
    let mut quick = 0;
    for _ in 0..STATES {
        let (before, call) = (Before::any(&mut dice), Call::any(&mut dice));
        let store = before.store();
        let [name, first, rest] = if call.acquires {
            ["acquire", "acquire_first", "acquire_rest"]
        } else {
            ["release", "release_first", "release_rest"]
        };
        let whole = call.run(&scripts, name, &before, &store);
        let first = call.run(&scripts, first, &before, &store);
        let rest = call.run(&scripts, rest, &before, &store);
        let is_quick =
            matches!(first.answer, Ok(Reply::Int(number)) if number != sources::LEFT_OVER);
        quick += usize::from(is_quick);
        let batch = call.run_batch(&scripts, &before, &store);
        let broken = differ(&call, &store, whole, rest)
            .or(batch.and_then(|batch| batch_differs(&before, batch, &first, is_quick)))
            .or((before.is_free_for(&call) && !is_quick).then_some("the first part does nothing"));
        if let Some(broken) = broken {
            return (Some(format!("{broken}: {before:?}, {call:?}")), quick);
        }
    }
    (None, quick)
}

fn differ(call: &Call, before: &Store, whole: Outcome, rest: Outcome) -> Option<&'static str> {
    let answer = match (whole.answer, rest.answer) {
        (Err(_), Err(_)) => {
            let did = *whole.store != *rest.store && *whole.store != *before;
            return did.then_some("a refused script did something");
        }
        (Ok(Reply::Int(token)), Ok(answer)) if call.acquires => {
            let granted = [1, token, call.lease, token].map(Reply::Int);
            Reply::List(granted.into()) == answer
        }
        (Ok(whole), Ok(rest)) => whole == rest,
        _ => false,
    };
    if !answer {
        return Some("the answers differ");
    }
    // The first part ends the grants with the last lease, although a queue may have kept them for
    // longer.
    let until = |store: &Store| ["holders", "grants"].map(|key| store.until(key));
    let [holders, grants] = until(&whole.store);
    let kept = until(&rest.store);
    if holders != kept[0] || grants != kept[1] && (grants < holders || grants > kept[1]) {
        return Some("the expiries differ");
    }
    let content = |store: &Store| store.with_expiry("grants", None);
    (content(&whole.store) != content(&rest.store)).then_some("the contents differ")
}

/// Compares a batch of one with the first part.
fn batch_differs(
    before: &Before,
    batch: Outcome,
    first: &Outcome,
    is_quick: bool,
) -> Option<&'static str> {
    if batch.store != first.store {
        return Some("a batch of one does something else");
    }
    let Ok(Reply::List(answers)) = batch.answer else {
        return (before.counter != STRANGE).then_some("a batch of one is refused");
    };
    let done = match first.answer {
        Ok(Reply::Int(number)) if is_quick => number,
        Ok(_) => 0,
        Err(_) => -1,
    };
    (answers.get(1) != Some(&Reply::Int(done))).then_some("a batch of one has another answer")
}

#[test]
fn c1_c4_c5_c12_the_first_parts_do_what_the_rest_does_or_nothing() {
    let (difference, quick) = compare(&[]);
    println!("{quick} of {STATES}");
    assert_eq!(difference, None);
    assert!(quick > STATES / 40, "only {quick} calls were quick");
}

#[test]
fn every_mutant_of_the_first_parts_differs() {
    let all = first_parts().into_iter().chain(permit_batches());
    let missed = all.filter_map(|Mutant { name, edits, .. }| {
        let (difference, _) = compare(&edits);
        println!("{name}: {difference:?}");
        difference.is_none().then_some(name)
    });
    let missed: Vec<_> = missed.collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
