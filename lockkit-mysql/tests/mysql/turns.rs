//! Tests whose turn it is when a process could keep the lock to itself. The row shows whether
//! clients elsewhere wait.

use lockkit_core::{
    FencingToken,
    spi::{Backend as _, Claim, QueuePolicy, Released, Transferred, Wait},
};
use lockkit_fixture::SqlFlavor;
use lockkit_mysql::MySql;
use tokio::time::Instant;

use crate::support::*;

on_both!(
    c12_without_outside_waiters_a_transfer_takes_one_statement,
    c12_a_waiter_of_another_process_goes_first,
    c12_waiters_of_the_same_client_are_not_outsiders,
    c12_a_waiter_that_left_is_forgotten,
    c5_a_turn_without_an_answer_is_freed_by_its_release,
    c2_c3_a_turn_passes_nothing_on_that_was_lost,
);

async fn first(claim: &mut dyn Claim) -> Transferred {
    claim.transfer(&spec("a"), QueuePolicy::QueueFirst).await.unwrap()
}

fn token(transferred: Transferred) -> FencingToken {
    match transferred {
        Transferred::Granted(grant) => grant.token,
        other => panic!("C12: nobody waits, and the lock went to nobody: {other:?}"),
    }
}

async fn holder(backend: &MySql) -> (Box<dyn Claim>, FencingToken) {
    let mut claim = claim(backend, "a");
    let token = granted(claim.attempt(Wait::No).await).token;
    (claim, token)
}

/// Writes the record that another client waits.
async fn someone_waits(bed: &Bed, admin: &mut Admin) {
    let table = bed.table("lock");
    admin
        .run(format!("UPDATE {table} SET wanted_us={NOW}+60000000,wanted_by=7 WHERE name='a'"))
        .await;
}

/// Catches a lock that is freed on a guess, and a question before the transfer.
async fn c12_without_outside_waiters_a_transfer_takes_one_statement(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    let (mut claim, mut last) = holder(&backend).await;
    token(first(&mut *claim).await);
    let mut before = admin.status("Questions").await;
    for _ in 0..5 {
        let next = token(first(&mut *claim).await);
        assert!(next > last, "C4: {next} after {last}");
        last = next;
        let now = admin.status("Questions").await;
        assert_eq!(now - std::mem::replace(&mut before, now) - 1, 1);
    }
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert!(next_token(&backend, "a").await > last);
}

/// Catches a waiter that records nothing, a record without an effect, and a client that still
/// records a waiter after it was served.
async fn c12_a_waiter_of_another_process_goes_first(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let there = bed.locker("").await;
    let mut admin = bed.admin().await;
    let (mut claim, _) = holder(&backend).await;
    let lock = there.mutex("a").unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
    until("it says that it waits", async || admin.one::<u64>(bed.wanted("a")).await == 1).await;
    let answer = claim.transfer(&spec("a"), QueuePolicy::TransferFirst).await.unwrap();
    let mut last = token(answer);
    // A record lasts for a second, and a server that stalls lets it end. Then the client records
    // again that it waits.
    until("C12: the one who waits outside has its turn", async || match first(&mut *claim).await {
        Transferred::Yielded => true,
        passed_over => {
            last = token(passed_over);
            false
        }
    })
    .await;
    let guard = within(SOON, "the outsider's grant", waiting).await.unwrap();
    assert!(guard.fencing_token() > last, "C4");
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld, "C2");
    // The grant ends the record, as a test of its statement shows. A record that was under way at
    // the grant comes after it, and ends by itself.
    until("it waits no more", async || admin.one::<u64>(bed.wanted("a")).await == 0).await;
    guard.release().await.unwrap();
}

/// Catches a client that transfers the lock to itself by way of the store.
async fn c12_waiters_of_the_same_client_are_not_outsiders(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let mut admin = bed.admin().await;
    let (mut holder, _) = holder(&backend).await;
    let mut waiter = claim(&backend, "a");
    busy(waiter.attempt(Wait::Queue).await);
    until("it says that it waits", async || admin.one::<u64>(bed.wanted("a")).await == 1).await;
    token(first(&mut *holder).await);
    assert_eq!(waiter.release().await.unwrap(), Released::NotHeld);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
}

/// Catches a record that lasts for ever, or that a client renews without a waiter.
async fn c12_a_waiter_that_left_is_forgotten(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let there = bed.locker("").await;
    let mut admin = bed.admin().await;
    let (mut claim, _) = holder(&backend).await;
    let lock = there.mutex("a").unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
    until("it says that it waits", async || admin.one::<u64>(bed.wanted("a")).await == 1).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    until("nobody waits", async || admin.one::<u64>(bed.wanted("a")).await == 0).await;
    token(first(&mut *claim).await);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

/// The lock may have been freed by then, or not.
async fn c5_a_turn_without_an_answer_is_freed_by_its_release(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let (backend, proxy) = bed.behind_proxy("").await;
    let mut admin = bed.admin().await;
    for (is_wanted, is_applied) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut claim, _) = holder(&backend).await;
        // The statement is prepared.
        let last = token(first(&mut *claim).await);
        if is_wanted {
            someone_waits(&bed, &mut admin).await;
        }
        proxy.set(
            |toxics| if is_applied { toxics.down.discard = true } else { toxics.up.discard = true },
        );
        let to = spec("a");
        let held =
            format!("SELECT COUNT(*) FROM {} WHERE name='a' AND owner<>''", bed.table("lock"));
        let passed = format!(
            "SELECT COUNT(*) FROM {} WHERE name='a' AND owner='{}'",
            bed.table("lock"),
            to.owner
        );
        let is_freed = is_wanted && is_applied;
        let sent = Instant::now();
        let request = claim.transfer(&to, QueuePolicy::QueueFirst);
        let is_over = async || match (is_applied, is_wanted) {
            (true, true) => admin.one::<u64>(&held).await == 0,
            (true, false) => admin.one::<u64>(&passed).await == 1,
            (false, _) => sent.elapsed() > SLACK,
        };
        unanswered(request, is_over).await;
        assert_eq!(admin.one::<u64>(held).await, u64::from(!is_freed));
        proxy.heal();
        let expected = if is_freed { Released::NotHeld } else { Released::Freed };
        assert_eq!(claim.release().await.unwrap(), expected);
        assert!(backend.inspect(&mutex("a")).await.unwrap().holders.is_empty());
        assert!(next_token(&backend, "a").await > last);
        admin.run(format!("UPDATE {} SET wanted_us=0 WHERE name='a'", bed.table("lock"))).await;
    }
}

/// Catches a statement that frees the lock, or passes it on, without a check of the owner and the
/// lease.
async fn c2_c3_a_turn_passes_nothing_on_that_was_lost(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let there = bed.connect("").await;
    let mut admin = bed.admin().await;
    for is_wanted in [true, false] {
        let (mut past, _) = holder(&backend).await;
        admin
            .run(format!("UPDATE {} SET expires_us={NOW}-1 WHERE name='a'", bed.table("lock")))
            .await;
        if is_wanted {
            someone_waits(&bed, &mut admin).await;
        }
        assert_eq!(first(&mut *past).await, Transferred::NotHeld, "C3");
        let (mut present, token) = holder(&there).await;
        if is_wanted {
            someone_waits(&bed, &mut admin).await;
        }
        assert_eq!(first(&mut *past).await, Transferred::NotHeld, "C2");
        let seen = there.inspect(&mutex("a")).await.unwrap();
        assert_eq!(seen.holders[0].token, Some(token));
        assert_eq!(past.release().await.unwrap(), Released::NotHeld);
        assert_eq!(present.release().await.unwrap(), Released::Freed);
        admin.run(format!("UPDATE {} SET wanted_us=0 WHERE name='a'", bed.table("lock"))).await;
    }
}
