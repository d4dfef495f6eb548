//! Tests of transfers inside a process, and of raised tokens.

use std::{collections::BTreeSet, time::Duration};

use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, OwnerId,
    spi::{
        Admin as _, Attempt, Backend as _, Claim, Lease, Mode, QueuePolicy, Released,
        RenewalOutcome, Transferred, Wait,
    },
};
use lockkit_fixture::{SqlFlavor, claims::given_up, cut};
use lockkit_mysql::MySql;
use tokio::time::{Instant, sleep, timeout};

use crate::support::*;

on_both!(
    a_transfer_is_one_statement,
    c5_a_transfer_without_an_answer_is_freed_by_its_release,
    c5_a_late_transfer_after_the_release_grants_nothing,
    c5_a_transfer_that_comes_too_late_is_not_done,
    c1_a_transfer_waits_for_its_row_and_is_whole_or_not_at_all,
    c6_a_storm_of_dropped_transfers_leaves_nothing,
    c3_the_new_owner_has_its_own_lease,
    c13_readers_and_permits_are_not_transferred,
    c4_a_raised_token_without_an_answer_is_known_to_all_requests,
    c4_raised_tokens_of_readers_are_below_the_next_writers,
    c4_a_token_is_not_raised_so_high_that_none_is_left,
);

async fn transfer(claim: &mut dyn Claim, name: &str) -> (FencingToken, OwnerId) {
    let to = spec(name);
    match claim.transfer(&to, QueuePolicy::TransferFirst).await.unwrap() {
        Transferred::Granted(grant) => (grant.token, to.owner),
        other => panic!("{other:?}"),
    }
}

async fn row(bed: &Bed, admin: &mut Admin, name: &str) -> (String, u64) {
    let table = bed.table("lock");
    admin
        .one(format!("SELECT CONVERT(owner USING utf8mb4),fence FROM {table} WHERE name='{name}'"))
        .await
}

/// Catches a transfer that is a release and an acquisition, a question for the time, and a
/// transaction around a statement.
async fn a_transfer_is_one_statement(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    let mut claim = claim(&backend, "a");
    granted(claim.attempt(Wait::No).await);
    // Each statement is prepared once, on the connection that was used last. The sign of life has a
    // connection of its own.
    transfer(&mut *claim, "a").await;
    claim.raise_token(FencingToken::new(0)).await.unwrap();
    backend.probe().await.unwrap();
    let mut last = admin.status("Questions").await;
    let mut asked = async |what: &str| {
        let now = admin.status("Questions").await;
        let new = now - std::mem::replace(&mut last, now) - 1;
        assert_eq!(new, 1, "{what}");
    };
    for _ in 0..5 {
        transfer(&mut *claim, "a").await;
        asked("a transfer").await;
    }
    let token = claim.raise_token(FencingToken::new(0)).await.unwrap().unwrap();
    asked("a token that is raised").await;
    assert!(matches!(claim.renew(Some(TTL * 2)).await.unwrap(), RenewalOutcome::Alive(_)));
    asked("an extension").await;
    backend.probe().await.unwrap();
    asked("a sign of life").await;
    assert_eq!(backend.names(Kind::Mutex, "").await.unwrap(), [mutex("a")]);
    asked("a list of names").await;
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    asked("a release").await;
    assert!(next_token(&backend, "a").await > token);
}

/// Catches a release of the previous owner only, and one of the new owner only.
async fn c5_a_transfer_without_an_answer_is_freed_by_its_release(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let (backend, proxy) = bed.behind_proxy("").await;
    let mut admin = bed.admin().await;
    for is_applied in [true, false, true, false] {
        let mut claim = claim(&backend, "a");
        granted(claim.attempt(Wait::No).await);
        // The statement is prepared.
        let (old, _) = transfer(&mut *claim, "a").await;
        let previous = row(&bed, &mut admin, "a").await.0;
        proxy.set(
            |toxics| if is_applied { toxics.down.discard = true } else { toxics.up.discard = true },
        );
        let to = spec("a");
        let sent = Instant::now();
        let expected = if is_applied { to.owner.to_string() } else { previous };
        let is_over = async || match is_applied {
            true => row(&bed, &mut admin, "a").await.0 == expected,
            false => sent.elapsed() > SLACK,
        };
        unanswered(claim.transfer(&to, QueuePolicy::TransferFirst), is_over).await;
        let (owner, fence) = row(&bed, &mut admin, "a").await;
        assert_eq!((owner, fence > old.get()), (expected, is_applied));
        proxy.heal();
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
        assert!(backend.inspect(&mutex("a")).await.unwrap().holders.is_empty());
        assert!(next_token(&backend, "a").await.get() > fence);
    }
}

/// A proxy delivers the transfer when its client has given up, and the lock has another owner.
async fn c5_a_late_transfer_after_the_release_grants_nothing(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let (backend, proxy) = bed.behind_proxy("").await;
    let there = bed.connect("").await;
    let mut admin = bed.admin().await;
    let mut claim = claim(&backend, "a");
    granted(claim.attempt(Wait::No).await);
    // Both connections that are needed are open.
    transfer(&mut *claim, "a").await;
    proxy.set(|toxics| toxics.up.hold = true);
    let to = spec("a");
    assert!(
        timeout(SLACK, claim.transfer(&to, QueuePolicy::TransferFirst)).await.is_err(),
        "it was not held back"
    );
    // An operator frees the lock on another way, because nothing gets through here.
    let seen = there.inspect(&mutex("a")).await.unwrap().holders;
    let freed = there.force_release(&mutex("a"), seen[0].token.unwrap()).await.unwrap();
    assert_eq!(freed, Released::Freed);
    let mut other = crate::support::claim(&there, "a");
    let token = granted(other.attempt(Wait::No).await).token;
    proxy.heal();
    for _ in 0..20 {
        let (owner, fence) = row(&bed, &mut admin, "a").await;
        assert_ne!(owner, to.owner.to_string());
        assert_eq!(fence, token.get());
        sleep(Duration::from_millis(10)).await;
    }
    let released = claim.release().await.or_else(|error| {
        if error.is_temporary() || error.is_outcome_unknown() {
            Ok(Released::NotHeld)
        } else {
            Err(error)
        }
    });
    assert_eq!(released.unwrap(), Released::NotHeld);
    assert!(matches!(other.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(other.release().await.unwrap(), Released::Freed);
}

/// A late transfer is not done, even while the previous owner still has the lock.
async fn c5_a_transfer_that_comes_too_late_is_not_done(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let (backend, proxy) = bed.behind_proxy("").await;
    let mut admin = bed.admin().await;
    // Otherwise the statement would have to be prepared first, and only that would come late.
    let mut first = claim(&backend, "first");
    granted(first.attempt(Wait::No).await);
    assert!(matches!(
        first.transfer(&spec("first"), QueuePolicy::TransferFirst).await.unwrap(),
        Transferred::Granted(_)
    ));
    assert_eq!(first.release().await.unwrap(), Released::Freed);
    let short = || lockkit_fixture::claims::spec("a", TTL, SHORT / 3);
    let mut claim = backend.claim(short()).unwrap();
    granted(Ok(persistently(async || claim.attempt(Wait::No).await).await));
    let before = row(&bed, &mut admin, "a").await;
    proxy.set(|toxics| toxics.up.hold = true);
    assert!(
        timeout(SHORT / 3, claim.transfer(&short(), QueuePolicy::TransferFirst)).await.is_err()
    );
    sleep(SHORT / 3).await;
    proxy.heal();
    for _ in 0..20 {
        assert_eq!(row(&bed, &mut admin, "a").await, before);
        sleep(Duration::from_millis(10)).await;
    }
    settle(&mut *claim).await;
    assert!(backend.inspect(&mutex("a")).await.unwrap().holders.is_empty());
}

/// Another client is at work on the row: for a while, and for too long.
async fn c1_a_transfer_waits_for_its_row_and_is_whole_or_not_at_all(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect("").await;
    let mut locked = bed.admin().await;
    let mut admin = bed.admin().await;
    let lock =
        format!("SELECT 1 FROM {} WHERE kind='mutex' AND name='a' FOR UPDATE", bed.table("lock"));
    let mut claim = claim(&backend, "a");
    let first = granted(claim.attempt(Wait::No).await).token;
    let mut begin = async || {
        locked.run("START TRANSACTION").await;
        locked.run(&lock).await;
    };
    begin().await;
    let to = spec("a");
    let waiting = async { claim.transfer(&to, QueuePolicy::TransferFirst).await };
    // Longer than the server lets the statement wait, so that it has to be sent again.
    let freed = async {
        sleep(Duration::from_millis(1500)).await;
        admin.kill_lockers(&bed).await;
    };
    let (answer, ()) = tokio::join!(waiting, freed);
    let Transferred::Granted(grant) = answer.unwrap() else { panic!("not transferred") };
    assert!(grant.token > first);
    let (owner, fence) = row(&bed, &mut admin, "a").await;
    assert_eq!((owner, fence), (to.owner.to_string(), grant.token.get()));
    let mut locked = bed.admin().await;
    locked.run("START TRANSACTION").await;
    locked.run(&lock).await;
    let refused = claim.transfer(&spec("a"), QueuePolicy::TransferFirst).await.unwrap_err();
    assert!(refused.is_temporary() && !refused.is_outcome_unknown(), "{refused}");
    locked.run("ROLLBACK").await;
    assert!(
        matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)),
        "the refusal ended the lease"
    );
    assert_eq!(row(&bed, &mut admin, "a").await, (to.owner.to_string(), grant.token.get()));
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

impl Admin {
    /// Ends all transactions of other administrators that have locked rows.
    async fn kill_lockers(&mut self, _: &Bed) {
        let open = "SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX \
                    WHERE trx_rows_locked>0 AND trx_state='RUNNING' AND trx_mysql_thread_id<>CONNECTION_ID()";
        for thread in self.all::<u64>(open).await {
            self.run(format!("KILL {thread}")).await;
        }
    }
}

async fn assert_free(backend: &MySql, round: u32) {
    let seen = persistently(async || backend.inspect(&mutex("a")).await).await;
    assert!(seen.holders.is_empty(), "round {round}: something was left behind: {seen:?}");
}

/// Transfers are dropped at any point and connections are killed, while others try to get in.
async fn c6_a_storm_of_dropped_transfers_leaves_nothing(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(QUIET).await;
    let there = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    let mut handed = 0;
    let mut dropped = 0;
    let mut last = FencingToken::new(0);
    for round in 0..150_u32 {
        let mut claim = claim(&backend, "a");
        let token = match claim.attempt(Wait::No).await {
            Ok(Attempt::Granted(grant)) => grant.token,
            // A dropped transfer may still have the row, but no owner has the lock.
            Ok(_) => {
                assert_free(&there, round).await;
                continue;
            }
            Err(error) => {
                assert!(error.is_temporary() || error.is_outcome_unknown(), "{error}");
                settle(&mut *claim).await;
                continue;
            }
        };
        assert!(token > last, "{token} after {last}");
        last = token;
        for _ in 0..3 {
            if round % 10 == 0 {
                admin.kill_all().await;
            }
            let polls = rand::random_range(1..6);
            let late = rand::random();
            match cut(claim.transfer(&spec("a"), QueuePolicy::TransferFirst), polls, late).await {
                Some(Ok(Transferred::Granted(grant))) => {
                    assert!(grant.token > last, "{} after {last}", grant.token);
                    last = grant.token;
                    handed += 1;
                    busy_or_broken(&there).await;
                }
                Some(Ok(other)) => panic!("{other:?}"),
                Some(Err(error)) => {
                    assert!(error.is_temporary() || error.is_outcome_unknown(), "{error}");
                    break;
                }
                None => {
                    dropped += 1;
                    break;
                }
            }
        }
        settle(&mut *claim).await;
        assert_free(&there, round).await;
    }
    assert!(
        handed > 25 && dropped > 25,
        "{handed} transferred, {dropped} dropped: the test shows nothing"
    );
    bed.assert_clean().await;
}

async fn settle(claim: &mut dyn Claim) {
    until("it is released", async || match claim.release().await {
        Ok(Released::Freed | Released::NotHeld) => true,
        Err(error) => {
            assert!(error.is_temporary() || error.is_outcome_unknown(), "{error}");
            false
        }
    })
    .await;
}

async fn busy_or_broken(backend: &MySql) {
    let mut outsider = claim(backend, "a");
    match outsider.attempt(Wait::No).await {
        Ok(Attempt::Busy { .. }) => {}
        Ok(granted) => panic!("C1: {granted:?}"),
        Err(_) => settle(&mut *outsider).await,
    }
}

/// Catches renewals with the previous owner's ttl.
async fn c3_the_new_owner_has_its_own_lease(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let mut claim = claim(&backend, "a");
    granted(claim.attempt(Wait::No).await);
    for ttl in [TTL * 4, TTL / 4] {
        let mut to = spec("a");
        to.ttl = ttl;
        let Transferred::Granted(grant) =
            claim.transfer(&to, QueuePolicy::TransferFirst).await.unwrap()
        else {
            panic!()
        };
        assert_eq!(grant.lease, Lease::For(ttl));
        for renewed in [false, true] {
            if renewed {
                assert_eq!(
                    claim.renew(None).await.unwrap(),
                    RenewalOutcome::Alive(Lease::For(ttl))
                );
            }
            let left = backend.inspect(&mutex("a")).await.unwrap().holders[0].remaining.unwrap();
            assert!(left <= ttl && left > ttl - SOON.min(ttl / 2), "{left:?} of {ttl:?}");
        }
    }
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert_eq!(
        claim.transfer(&spec("a"), QueuePolicy::TransferFirst).await.unwrap(),
        Transferred::NotHeld
    );
    next_token(&backend, "a").await;
}

async fn c13_readers_and_permits_are_not_transferred(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let permits = Mode::Permits { count: 1.try_into().unwrap(), limit: 2.try_into().unwrap() };
    for (kind, mode) in
        [(Kind::RwLock, Mode::Shared), (Kind::RwLock, Mode::Exclusive), (Kind::Semaphore, permits)]
    {
        let mut claim = claim_in(&backend, kind, "a", mode);
        granted(claim.attempt(Wait::No).await);
        let mut to = spec("a");
        (to.name, to.mode) = (LockName::new(kind, "a").unwrap(), mode);
        let error = claim.transfer(&to, QueuePolicy::TransferFirst).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(!error.is_outcome_unknown());
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
    let mut claim = claim(&backend, "a");
    granted(claim.attempt(Wait::No).await);
    let error = claim.transfer(&spec("b"), QueuePolicy::TransferFirst).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

/// Catches renewals and transfers that compare the earlier token.
async fn c4_a_raised_token_without_an_answer_is_known_to_all_requests(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let (backend, proxy) = bed.behind_proxy("").await;
    let mut admin = bed.admin().await;
    for (kind, is_applied) in [(Kind::Mutex, true), (Kind::Mutex, false), (Kind::RwLock, true)] {
        let mut claim = claim_in(&backend, kind, "a", Mode::Exclusive);
        let token = granted(claim.attempt(Wait::No).await).token;
        assert_eq!(claim.raise_token(token).await.unwrap(), Some(token));
        let floor = FencingToken::new(token.get() + 3_600_000_000);
        proxy.set(
            |toxics| if is_applied { toxics.down.discard = true } else { toxics.up.discard = true },
        );
        let table = bed.table(if kind == Kind::Mutex { "lock" } else { "holder" });
        let raised = format!("SELECT COUNT(*) FROM {table} WHERE kind='{kind}' AND fence>={floor}");
        let sent = Instant::now();
        let is_over = async || match is_applied {
            true => admin.one::<u64>(&raised).await == 1,
            false => sent.elapsed() > SLACK,
        };
        unanswered(claim.raise_token(floor), is_over).await;
        proxy.heal();
        assert!(
            matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)),
            "{kind} {is_applied}"
        );
        let expected = if is_applied { floor } else { token };
        if kind == Kind::Mutex {
            assert!(transfer(&mut *claim, "a").await.0 > expected);
        } else {
            assert_eq!(granted(claim.attempt(Wait::No).await).token, expected);
        }
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        let mut next = claim_in(&backend, kind, "a", Mode::Exclusive);
        assert!(granted(next.attempt(Wait::No).await).token > expected);
        given_up(next.release()).await;
    }
}

async fn c4_raised_tokens_of_readers_are_below_the_next_writers(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let name = LockName::new(Kind::RwLock, "a").unwrap();
    let reader = || claim_in(&backend, Kind::RwLock, "a", Mode::Shared);
    let mut first = reader();
    let mut second = reader();
    let mut third = reader();
    let token = granted(first.attempt(Wait::No).await).token;
    let untouched = granted(second.attempt(Wait::No).await).token;
    let floor = FencingToken::new(token.get() + 3_600_000_000);
    assert_eq!(first.raise_token(floor).await.unwrap(), Some(floor));
    let seen = backend.inspect(&name).await.unwrap().holders;
    let tokens: BTreeSet<_> = seen.iter().filter_map(|holder| holder.token).collect();
    assert_eq!(tokens, [untouched, floor].into());
    assert!(matches!(first.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert!(granted(third.attempt(Wait::No).await).token > floor);
    for claim in [&mut first, &mut second, &mut third] {
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        assert_eq!(claim.raise_token(floor).await.unwrap(), None);
    }
    let mut writer = claim_in(&backend, Kind::RwLock, "a", Mode::Exclusive);
    assert!(granted(writer.attempt(Wait::No).await).token > floor);
    given_up(writer.release()).await;
}

async fn c4_a_token_is_not_raised_so_high_that_none_is_left(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let mut claim = claim(&backend, "a");
    granted(claim.attempt(Wait::No).await);
    for floor in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 62) + 1] {
        let error = claim.raise_token(FencingToken::new(floor)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains(&floor.to_string()), "{error}");
    }
    let highest = FencingToken::new(1 << 62);
    assert_eq!(claim.raise_token(highest).await.unwrap(), Some(highest));
    let (mut last, _) = transfer(&mut *claim, "a").await;
    assert!(last > highest);
    assert_eq!(claim.raise_token(highest).await.unwrap(), Some(last));
    assert_eq!(backend.inspect(&mutex("a")).await.unwrap().holders[0].token, Some(last));
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    for _ in 0..3 {
        let token = next_token(&backend, "a").await;
        assert!(token > last);
        last = token;
    }
}
