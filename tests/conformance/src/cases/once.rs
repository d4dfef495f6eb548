//! Work that runs once for each slot, over a mutex and the note beside it.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lockkit_core::{
    ErrorKind, FencingToken, LockOptions, Locker, Note, Noted, Once, OnceOutcome, OnceRun,
    spi::LeaseScope,
};
use tokio::{sync::oneshot, task::JoinSet, time::timeout};

use crate::{
    case::{Ability, Needs, cases},
    env::{Env, free_by_force, give_back, long, take},
    harness::Faults,
    wait::{ROUNDING, a_minute, soon, step, within},
};

cases! {
    c1_each_slot_runs_once_among_many_hosts: Needs::MUTEX.ability(Ability::Once),
        "a note that is read before the lock is held, and not again under it";
    c2_a_run_whose_lock_was_freed_finishes_no_slot: Needs::MUTEX.ability(Ability::Once),
        "a store that takes the note of a past holder";
    c4_slots_only_go_forward: Needs::MUTEX.ability(Ability::Once),
        "a store that loses or replaces a note";
    c5_a_finished_slot_whose_reply_is_lost_is_done: Needs::MUTEX.ability(Ability::Once),
        "a note that is not written again, or whose second write is a conflict";
    c6_a_run_that_is_dropped_leaves_its_slot_open: Needs::MUTEX.ability(Ability::Once),
        "a lock that outlives its dropped caller, or a note that ends with its lock";
    c8_a_slot_that_runs_now_is_busy: Needs::MUTEX.ability(Ability::Once),
        "a note that is hidden until the release of its lock";
    c9_a_slot_is_taken_over_from_a_runner_that_died: Needs::MUTEX.ability(Ability::Once),
        "a note that ends with its holder";
    c13_a_note_that_is_no_record_is_refused: Needs::MUTEX.ability(Ability::Once),
        "a record that overwrites the note of another program";
    c14_a_run_shows_its_runner_and_times_of_the_store: Needs::MUTEX.ability(Ability::Once),
        "a time in another unit or zone, or a clock that differs from client to client";
}

const NAME: &str = "x";

/// The output is the token of the run.
type Outcome = OnceOutcome<FencingToken, Infallible>;

fn host(env: &Env, locker: &Locker, label: &str) -> Once {
    let once = locker.once(NAME).and_then(|once| once.with_options(long().with_label(label)));
    let once = once.expect("a good name and good options");
    env.will_be_free(once.name());
    once
}

async fn run(once: &Once, slot: u64) -> Outcome {
    once.run(slot, |hold, _| async move { Ok(hold.fencing_token()) }).await.unwrap()
}

/// The token of a run that must have finished its slot, and the earlier run.
fn ran(outcome: Outcome) -> (FencingToken, Option<OnceRun>) {
    match outcome {
        OnceOutcome::Ran { output, earlier } => (output, earlier),
        other => panic!("it did not run: {other:?}"),
    }
}

/// Starts a run whose work never ends, and waits until the work has begun. Returns the token of the
/// run, and its task.
async fn begin(once: Once, slot: u64) -> (FencingToken, JoinSet<()>) {
    let (tell, told) = oneshot::channel();
    let mut runner = JoinSet::new();
    runner.spawn(async move {
        let work = once.run(slot, |hold, _| async move {
            // A case that waits no longer has failed.
            let _ = tell.send(hold.fencing_token());
            pending::<Result<(), Infallible>>().await
        });
        let _ = work.await;
    });
    let token = within(soon(), "the beginning", told).await.expect("the work begins");
    (token, runner)
}

async fn c1_each_slot_runs_once_among_many_hosts(env: Env) {
    const HOSTS: usize = 4;
    const SLOTS: u64 = 6;
    let slots = Arc::new(Mutex::new(Vec::new()));
    let mut hosts = JoinSet::new();
    for _ in 0..HOSTS {
        let once = host(&env, &env.locker().await, "host");
        let slots = Arc::clone(&slots);
        hosts.spawn(async move {
            for slot in 1..=SLOTS {
                let slots = Arc::clone(&slots);
                let work = once.run(slot, |_, earlier| async move {
                    assert_eq!(earlier, None, "no run died");
                    slots.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
                    step().await;
                    Ok::<_, Infallible>(())
                });
                match work.await.unwrap() {
                    OnceOutcome::Ran { .. } => {}
                    OnceOutcome::Done(run) => assert_eq!(run.slot, slot),
                    OnceOutcome::Passed(run) => assert!(run.slot > slot, "{run:?} passed {slot}"),
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    within(a_minute(), "the end of all slots", hosts.join_all()).await;
    let slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(*slots, (1..=SLOTS).collect::<Vec<_>>(), "C1: slots that ran, in order");
}

async fn c2_a_run_whose_lock_was_freed_finishes_no_slot(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let operator = env.locker().await;
    // A runner that hears of the loss would not ask the store.
    line.set_mute(true);
    let once = host(&env, &locker, "host a");
    let work = once.run(3, async |hold, _| {
        let free = async || operator.force_release(hold.name(), hold.fencing_token()).await;
        free_by_force(free).await;
        Ok::<_, Infallible>(())
    });
    match work.await {
        Err(error) | Ok(OnceOutcome::Unrecorded { error, .. }) => {
            assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        }
        Ok(other) => panic!("C2: a past holder finished the slot: {other:?}"),
    }
    let (_, earlier) = ran(run(&host(&env, &operator, "host b"), 3).await);
    assert_eq!(earlier.map(|run| run.slot), Some(3), "the earlier run is not reported");
}

async fn c4_slots_only_go_forward(env: Env) {
    let a = host(&env, &env.locker().await, "host a");
    let b = host(&env, &env.locker().await, "host b");
    let (token, _) = ran(run(&a, 9).await);
    assert!(matches!(run(&b, 9).await, OnceOutcome::Done(run) if run.token == token));
    assert!(matches!(run(&b, 8).await, OnceOutcome::Passed(run) if run.token == token));
    let (next, mut runner) = begin(a, 12).await;
    assert!(next > token, "C4: {next} after {token}");
    env.harness().expire_now(b.name()).await.unwrap();
    assert!(matches!(run(&b, 9).await, OnceOutcome::Done(run) if run.token == token));
    assert!(matches!(
        run(&b, 11).await,
        OnceOutcome::Passed(run) if run.token == next && run.finished.is_none()
    ));
    let (last, earlier) = ran(run(&b, 13).await);
    assert!(last > next, "C4: {last} after {next}");
    assert_eq!(earlier.map(|run| (run.slot, run.token)), Some((12, next)));
    runner.shutdown().await;
}

async fn c5_a_finished_slot_whose_reply_is_lost_is_done(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let once = host(&env, &locker, "host a");
    let healthy = host(&env, &env.locker().await, "host b");
    let (tell, told) = oneshot::channel();
    let work = once.run(5, async |hold, _| {
        link.set(Faults::LOST_REPLIES);
        let _ = tell.send(());
        Ok::<_, Infallible>(hold.fencing_token())
    });
    let recovers = async {
        // The store may be slow until then, and a fault that begins after the repair never ends.
        // If the run fails before, its own error ends the case.
        let _ = within(soon(), "the work", told).await;
        let finished = async {
            while healthy.last().await.unwrap().is_none_or(|run| run.finished.is_none()) {
                step().await;
            }
        };
        // ZooKeeper first reads the note, so it does not get as far as the write.
        let bound = if env.has_session_leases() { env.patience() } else { soon() };
        let _ = timeout(bound, finished).await;
        link.cut();
        link.heal();
    };
    let (outcome, ()) = tokio::join!(within(soon(), "the run", work), recovers);
    let token = match outcome.unwrap() {
        OnceOutcome::Ran { output, .. } => output,
        // Where the lock ended with its connection, the second request has no answer for the first.
        OnceOutcome::Unrecorded { output, error, .. }
            if error.is_outcome_unknown()
                && env.descriptor().lease_scope == LeaseScope::Connection =>
        {
            output
        }
        other => panic!("C5: {other:?}"),
    };
    assert!(
        matches!(run(&healthy, 5).await, OnceOutcome::Done(run) if run.token == token),
        "C5: a finished slot runs again"
    );
}

async fn c6_a_run_that_is_dropped_leaves_its_slot_open(env: Env) {
    let (token, mut runner) = begin(host(&env, &env.locker().await, "host a"), 5).await;
    runner.shutdown().await;
    let next = host(&env, &env.locker().await, "host b");
    let (_, earlier) = ran(within(soon(), "the next run", run(&next, 5)).await);
    let earlier = earlier.expect("the dropped run");
    assert_eq!((earlier.token, earlier.finished), (token, None));
}

async fn c8_a_slot_that_runs_now_is_busy(env: Env) {
    let (token, mut runner) = begin(host(&env, &env.locker().await, "host a"), 5).await;
    let at_once = LockOptions::new().with_wait(Duration::ZERO);
    let other = host(&env, &env.locker().await, "host b").with_options(at_once).unwrap();
    let outcome = run(&other, 5).await;
    assert!(
        matches!(&outcome, OnceOutcome::Busy(Some(run)) if run.token == token),
        "C8: {outcome:?}"
    );
    runner.shutdown().await;
}

async fn c9_a_slot_is_taken_over_from_a_runner_that_died(env: Env) {
    let (token, mut runner) = begin(host(&env, &env.locker().await, "host a"), 7).await;
    let next = host(&env, &env.locker().await, "host b");
    env.harness().expire_now(next.name()).await.unwrap();
    let (last, earlier) = ran(within(soon(), "the takeover", run(&next, 7)).await);
    assert!(last > token, "C4: {last} after {token}");
    let earlier = earlier.expect("C9: the run that died");
    assert_eq!((earlier.slot, earlier.token, earlier.finished), (7, token, None));
    assert_eq!(earlier.label.as_deref(), Some("host a"));
    runner.shutdown().await;
}

async fn c13_a_note_that_is_no_record_is_refused(env: Env) {
    let locker = env.locker().await;
    let once = host(&env, &locker, "host");
    let guard = take(&env.lock(&locker, NAME, long())).await;
    let note = Note::default().next("all work and no play");
    assert_eq!(guard.write_note(&note).await.unwrap(), Noted::Written);
    give_back(guard).await;
    let refused = once.run(5, |_, _| async { Ok::<_, Infallible>(()) }).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(locker.note(once.name()).await.unwrap(), note, "C13: it was overwritten");
}

async fn c14_a_run_shows_its_runner_and_times_of_the_store(env: Env) {
    let observer = env.locker().await;
    let once = host(&env, &env.locker().await, "host a");
    let before = observer.time().await.unwrap();
    let (token, _) = ran(run(&once, 5).await);
    let after = observer.time().await.unwrap();
    let seen = host(&env, &observer, "host b").last().await.unwrap().expect("the run");
    assert_eq!((seen.slot, seen.token, seen.label.as_deref()), (5, token, Some("host a")));
    let finished = seen.finished.expect("it is finished");
    assert!(
        before <= seen.begun + ROUNDING && seen.begun <= finished && finished <= after + ROUNDING,
        "{seen:?}, between {before:?} and {after:?}"
    );
}
