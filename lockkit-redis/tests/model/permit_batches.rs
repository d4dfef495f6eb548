//! Compares a batch for permits with the same requests in batches of one.

use std::{rc::Rc, slice};

use crate::{
    fake::{END_OF_A_SECOND, Reply, Server, Store, Text},
    lua::{Outcome, Run, Scripts},
    mutants::{Edit, Mutant, permit_batches_of_several},
    search::Dice,
    sources,
};

const CASES: usize = 4_000;
const NOW: i64 = 1_700_000_000_000;
const LIMIT: usize = 4;
const OWNERS: [&str; 4] = ["a", "b", "c", "d"];
const NAMES: [&str; 2] = ["x", "y"];

/// A request. Its number is that of the owner, and no two have one owner.
#[derive(Clone, Debug)]
struct Request {
    owner: usize,
    name: &'static str,
    /// `None` for a release.
    count: Option<usize>,
    in_time: bool,
}

impl Request {
    fn any(owner: usize, dice: &mut Dice) -> Self {
        Self {
            owner,
            name: NAMES[dice.below(2)],
            count: [None, Some(1 + dice.below(LIMIT))][dice.below(2)],
            in_time: dice.below(8) > 0,
        }
    }

    /// How long the lease is, in ms. Each owner asks for another one.
    fn lease(&self) -> i64 {
        1_000 * (1 + i64::try_from(self.owner).expect("few"))
    }

    fn args(&self) -> Vec<Text> {
        let owner = OWNERS[self.owner].into();
        let Some(count) = self.count else { return vec![owner] };
        let not_after = if self.in_time { "1800000000000000" } else { "1" };
        let numbers = [count, LIMIT].map(|number| number.to_string().into());
        let asked = [owner, self.lease().to_string().into(), not_after.into()];
        asked.into_iter().chain(numbers).collect()
    }
}

/// A store in which some owners have a permit, and a claim may wait. A key may have a foreign type.
fn any_store(dice: &mut Dice) -> Store {
    let mut server = Server { now: NOW, ..Server::default() };
    let mut run = |words: &[&str]| {
        let words: Vec<Text> = words.iter().map(|word| Text::from(*word)).collect();
        server.run(&words).expect("a write");
    };
    for name in NAMES {
        let [queue, holders, grants] = keys(name);
        let state = dice.below(10);
        if state == 0 {
            run(&["ZADD", &queue, "1", "waiter"]);
        }
        let held: Vec<_> = OWNERS.iter().filter(|_| dice.below(3) == 0).collect();
        for owner in &held {
            run(&["ZADD", &holders, &((NOW + 9_000) * 1000).to_string(), owner]);
            run(&["HSET", &grants, owner, "1:5"]);
        }
        if !held.is_empty() {
            let [used, limit] = [held.len(), LIMIT].map(|number| number.to_string());
            run(&["HSET", &grants, "used", &used, "limit", &limit]);
            run(&["PEXPIRE", &holders, "9000"]);
            run(&["PEXPIRE", &grants, "9000"]);
        }
        if state == 1 {
            run(&["SET", &grants, "foreign"]);
        }
    }
    server.store
}

fn keys(name: &str) -> [String; 3] {
    ["queue", "holders", "grants"].map(|key| format!("{name}:{key}"))
}

/// Runs a batch. Returns the number of each request.
fn run(scripts: &Scripts, store: &Store, now: i64, requests: &[Request]) -> (Rc<Store>, Vec<i64>) {
    let releases = requests.iter().filter(|request| request.count.is_none()).count();
    let names = requests.iter().flat_map(|request| keys(request.name));
    let run = Run {
        script: "batch",
        keys: ["counter".to_owned()].into_iter().chain(names).map(Text::from).collect(),
        args: [releases.to_string().into()]
            .into_iter()
            .chain(requests.iter().flat_map(Request::args))
            .collect(),
        now,
        full: false,
        denied: false,
        forbidden: "",
        heard: Vec::new(),
    };
    let Outcome { store, answer, .. } = scripts.run(store, &run);
    let Ok(Reply::List(answers)) = answer else { return (store, Vec::new()) };
    let numbers = answers.iter().map(|answer| match answer {
        Reply::Int(number) => *number,
        other => panic!("{other:?}"),
    });
    (store, numbers.skip(1).collect())
}

/// The permits of one name.
#[derive(PartialEq)]
struct Content {
    /// The fields of the grants, without tokens.
    grants: Vec<(Text, String)>,
    /// When each lease ends, in tenths of a second.
    leases: Vec<(i64, Text)>,
}

fn content(store: &Store, name: &str) -> Content {
    let [_, holders, grants] = keys(name);
    let fields = store.fields(&grants).unwrap_or_default();
    let count = |text: &str| text.split(':').next().expect("a count").to_owned();
    let leases = store.members(&holders).iter();
    Content {
        grants: fields.iter().map(|(field, text)| (Text::clone(field), count(text))).collect(),
        leases: leases.map(|(until, owner)| (until / 100_000, Text::clone(owner))).collect(),
    }
}

fn compare(edits: &[Edit]) -> Result<usize, String> {
    let batch = sources::counted().into_iter().filter(|(name, _)| *name == "batch");
    let scripts = Scripts::new(batch.map(|(name, text)| (name, Edit::all(edits, name, &text))));
    let mut dice = Dice(7);
    let mut done = 0;
    for _ in 0..CASES {
        let before = any_store(&mut dice);
        let mut requests: Vec<_> =
            (0..OWNERS.len()).map(|owner| Request::any(owner, &mut dice)).collect();
        requests.sort_by_key(|request| request.count.is_some());
        let (after, numbers) = run(&scripts, &before, NOW, &requests);
        let mut one_by_one = Rc::new(before);
        let mut last = 0;
        // The attempts come first. The releases are the first ones in the list.
        let releases = requests.iter().filter(|request| request.count.is_none()).count();
        for step in 0..requests.len() {
            let at = (releases + step) % requests.len();
            let request = &requests[at];
            // Each comes a moment after the one before, because a token is a time.
            let now = NOW + i64::try_from(step).expect("few");
            let (store, alone) = run(&scripts, &one_by_one, now, slice::from_ref(request));
            one_by_one = store;
            let number = numbers.get(at).copied();
            if number.map(i64::signum) != alone.first().map(|number| number.signum()) {
                return Err(format!("{request:?} has another answer in {requests:?}"));
            }
            let number = number.unwrap_or(0);
            if number > 0 && request.count.is_some() {
                let is_counted =
                    after.string("counter").is_some_and(|top| **top >= *number.to_string());
                if number <= last || !is_counted {
                    return Err(format!("the tokens do not rise: {numbers:?}"));
                }
                last = number;
            }
            done += usize::from(number > 0);
        }
        if NAMES.iter().any(|name| content(&after, name) != content(&one_by_one, name)) {
            return Err(format!("the permits differ after {requests:?}"));
        }
    }
    Ok(done)
}

#[test]
fn c1_c4_c5_c12_a_batch_for_permits_does_what_its_requests_do_alone_or_leaves_them_over() {
    let done = compare(&[]).expect("no difference");
    println!("{done} requests were done in {CASES} batches");
    assert!(done > CASES, "only {done} requests were done");
}

#[test]
fn every_mutant_of_the_batches_for_permits_differs() {
    let missed =
        permit_batches_of_several().into_iter().filter_map(|Mutant { name, edits, .. }| {
            let difference = compare(&edits);
            println!("{name}: {difference:?}");
            difference.is_ok().then_some(name)
        });
    let missed: Vec<_> = missed.collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

/// The last token of the batch would have other digits than the time.
#[test]
fn c4_a_batch_for_permits_gives_no_token_beyond_the_end_of_a_second() {
    let guard = Edit { script: "batch", from: "micros + all < 2000000", to: "true" };
    for (edits, is_wrong) in [(&[][..], false), (&[guard][..], true)] {
        let batch = sources::counted().into_iter().filter(|(name, _)| *name == "batch");
        let scripts = Scripts::new(batch.map(|(name, text)| (name, Edit::all(edits, name, &text))));
        let attempt = |owner| Request { owner, name: "x", count: Some(1), in_time: true };
        let (_, numbers) =
            run(&scripts, &Store::default(), END_OF_A_SECOND, &[attempt(0), attempt(1)]);
        assert_eq!(numbers.iter().any(|number| *number > 0), is_wrong, "{numbers:?}");
    }
}
