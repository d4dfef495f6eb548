//! The note beside a lock, which only the present holder writes, and the store's clock.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use lockkit_core::{
    ErrorKind, Locker,
    spi::{Attempt, Claim, LeaseScope, MAX_NOTE_BYTES, Note, Noted, Released, Wait},
};

use tokio::time::timeout;

use crate::{
    admin::admin,
    case::{Ability, Needs, cases},
    env::{Env, free_by_force, give_back, long, take},
    harness::{Faults, Hook, Link},
    lock::Flavor,
    wait::{eventually, soon, within},
};

cases! {
    c2_only_the_present_holder_writes_the_note: Needs::MUTEX.ability(Ability::Notes),
        "a note that is written without a check of the owner, or that is deleted with the lock";
    c2_a_note_changes_neither_lease_nor_token: Needs::MUTEX.ability(Ability::Notes).lease(),
        "a note that renews the lease, or changes the holder";
    c2_a_holder_whose_lock_was_freed_writes_no_note: Needs::MUTEX.ability(Ability::Notes),
        "a note that the claim writes without a check in the store";
    c5_an_older_note_never_replaces_a_newer_one: Needs::MUTEX.ability(Ability::Notes),
        "a late request that overwrites a newer note";
    c5_a_note_whose_reply_is_lost_is_written: Needs::MUTEX.ability(Ability::Notes),
        "a note without a retry, or a retry that takes the note of its first request for a newer \
         one";
    c5_a_note_with_an_unknown_outcome_is_not_reported_as_unwritten: Needs::MUTEX.ability(Ability::Notes),
        "a driver that takes the answer to the second request for an answer to the first";
    c6_a_note_is_written_though_its_caller_has_left: Needs::MUTEX.ability(Ability::Notes),
        "a note whose request is cancelled with its future";
    c5_a_late_note_does_nothing: Needs::MUTEX.ability(Ability::Notes).hook(Hook::Wire),
        "a late note that overwrites the next holder's note";
    c11_notes_of_two_names_never_meet: Needs::MUTEX.ability(Ability::Notes),
        "notes that are found by a shortened name, or without the kind";
    c11_a_note_is_read_as_it_was_written: Needs::MUTEX.ability(Ability::Notes),
        "a store that truncates, trims, escapes or folds a text";
    c13_a_note_of_a_kind_without_notes_is_an_error: Needs::MUTEX.ability(Ability::Notes),
        "a note without a length limit, or one that is lost without an error";
    c14_the_store_reports_its_time: Needs::MUTEX.ability(Ability::Time),
        "a time in another unit or zone, or one that does not advance";
}

async fn attempt(claim: &mut dyn Claim) -> bool {
    matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_))
}

fn note(revision: u64, text: &str) -> Note {
    Note::new(revision, text.to_owned())
}

/// A locker whose connection can be broken. It has written a note before, so the store already
/// knows what it must learn first, such as a script.
async fn faulty_locker(env: &Env) -> (Locker, Arc<dyn Link>) {
    let (locker, link) = env.faulty_locker().await;
    let guard = take(&env.lock(&locker, "noted before", long())).await;
    assert_eq!(guard.write_note(&note(1, "before")).await.unwrap(), Noted::Written);
    give_back(guard).await;
    (locker, link)
}

async fn c2_only_the_present_holder_writes_the_note(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let name = env.name("x");
    let mut first = env.claim(&*a, "x", &long());
    let mut second = env.claim(&*b, "x", &long());
    assert_eq!(admin(&*b).note(&name).await.unwrap(), Note::default());
    assert_eq!(first.write_note(&note(1, "early")).await.unwrap(), Noted::NotHeld);
    assert!(attempt(&mut *first).await);
    assert_eq!(second.write_note(&note(1, "other")).await.unwrap(), Noted::NotHeld);
    assert_eq!(first.write_note(&note(1, "one")).await.unwrap(), Noted::Written);
    assert_eq!(admin(&*b).note(&name).await.unwrap(), note(1, "one"));
    assert!(!attempt(&mut *second).await, "C1: a note has freed the lock");
    assert_eq!(second.write_note(&note(2, "other")).await.unwrap(), Noted::NotHeld);
    env.harness().expire_now(&name).await.unwrap();
    assert_eq!(
        first.write_note(&note(2, "late")).await.unwrap(),
        Noted::NotHeld,
        "C2: nobody holds it"
    );
    assert!(attempt(&mut *second).await);
    assert_eq!(
        first.write_note(&note(2, "late")).await.unwrap(),
        Noted::NotHeld,
        "C2: another one holds it"
    );
    assert_eq!(second.write_note(&note(2, "two")).await.unwrap(), Noted::Written);
    assert_eq!(first.release().await.unwrap(), Released::NotHeld);
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    assert_eq!(
        second.write_note(&note(3, "late")).await.unwrap(),
        Noted::NotHeld,
        "C2: it was released"
    );
    assert_eq!(
        admin(&*a).note(&name).await.unwrap(),
        note(2, "two"),
        "a note stays when its lock is free"
    );
}

async fn c2_a_note_changes_neither_lease_nor_token(env: Env) {
    let backend = env.backend().await;
    let name = env.name("x");
    let mut claim = env.claim(&*backend, "x", &long());
    let Attempt::Granted(grant) = claim.attempt(Wait::No).await.unwrap() else {
        panic!("it is taken")
    };
    let shown = async || backend.inspect(&name).await.unwrap().holders.pop().expect("a holder");
    let before = shown().await;
    env.pause().await;
    assert_eq!(claim.write_note(&note(1, "one")).await.unwrap(), Noted::Written);
    let after = shown().await;
    assert_eq!((after.owner, after.token), (before.owner, Some(grant.token)));
    if let (false, Some(before), Some(after)) =
        (env.has_session_leases(), before.remaining, after.remaining)
    {
        assert!(after < before, "a note renewed the lease: {before:?}, then {after:?}");
    }
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

async fn c2_a_holder_whose_lock_was_freed_writes_no_note(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let operator = env.locker().await;
    // A holder that hears of the loss would not ask the store.
    line.set_mute(true);
    let lock = env.lock(&locker, "x", long());
    let guard = take(&lock).await;
    free_by_force(async || operator.force_release(guard.name(), guard.fencing_token()).await).await;
    let error = guard.write_note(&note(1, "late")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(!guard.is_held(), "C3: told that it is not held, it still says so");
    assert_eq!(operator.note(lock.name()).await.unwrap(), Note::default());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

async fn c5_an_older_note_never_replaces_a_newer_one(env: Env) {
    let backend = env.backend().await;
    let mut claim = env.claim(&*backend, "x", &long());
    assert!(attempt(&mut *claim).await);
    assert_eq!(claim.write_note(&note(2, "two")).await.unwrap(), Noted::Written);
    assert_eq!(claim.write_note(&note(1, "one")).await.unwrap(), Noted::Outdated);
    assert_eq!(claim.write_note(&note(2, "another")).await.unwrap(), Noted::Outdated);
    assert_eq!(claim.write_note(&note(2, "two")).await.unwrap(), Noted::Written, "C5: asked again");
    assert_eq!(admin(&*backend).note(&env.name("x")).await.unwrap(), note(2, "two"));
    assert_eq!(claim.write_note(&note(40, "forty")).await.unwrap(), Noted::Written);
    assert_eq!(admin(&*backend).note(&env.name("x")).await.unwrap(), note(40, "forty"));
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

async fn c5_a_note_whose_reply_is_lost_is_written(env: Env) {
    let (locker, link) = faulty_locker(&env).await;
    let healthy = env.locker().await;
    let lock = env.lock(&locker, "x", long());
    let guard = take(&lock).await;
    link.set(Faults::LOST_REPLIES);
    let first = note(1, "one");
    let written = {
        let guard = &guard;
        let first = &first;
        let name = lock.name();
        let (outcome, ()) =
            tokio::join!(within(soon(), "the note", guard.write_note(first)), async {
                eventually(soon(), async || match healthy.note(name).await {
                    Ok(seen) if seen == *first => Ok(()),
                    other => Err(format!("the note is not there: {other:?}")),
                })
                .await;
                link.cut();
                link.heal();
            });
        outcome
    };
    assert_eq!(healthy.note(lock.name()).await.unwrap(), first);
    if env.descriptor().lease_scope == LeaseScope::Connection {
        // The lock ended with its connection, and the store may know this at the second request.
        let answer = written.map_err(|error| error.kind());
        assert!(matches!(answer, Ok(Noted::Written) | Err(ErrorKind::Lost)), "C5: {answer:?}");
        return drop(guard);
    }
    assert_eq!(written.unwrap(), Noted::Written, "C5: the first request was applied");
    give_back(guard).await;
}

async fn c5_a_note_with_an_unknown_outcome_is_not_reported_as_unwritten(env: Env) {
    let (locker, link) = faulty_locker(&env).await;
    let healthy = env.locker().await;
    let lock = env.lock(&locker, "x", long());
    let guard = take(&lock).await;
    link.set(Faults::LOST_REPLIES);
    let guard = &guard;
    let name = lock.name();
    let first = note(1, "one");
    let (outcome, ()) = tokio::join!(within(soon(), "the note", guard.write_note(&first)), async {
        eventually(soon(), async || match healthy.note(name).await {
            Ok(seen) if seen == first => Ok(()),
            other => Err(format!("the note is not there: {other:?}")),
        })
        .await;
        free_by_force(async || healthy.force_release(name, guard.fencing_token()).await).await;
        link.cut();
        link.heal();
    });
    let error = outcome.unwrap_err();
    assert!(error.kind() == ErrorKind::Lost && error.is_outcome_unknown(), "C5: {error:?}");
    assert_eq!(healthy.note(name).await.unwrap(), first);
}

async fn c6_a_note_is_written_though_its_caller_has_left(env: Env) {
    let (locker, link) = faulty_locker(&env).await;
    let healthy = env.locker().await;
    let lock = env.lock(&locker, "x", long());
    let guard = take(&lock).await;
    let first = note(1, "one");
    link.set(Faults { hold_requests: true, ..Faults::NONE });
    timeout(env.moment(), guard.write_note(&first))
        .await
        .expect_err("it was written before it arrived");
    link.heal();
    eventually(soon(), async || match healthy.note(lock.name()).await {
        Ok(seen) if seen == first => Ok(()),
        other => Err(format!("C6: it was dropped midway: {other:?}")),
    })
    .await;
    give_back(guard).await;
}

async fn c5_a_late_note_does_nothing(env: Env) {
    let (locker, link) = faulty_locker(&env).await;
    let healthy = env.locker().await;
    let lock = env.lock(&locker, "x", long().with_op_timeout(env.bound()));
    let guard = take(&lock).await;
    link.set(Faults { hold_requests: true, ..Faults::NONE });
    let error = guard.write_note(&note(1, "late")).await.unwrap_err();
    assert!(error.is_outcome_unknown(), "C5: {error:?}");
    // An operator frees the lock, because no request of the holder itself gets through.
    free_by_force(async || healthy.force_release(lock.name(), guard.fencing_token()).await).await;
    let next = take(&env.lock(&healthy, "x", long())).await;
    assert_eq!(next.write_note(&note(1, "next")).await.unwrap(), Noted::Written);
    link.heal();
    tokio::time::sleep(env.patience()).await;
    assert_eq!(
        healthy.note(lock.name()).await.unwrap(),
        note(1, "next"),
        "C5: a late note was written"
    );
    give_back(next).await;
    drop(guard);
}

async fn c11_notes_of_two_names_never_meet(env: Env) {
    let locker = env.locker().await;
    let long_a = "y".repeat(254) + "a";
    let long_b = "y".repeat(254) + "b";
    let names = [
        "a",
        "A",
        "a ",
        "a:note",
        "a/note",
        "{a}",
        "a%",
        "\u{1f512}",
        "a\u{301}",
        &long_a,
        &long_b,
    ];
    for name in names {
        let guard = take(&env.lock(&locker, name, long())).await;
        assert_eq!(guard.write_note(&note(1, name)).await.unwrap(), Noted::Written);
        give_back(guard).await;
    }
    for name in names {
        assert_eq!(locker.note(&env.name(name)).await.unwrap(), note(1, name));
    }
    let election = locker.election("a").unwrap();
    assert_eq!(
        locker.note(election.name()).await.unwrap(),
        Note::default(),
        "C11: a note of another kind"
    );
    let leader = election.campaign("me").await.unwrap();
    assert_eq!(leader.hold().write_note(&note(1, "leader")).await.unwrap(), Noted::Written);
    assert_eq!(locker.note(&env.name("a")).await.unwrap(), note(1, "a"));
    assert_eq!(locker.note(election.name()).await.unwrap(), note(1, "leader"));
    leader.resign().await.unwrap();
}

async fn c11_a_note_is_read_as_it_was_written(env: Env) {
    let locker = env.locker().await;
    let guard = take(&env.lock(&locker, "x", long())).await;
    let whole = "\u{1f512}".repeat(MAX_NOTE_BYTES / 4);
    let texts = [
        "",
        " ",
        "a ",
        "A",
        "a",
        "'\"\\%_*{}",
        "two\nlines\r\n\t",
        "\0",
        "\u{1f512}\u{e9}",
        "1",
        &whole,
    ];
    let mut last = Note::default();
    for text in texts {
        last = last.next(text);
        assert_eq!(guard.write_note(&last).await.unwrap(), Noted::Written, "{text:?}");
        assert_eq!(locker.note(guard.name()).await.unwrap(), last, "C11: {text:?}");
    }
    give_back(guard).await;
}

async fn c13_a_note_of_a_kind_without_notes_is_an_error(env: Env) {
    let locker = env.locker().await;
    let guard = take(&env.lock(&locker, "x", long())).await;
    let error = guard.write_note(&note(1, &"x".repeat(MAX_NOTE_BYTES + 1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    give_back(guard).await;
    for flavor in [Flavor::Writer, Flavor::OnePermit] {
        if !flavor.is_in(locker.capabilities()) {
            continue;
        }
        let lock = flavor.lock(&locker, "y", long()).unwrap();
        env.will_be_free(lock.name());
        let guard = take(&lock).await;
        assert_eq!(
            guard.write_note(&note(1, "a")).await.unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        assert_eq!(locker.note(lock.name()).await.unwrap_err().kind(), ErrorKind::Unsupported);
        give_back(guard).await;
    }
}

/// How far a store's clock may differ. Servers under test run on this machine, and tests set some
/// of their clocks by hours, but never by years.
const DAYS: Duration = Duration::from_secs(3 * 24 * 3_600);

async fn c14_the_store_reports_its_time(env: Env) {
    let locker = env.locker().await;
    let before = locker.time().await.unwrap();
    let here = SystemTime::now();
    let apart = before.duration_since(here).unwrap_or_else(|error| error.duration());
    assert!(apart < DAYS, "the store's clock is {apart:?} apart from this machine's");
    env.pause().await;
    let passed = locker.time().await.unwrap().duration_since(before).expect("time goes on");
    let least = env.moment() / 2;
    assert!(
        (least..soon()).contains(&passed),
        "{passed:?} passed on the store's clock in {:?}",
        least * 2
    );
}
