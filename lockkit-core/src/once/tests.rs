//! Tests slots over a store that obeys the test, on virtual time.

use std::{
    future::{pending, poll_fn},
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{self, Instant},
};

use super::{Once, OnceOutcome, OnceRun};
use crate::{
    clock::Clock,
    error::ErrorKind,
    fake::{Fake, Fault, Kind, Op, Store, lock},
    locker::Locker,
    options::LockOptions,
    spi::{Capabilities, Descriptor, Noted},
    token::FencingToken,
};

/// The op_timeout is 3 s.
const TTL: Duration = secs(30);
const NAME: &str = "a";

/// The output is the token of the run.
type Outcome = OnceOutcome<FencingToken, &'static str>;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A store with 2 ms of latency.
fn fake() -> Fake {
    let store = Store::new(0);
    store.set_latency(ms(2));
    Fake::new(store, Kind::Memory)
}

fn locker(fake: &Fake) -> Locker {
    let options = LockOptions::new().with_ttl(TTL);
    let locker = Locker::builder(Arc::new(fake.clone())).clock(Clock::Tokio).build();
    locker.with_defaults(options).unwrap()
}

/// One host's view of the work.
fn host(fake: &Fake, label: &str) -> Once {
    let options = LockOptions::new().with_label(label);
    locker(fake).once(NAME).unwrap().with_options(options).unwrap()
}

async fn run(once: &Once, slot: u64) -> Outcome {
    once.run(slot, |hold, _| async move { Ok(hold.fencing_token()) }).await.unwrap()
}

/// The token of a run that must have finished its slot, and the earlier run.
#[track_caller]
fn ran(outcome: Outcome) -> (FencingToken, Option<OnceRun>) {
    match outcome {
        OnceOutcome::Ran { output, earlier } => (output, earlier),
        other => panic!("{other:?}"),
    }
}

/// Lets a host begin a slot whose work never ends, and returns the token of the run.
async fn begin(once: Once, slot: u64) -> FencingToken {
    let (tell, told) = oneshot::channel();
    tokio::spawn(async move {
        let work = once.run(slot, |hold, _| async move {
            tell.send(hold.fencing_token()).unwrap();
            pending::<Result<(), ()>>().await
        });
        let _ = work.await;
    });
    told.await.unwrap()
}

/// Catches a run that begins its work before the record says so, and a slot that is finished while
/// its work still runs.
#[tokio::test(start_paused = true)]
async fn a_run_is_recorded_before_its_work_and_finished_after_it() {
    let fake = fake();
    let once = host(&fake, "host a");
    assert_eq!(once.last().await.unwrap(), None);
    let other = host(&fake, "host b");
    let work = once.run(7, |hold, earlier| async move {
        assert_eq!(earlier, None);
        let seen = other.last().await.unwrap().unwrap();
        assert_eq!((seen.slot, seen.token, seen.finished), (7, hold.fencing_token(), None));
        assert_eq!(seen.label.as_deref(), Some("host a"));
        time::sleep(secs(100)).await;
        Ok(hold.fencing_token())
    });
    let (token, earlier) = ran(work.await.unwrap());
    assert_eq!(earlier, None);
    assert_eq!(fake.holders(), 0, "the lock is free");
    let seen = once.last().await.unwrap().unwrap();
    assert_eq!(seen.token, token);
    let took = seen.finished.unwrap().duration_since(seen.begun).unwrap();
    assert!((secs(100)..secs(101)).contains(&took), "{took:?}");
    assert!(matches!(run(&once, 7).await, OnceOutcome::Done(run) if run == seen));
    assert!(matches!(run(&once, 6).await, OnceOutcome::Passed(run) if run == seen));
}

/// Catches two hosts that both find a slot open.
#[tokio::test(start_paused = true)]
async fn c1_each_slot_runs_once_however_many_hosts_ask() {
    const SLOTS: u64 = 20;
    let fake = fake();
    let slots = Arc::new(Mutex::new(Vec::new()));
    let mut hosts = JoinSet::new();
    for number in 0..8 {
        let once = host(&fake.another_way(), "host");
        let slots = Arc::clone(&slots);
        hosts.spawn(async move {
            for slot in 1..=SLOTS {
                time::sleep(ms(number * 3)).await;
                let slots = Arc::clone(&slots);
                let work = once.run(slot, |_, earlier| async move {
                    assert_eq!(earlier, None);
                    lock(&slots).push(slot);
                    time::sleep(ms(10)).await;
                    Ok::<_, ()>(())
                });
                match work.await.unwrap() {
                    OnceOutcome::Ran { .. } => {}
                    OnceOutcome::Done(run) => assert_eq!(run.slot, slot),
                    OnceOutcome::Passed(run) => assert!(run.slot > slot),
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    hosts.join_all().await;
    assert_eq!(*lock(&slots), (1..=SLOTS).collect::<Vec<_>>());
}

/// Catches a takeover that is not reported, and a slot that stays with a dead runner.
#[tokio::test(start_paused = true)]
async fn c9_a_slot_is_taken_over_when_its_runner_dies() {
    let fake = fake();
    let way = fake.another_way();
    let token = begin(host(&way, "host b"), 3).await;
    way.all(Fault::Hang);
    let start = Instant::now();
    let (next, earlier) = ran(run(&host(&fake, "host a"), 3).await);
    assert!(start.elapsed() < TTL + secs(3), "{:?}", start.elapsed());
    assert!(next > token);
    let earlier = earlier.unwrap();
    assert_eq!((earlier.slot, earlier.token, earlier.finished), (3, token, None));
    assert_eq!(earlier.label.as_deref(), Some("host b"));
}

/// A scheduler that must miss no slot asks for the slot that passed its own. Catches such a slot
/// that stays with its dead runner.
#[tokio::test(start_paused = true)]
async fn c9_the_slot_that_passed_another_one_can_be_taken_over() {
    let fake = fake();
    let way = fake.another_way();
    let token = begin(host(&way, "host b"), 9).await;
    way.all(Fault::Hang);
    let once = host(&fake, "host a");
    let outcome = run(&once, 3).await;
    let OnceOutcome::Passed(later) = outcome else { panic!("{outcome:?}") };
    assert_eq!((later.slot, later.token, later.finished), (9, token, None));
    let (_, earlier) = ran(run(&once, later.slot).await);
    assert_eq!(earlier, Some(later));
    assert!(matches!(run(&once, 3).await, OnceOutcome::Passed(run) if run.finished.is_some()));
}

/// Catches a failed run that counts as finished, and one that the next runner does not hear of.
#[tokio::test(start_paused = true)]
async fn a_slot_whose_work_failed_stays_open() {
    let fake = fake();
    let once = host(&fake, "host a");
    let work = once.run(3, |_, _| async { Err::<FencingToken, _>("disk full") });
    let outcome = work.await.unwrap();
    assert!(matches!(outcome, OnceOutcome::Failed { error: "disk full", earlier: None }));
    assert_eq!(fake.holders(), 0, "the lock is free");
    let (_, earlier) = ran(run(&once, 3).await);
    assert_eq!(earlier.unwrap().slot, 3);
    assert!(matches!(run(&once, 3).await, OnceOutcome::Done(_)));
}

/// Catches a later run that hides an older slot that no run finished.
#[tokio::test(start_paused = true)]
async fn an_older_slot_that_is_not_finished_is_reported_and_passed() {
    let fake = fake();
    let once = host(&fake, "host a");
    let outcome = once.run(3, |_, _| async { Err::<(), _>("disk full") }).await.unwrap();
    assert!(matches!(outcome, OnceOutcome::Failed { .. }));
    let (_, earlier) = ran(run(&once, 4).await);
    assert_eq!(earlier.unwrap().slot, 3);
    assert!(matches!(run(&once, 3).await, OnceOutcome::Passed(run) if run.slot == 4));
}

/// Catches a record that is not repeated, and one whose second write is taken for a conflict.
#[tokio::test(start_paused = true)]
async fn c5_a_record_whose_reply_is_lost_is_written_again() {
    let fake = fake();
    let once = host(&fake, "host a");
    fake.once(Op::WriteNote, [Fault::LoseReply, Fault::Pass, Fault::LoseReply]);
    ran(run(&once, 3).await);
    assert_eq!(fake.count(Op::WriteNote), 4);
    assert!(matches!(run(&once, 3).await, OnceOutcome::Done(_)));
}

/// The store applies the record of the end, and never answers. Catches an outcome that is more
/// certain than this, and a slot that runs again although it is finished.
#[tokio::test(start_paused = true)]
async fn c5_a_slot_whose_last_word_was_lost_is_unknown_and_does_not_run_again() {
    let fake = fake();
    let once = host(&fake, "host a");
    fake.once(Op::WriteNote, [Fault::Pass]);
    fake.always(Op::WriteNote, Fault::HangAfter);
    let outcome = run(&once, 3).await;
    let OnceOutcome::Unrecorded { output, error, .. } = outcome else { panic!("{outcome:?}") };
    assert!(error.is_outcome_unknown(), "{error}");
    fake.heal();
    assert!(matches!(run(&once, 3).await, OnceOutcome::Done(run) if run.token == output));
}

/// Catches a slot that counts as finished without a record.
#[tokio::test(start_paused = true)]
async fn c5_a_slot_without_a_confirmed_record_is_unknown_and_runs_again() {
    let fake = fake();
    let once = host(&fake, "host a");
    fake.once(Op::WriteNote, [Fault::Pass]);
    fake.always(Op::WriteNote, Fault::Hang);
    let start = Instant::now();
    let outcome = run(&once, 3).await;
    let OnceOutcome::Unrecorded { output, earlier: None, error } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(error.is_outcome_unknown(), "{error}");
    assert!(start.elapsed() < TTL + secs(10), "{:?}", start.elapsed());
    fake.heal();
    let (_, earlier) = ran(run(&once, 3).await);
    assert_eq!(earlier.unwrap().token, output);
}

/// Catches a record that is given up as soon as any other note. Also catches one that is given up
/// at the end of the lease that is known when the work ends. The outage is longer than both, and the lease is renewed meanwhile.
#[tokio::test(start_paused = true)]
async fn c10_a_record_of_the_end_waits_for_the_store_while_the_lease_is_renewed() {
    let fake = fake();
    let once = host(&fake, "host a");
    let store = fake.clone();
    let work = once.run(3, |hold, _| async move {
        // The first renewal comes after nine seconds.
        time::sleep(secs(8)).await;
        store.always(Op::WriteNote, Fault::DOWN);
        tokio::spawn(async move {
            time::sleep(secs(25)).await;
            store.heal();
        });
        Ok(hold.fencing_token())
    });
    ran(work.await.unwrap());
}

/// Catches work that continues beside the work of the next holder.
#[tokio::test(start_paused = true)]
async fn c2_work_whose_lock_is_lost_is_dropped_and_its_slot_stays_open() {
    let fake = fake();
    let once = host(&fake, "host a");
    let store = fake.clone();
    let work = once.run(3, |_, _| async move {
        store.evict(NAME);
        pending::<Result<(), ()>>().await
    });
    let error = time::timeout(TTL, work).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let (_, earlier) = ran(run(&once, 3).await);
    assert_eq!(earlier.unwrap().slot, 3);
}

/// The lock is lost after the work and before its record. Catches a record that a past holder
/// writes, and an outcome that calls this slot finished.
#[tokio::test(start_paused = true)]
async fn c2_a_slot_is_finished_only_under_the_held_lock() {
    let fake = fake();
    let once = host(&fake, "host a");
    let store = fake.clone();
    let work = once.run(3, |hold, _| async move {
        store.evict(NAME);
        Ok::<_, ()>(hold.fencing_token())
    });
    let outcome = work.await.unwrap();
    let OnceOutcome::Unrecorded { output, error, .. } = outcome else { panic!("{outcome:?}") };
    assert!(error.kind() == ErrorKind::Lost && !error.is_outcome_unknown(), "{error:?}");
    let (_, earlier) = ran(run(&once, 3).await);
    assert_eq!(earlier.unwrap().token, output);
}

/// Catches a bound on waiting that is an error or that is not kept.
#[tokio::test(start_paused = true)]
async fn c8_a_slot_that_runs_longer_than_the_bound_is_busy() {
    let fake = fake();
    let token = begin(host(&fake, "host a"), 3).await;
    for bound in [Duration::ZERO, secs(2)] {
        let options = LockOptions::new().with_wait(bound);
        let once = host(&fake.another_way(), "host b").with_options(options).unwrap();
        let start = Instant::now();
        let outcome = run(&once, 3).await;
        assert!(matches!(outcome, OnceOutcome::Busy(Some(run)) if run.token == token));
        let took = start.elapsed();
        assert!(took + ms(100) > bound && took < bound + secs(1), "{took:?} of {bound:?}");
    }
}

/// Catches a late host that waits for the run of a later slot.
#[tokio::test(start_paused = true)]
async fn c8_a_slot_that_needs_no_run_is_answered_while_another_slot_runs() {
    let fake = fake();
    let once = host(&fake, "host a");
    ran(run(&once, 3).await);
    begin(once.clone(), 9).await;
    let late = host(&fake.another_way(), "host b");
    let start = Instant::now();
    assert!(matches!(run(&late, 3).await, OnceOutcome::Done(run) if run.slot == 3));
    assert!(matches!(run(&late, 8).await, OnceOutcome::Passed(run) if run.slot == 9));
    assert!(start.elapsed() < secs(1), "{:?}", start.elapsed());
}

/// Catches a waiter that runs a slot that the runner before it has just finished.
#[tokio::test(start_paused = true)]
async fn c8_a_host_that_waited_for_a_run_finds_its_slot_done() {
    let fake = fake();
    let once = host(&fake, "host a");
    let other = host(&fake.another_way(), "host b");
    let working = once.run(3, |hold, _| async move {
        time::sleep(secs(60)).await;
        Ok::<_, ()>(hold.fencing_token())
    });
    let waiting = async {
        time::sleep(secs(1)).await;
        run(&other, 3).await
    };
    let (worked, waited) = tokio::join!(working, waiting);
    assert!(matches!(worked.unwrap(), OnceOutcome::Ran { .. }));
    assert!(matches!(waited, OnceOutcome::Done(run) if run.slot == 3));
}

/// Catches a lock that stays held after its caller has left.
#[tokio::test(start_paused = true)]
async fn c6_a_run_that_is_dropped_leaves_its_slot_open() {
    let fake = fake();
    let once = host(&fake, "host a");
    let work = once.run(3, |_, _| pending::<Result<(), ()>>());
    time::timeout(secs(1), work).await.unwrap_err();
    let start = Instant::now();
    let (_, earlier) = ran(run(&host(&fake.another_way(), "host b"), 3).await);
    assert_eq!(earlier.unwrap().slot, 3);
    assert!(start.elapsed() < secs(2), "{:?}", start.elapsed());
}

/// Catches a lock that stays held after a panic, and a run that the next runner does not hear of.
#[tokio::test(start_paused = true)]
async fn c13_work_that_panics_leaves_its_slot_open() {
    let fake = fake();
    let once = host(&fake, "host a");
    let panicking = once.clone();
    let work = tokio::spawn(async move {
        let bomb = |_, _| poll_fn(|_| -> Poll<Result<(), ()>> { panic!("as ordered") });
        panicking.run(3, bomb).await
    });
    assert!(work.await.unwrap_err().is_panic());
    let start = Instant::now();
    let (_, earlier) = ran(run(&once, 3).await);
    assert_eq!(earlier.unwrap().slot, 3);
    assert!(start.elapsed() < secs(2), "{:?}", start.elapsed());
}

/// Catches a shutdown that drops work which ends in time, or its record.
#[tokio::test(start_paused = true)]
async fn c7_a_run_that_ends_soon_after_a_shutdown_is_recorded() {
    let fake = fake();
    let locker = locker(&fake);
    let once = locker.once(NAME).unwrap();
    let work = once.run(3, |hold, _| async move {
        time::sleep(secs(10)).await;
        Ok(hold.fencing_token())
    });
    let closing = async {
        time::sleep(secs(1)).await;
        locker.shutdown().await
    };
    let (worked, closed) = tokio::join!(work, closing);
    let (token, _) = ran(worked.unwrap());
    closed.unwrap();
    let other = host(&fake.another_way(), "host b");
    assert!(matches!(run(&other, 3).await, OnceOutcome::Done(run) if run.token == token));
}

/// Catches a call that fails because the store was away for one request.
#[tokio::test(start_paused = true)]
async fn c8_a_run_waits_for_a_store_that_is_away() {
    let fake = fake();
    let once = host(&fake, "host a");
    fake.once(Op::ReadNote, [Fault::DOWN]);
    fake.once(Op::Attempt, [Fault::DOWN]);
    ran(run(&once, 3).await);
}

/// Catches an outcome that depends on the release: the record already says that the slot is
/// finished.
#[tokio::test(start_paused = true)]
async fn c7_a_release_that_fails_changes_no_outcome() {
    let fake = fake();
    let once = host(&fake, "host a");
    fake.always(Op::Release, Fault::DOWN);
    ran(run(&once, 3).await);
    assert!(matches!(run(&once, 3).await, OnceOutcome::Done(_)));
}

/// Catches a record that overwrites a note of another program or of a newer lockkit.
#[tokio::test(start_paused = true)]
async fn c13_a_note_that_is_no_record_is_an_error_and_stays() {
    for (text, kind) in
        [("all work", ErrorKind::WrongType), ("lockkit once 2\n", ErrorKind::NewerFormat)]
    {
        let fake = fake();
        let locker = locker(&fake);
        let guard = locker.mutex(NAME).unwrap().lock().await.unwrap();
        let note = locker.note(guard.name()).await.unwrap().next(text);
        assert_eq!(guard.write_note(&note).await.unwrap(), Noted::Written);
        guard.release().await.unwrap();
        let once = locker.once(NAME).unwrap();
        let work = once.run(3, |_, _| async { Ok::<_, ()>(()) });
        assert_eq!(work.await.unwrap_err().kind(), kind);
        assert_eq!(once.last().await.unwrap_err().kind(), kind);
        assert_eq!(locker.note(once.name()).await.unwrap(), note);
        assert_eq!(fake.holders(), 0);
    }
}

/// A host asked for the last of all slots by mistake. Catches a record that can't be undone.
#[tokio::test(start_paused = true)]
async fn an_empty_note_opens_all_slots_again() {
    let fake = fake();
    let locker = locker(&fake);
    let once = locker.once(NAME).unwrap();
    ran(run(&once, u64::MAX).await);
    assert!(matches!(run(&once, 3).await, OnceOutcome::Passed(run) if run.slot == u64::MAX));
    let guard = locker.mutex(NAME).unwrap().lock().await.unwrap();
    let empty = locker.note(guard.name()).await.unwrap().next("");
    assert_eq!(guard.write_note(&empty).await.unwrap(), Noted::Written);
    guard.release().await.unwrap();
    assert_eq!(once.last().await.unwrap(), None);
    let (_, earlier) = ran(run(&once, 3).await);
    assert_eq!(earlier, None);
}

/// Catches a store without a memory, on which each host would run each slot.
#[test]
fn c13_a_store_without_notes_or_time_is_refused() {
    for (notes, time) in [(false, true), (true, false)] {
        let fake = fake().described(|it| Descriptor {
            capabilities: Capabilities { notes, time, ..it.capabilities },
            ..it
        });
        assert_eq!(locker(&fake).once(NAME).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
