//! Compares a batch with the same requests one after another.

use std::rc::Rc;

use crate::{
    fake::{END_OF_A_SECOND, Reply, Server, Store, Text},
    lua::{Outcome, Run, Scripts},
    scripts::exclusive,
};

const NOW: i64 = 1_700_000_000_000;
const LATE: &str = "1";
const LATER: &str = "1800000000000000";
/// A time of a machine without a clock: its seconds have other digits than those of a token.
const LONG_AGO: i64 = 5_400_000;
const COUNTERS: [&str; 5] = ["", "17", "1900000000000000", "lockkit/2 9", STRANGE];
/// A counter of another type.
const STRANGE: &str = "strange";

/// The state of a name before the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Free,
    Ours,
    Others,
    /// Free, with a waiter.
    Waited,
    /// Ours, with a waiter.
    OursWaited,
    /// A key of another type.
    Strange,
}

const BEFORE: [Before; 6] = [
    Before::Free,
    Before::Ours,
    Before::Others,
    Before::Waited,
    Before::OursWaited,
    Before::Strange,
];

fn owner(item: usize) -> String {
    format!("owner{item}")
}

fn store(names: &[Before], counter: &str) -> Store {
    let mut server = Server { now: NOW, ..Server::default() };
    let mut run = |words: &[&str]| {
        let words: Vec<Text> = words.iter().map(|word| Text::from(*word)).collect();
        server.run(&words).expect("a write");
    };
    match counter {
        "" => {}
        STRANGE => run(&["ZADD", "counter", "1", "member"]),
        counter => run(&["SET", "counter", counter]),
    }
    for (item, before) in names.iter().enumerate() {
        let lock = format!("lock{item}");
        let queue = format!("queue{item}");
        match before {
            Before::Free | Before::Waited => {}
            Before::Ours | Before::OursWaited => {
                run(&["SET", &lock, &format!("5:{}", owner(item)), "PX", "900"]);
            }
            Before::Others => run(&["SET", &lock, "5:another", "PX", "900"]),
            Before::Strange => run(&["ZADD", &lock, "1", "member"]),
        }
        if matches!(before, Before::Waited | Before::OursWaited) {
            run(&["ZADD", &queue, "1", "waiter"]);
        }
    }
    server.store
}

fn run(
    scripts: &Scripts,
    store: &Store,
    now: i64,
    script: &'static str,
    keys: &[String],
    args: &[String],
) -> Outcome {
    let texts =
        |words: &[String]| words.iter().map(|word| Text::from(word.as_str())).collect::<Vec<_>>();
    let run = Run {
        script,
        keys: texts(keys).into(),
        args: texts(args),
        now,
        full: false,
        denied: false,
        forbidden: "",
        heard: Vec::new(),
    };
    scripts.run(store, &run)
}

/// The batch, and the parts of the scripts for what is free.
fn scripts() -> Scripts {
    let acquire = include_str!("../../src/scripts/exclusive/acquire_free.lua");
    let release = include_str!("../../src/scripts/exclusive/release_free.lua");
    let texts = [("acquire", acquire), ("release", release), ("batch", exclusive::BATCH)];
    Scripts::new(texts.map(|(name, text)| (name, text.to_owned())))
}

/// Runs the first `releases` requests as releases and the others as attempts. Returns which of them
/// were done, and the tokens.
fn batch(
    scripts: &Scripts,
    before: &Store,
    releases: usize,
    all: usize,
    not_after: &str,
) -> Option<(Rc<Store>, Vec<i64>)> {
    let mut keys = vec!["counter".to_owned()];
    keys.extend((0..all).map(|item| format!("lock{item}")));
    keys.extend((0..all).map(|item| format!("queue{item}")));
    let mut args = vec![releases.to_string()];
    args.extend((0..releases).map(|item| format!("5:{}", owner(item))));
    let attempt = |item| [owner(item), "700".to_owned(), not_after.to_owned()];
    args.extend((releases..all).flat_map(attempt));
    let Outcome { store, answer, .. } = run(scripts, before, NOW, "batch", &keys, &args);
    let Ok(Reply::List(answers)) = answer else {
        assert_eq!(*store, *before, "a refused batch did something");
        return None;
    };
    let numbers = answers.iter().map(|answer| match answer {
        Reply::Int(number) => *number,
        other => panic!("{other:?}"),
    });
    Some((store, numbers.skip(1).collect()))
}

/// Runs one request alone, without the part for all that is not free. Returns whether it was done.
/// Each comes a moment after the one before, because a token is a time.
fn alone(
    scripts: &Scripts,
    before: &Store,
    item: usize,
    releases: bool,
    not_after: &str,
) -> (Rc<Store>, bool) {
    let keys = [format!("lock{item}"), "counter".to_owned(), format!("queue{item}")];
    let args = if releases {
        vec![format!("5:{}", owner(item)), String::new(), "0".to_owned()]
    } else {
        vec![owner(item), "700".to_owned(), not_after.to_owned()]
    };
    let now = NOW + i64::try_from(item).expect("few");
    let script = if releases { "release" } else { "acquire" };
    let Outcome { store, answer, .. } = run(scripts, before, now, script, &keys, &args);
    (store, matches!(answer, Ok(Reply::Int(_))))
}

#[test]
fn c1_c4_c5_c12_a_batch_does_what_its_requests_do_alone_or_leaves_them_over() {
    let scripts = scripts();
    for names in
        (0..216).map(|number| [number % 6, number / 6 % 6, number / 36].map(|at| BEFORE[at]))
    {
        for releases in 0..=names.len() {
            for counter in COUNTERS {
                for not_after in [LATE, LATER] {
                    compare(&scripts, &names, releases, counter, not_after);
                }
            }
        }
    }
}

#[test]
fn c4_no_token_is_given_by_texts_of_other_lengths() {
    let scripts = scripts();
    let before = store(&[Before::Free], "1700000000000000");
    let keys = ["lock0", "counter", "queue0"].map(str::to_owned);
    let args = [owner(0), "700".to_owned(), LATER.to_owned()];
    let alone = run(&scripts, &before, LONG_AGO, "acquire", &keys, &args);
    assert_eq!((*alone.store).clone(), before, "the quick path gives a token below the last one");
    let keys = ["counter", "lock0", "queue0"].map(str::to_owned);
    let args = ["0".to_owned(), owner(0), "700".to_owned(), LATER.to_owned()];
    let batch = run(&scripts, &before, LONG_AGO, "batch", &keys, &args);
    assert_eq!((*batch.store).clone(), before, "a batch gives a token below the last one");
}

#[test]
fn c4_a_batch_gives_no_token_beyond_the_end_of_a_second() {
    let text = exclusive::BATCH;
    let guard = "micros + #free < 2000000";
    assert!(text.contains(guard));
    let unguarded = text.replace(guard, "true");
    for (text, is_wrong) in [(text.to_owned(), false), (unguarded, true)] {
        let scripts = Scripts::new([("batch", text)]);
        let keys = ["counter", "lock0", "lock1", "queue0", "queue1"].map(str::to_owned);
        let attempt = |item| [owner(item), "700".to_owned(), LATER.to_owned()];
        let args: Vec<_> =
            ["0".to_owned()].into_iter().chain(attempt(0)).chain(attempt(1)).collect();
        let before = Store::default();
        let after = run(&scripts, &before, END_OF_A_SECOND, "batch", &keys, &args).store;
        assert_eq!(*after != before, is_wrong);
    }
}

fn compare(scripts: &Scripts, names: &[Before], releases: usize, counter: &str, not_after: &str) {
    let what = format!("{names:?}, {releases} releases, counter {counter:?}, until {not_after}");
    let before = store(names, counter);
    let Some((after, numbers)) = batch(scripts, &before, releases, names.len(), not_after) else {
        assert!(counter == STRANGE && releases < names.len(), "{what}: refused");
        return;
    };
    let mut one_by_one = Rc::new(before);
    let mut last = 0;
    for (item, number) in numbers.iter().enumerate() {
        let (store, done) = alone(scripts, &one_by_one, item, item < releases, not_after);
        assert_eq!(*number != 0, done, "{what}, {item}");
        if done {
            one_by_one = store;
        }
        let lock = format!("lock{item}");
        let owner_of = |store: &Store| {
            store.string(&lock).map(|lock| lock.split_once(':').expect("a token").1.to_owned())
        };
        assert_eq!(owner_of(&after), owner_of(&one_by_one), "{what}, {item}");
        if done && item >= releases {
            let token = after.string(&lock).expect("a lock").split_once(':').expect("a token").0;
            assert_eq!(token, number.to_string(), "{what}");
            assert_eq!(after.until(&lock), Some(NOW + 700), "{what}");
            assert!(*number > NOW * 1000 && *number > last, "{what}: {numbers:?}");
            last = *number;
        }
    }
    if last > 0 {
        let counted: i64 = after.string("counter").expect("a counter").parse().expect("a token");
        assert!(counted >= last, "{what}: {counted} of {last}");
    } else if !names.contains(&Before::Strange) && counter != STRANGE {
        assert_eq!(after.string("counter").map_or("", |text| text), counter, "{what}");
    }
}
