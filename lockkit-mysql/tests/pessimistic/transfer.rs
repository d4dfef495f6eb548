//! Tests of transfers of a row lock inside a process, raised tokens, longer leases, and lists of
//! names.

use std::{any::Any, sync::Arc, time::Duration};

use lockkit_core::{
    ErrorKind, FencingToken, Kind,
    spi::{
        Admin as _, Attachment as _, Attempt, Backend as _, Claim, Grant, Lease, LossReason,
        QueuePolicy, Released, RenewalOutcome, Role, Transferred, Wait,
    },
};
use lockkit_fixture::{claims::given_up, cut};
use lockkit_mysql::{LockTransaction, MySql, mysql_async::prelude::Queryable as _};
use tokio::time::{Instant, sleep, timeout};

use crate::support::*;

on_both! {
    c1_the_row_stays_locked_through_transfers,
    c2_a_lock_that_an_operator_freed_is_not_transferred,
    c3_a_lock_of_a_killed_connection_is_not_transferred,
    c3_the_session_fits_the_new_lease,
    c6_a_storm_of_dropped_transfers_leaves_nothing,
    the_previous_owners_transaction_leads_nowhere,
    a_transaction_that_was_used_ends_with_its_owner,
    c3_an_extended_lease_lasts_until_its_end_and_no_longer,
    c9_an_extended_strict_lease_is_waited_for,
    c4_a_raised_token_does_not_hide_a_connection_from_operators,
    c4_a_lost_lock_raises_nothing,
    c14_names_are_listed_while_their_holders_live,
    c14_a_sign_of_life_needs_no_free_connection,
}

/// Short, because the tests wait for the end of a strict lease that was given up.
const BRIEF: Duration = Duration::from_millis(1200);

async fn transfer(claim: &mut dyn Claim, name: &str, ttl: Duration) -> Grant {
    match claim.transfer(&spec_for(name, ttl), QueuePolicy::TransferFirst).await.unwrap() {
        Transferred::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn transaction(claim: &dyn Claim) -> Arc<LockTransaction> {
    let attachment: Arc<dyn Any + Send + Sync> = claim.attachment().unwrap();
    attachment.downcast().unwrap()
}

async fn sell(store: &Store, transaction: &LockTransaction, item: u32) {
    store
        .admin
        .run("CREATE TABLE IF NOT EXISTS stock (item INT PRIMARY KEY, pieces INT) ENGINE=InnoDB")
        .await;
    let sold = transaction
        .run(async |conn| conn.query_drop(format!("INSERT INTO stock VALUES ({item}, 7)")).await)
        .await;
    sold.unwrap().unwrap();
}

/// The server gives the same list again to a client that asks more often than this.
async fn no_transaction(store: &Store) {
    let start = Instant::now();
    while store.admin.count("information_schema.INNODB_TRX").await > 0 {
        assert!(start.elapsed() < SOON, "a transaction is left");
        sleep(Duration::from_millis(120)).await;
    }
}

/// Catches a COMMIT between two owners. After it, a waiter in the server would be next.
async fn c1_the_row_stays_locked_through_transfers(flavor: SqlFlavor) {
    for strict in ["", "&strict_lease=true"] {
        let store = Store::start_with(flavor, strict).await;
        let mut claim = store.claim("a");
        let mut last = granted(claim.attempt(Wait::No).await).token;
        let thread = store.admin.thread("a").await;
        let mut outsider = store.another().await.claim(spec_for("a", TTL)).unwrap();
        let waiting = tokio::spawn(async move {
            let grant = granted(outsider.attempt(Wait::Block(SOON)).await);
            given_up(outsider.release()).await;
            grant.token
        });
        until("it waits in the server", || async { store.admin.waiting().await == 1 }).await;
        for _ in 0..50 {
            let grant = transfer(&mut *claim, "a", TTL).await;
            assert!(grant.token > last);
            last = grant.token;
            assert!(!waiting.is_finished());
        }
        assert_eq!(store.admin.thread("a").await, thread);
        assert_eq!(
            claim.transfer(&spec_for("a", TTL), QueuePolicy::QueueFirst).await.unwrap(),
            Transferred::Yielded
        );
        assert!(timeout(SOON, waiting).await.unwrap().unwrap() > last);
        assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
        // Neither sign is left on a connection that others use now.
        assert_eq!(store.mysql.names(Kind::Mutex, "").await.unwrap(), []);
    }
}

async fn c2_a_lock_that_an_operator_freed_is_not_transferred(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    let token = granted(claim.attempt(Wait::No).await).token;
    store.admin.run("UPDATE lockkit_fence SET owner=''").await;
    assert_eq!(
        claim.transfer(&spec_for("a", TTL), QueuePolicy::TransferFirst).await.unwrap(),
        Transferred::NotHeld
    );
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    let mut next = store.claim("a");
    no_transaction(&store).await;
    assert!(granted(next.attempt(Wait::No).await).token > token);
    given_up(next.release()).await;
}

/// Catches a transfer that does not ask the holder's own connection whether the row is still
/// locked. No other client takes the row, so nothing else shows the loss.
async fn c3_a_lock_of_a_killed_connection_is_not_transferred(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    let token = granted(claim.attempt(Wait::No).await).token;
    store.admin.kill(store.admin.thread("a").await).await;
    assert_eq!(
        claim.transfer(&spec_for("a", TTL), QueuePolicy::TransferFirst).await.unwrap(),
        Transferred::NotHeld
    );
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    let mut next = store.claim("a");
    assert!(granted(next.attempt(Wait::No).await).token > token);
    given_up(next.release()).await;
}

/// Catches a session that keeps the timeout of the previous owner's lease.
async fn c3_the_session_fits_the_new_lease(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut longer = store.claim_for("longer", SHORT);
    let mut shorter = store.claim("shorter");
    granted(longer.attempt(Wait::No).await);
    granted(shorter.attempt(Wait::No).await);
    let grant = transfer(&mut *longer, "longer", TTL).await;
    assert!(matches!(grant.lease, Lease::Proven { lasts, .. } if lasts == TTL), "{grant:?}");
    let grant = transfer(&mut *shorter, "shorter", SHORT).await;
    assert!(matches!(grant.lease, Lease::Proven { lasts, .. } if lasts == SHORT), "{grant:?}");
    // No request is sent meanwhile.
    let thread = store.admin.thread("shorter").await;
    store.admin.until_ended(thread).await;
    sleep(Duration::from_secs(1)).await;
    assert!(matches!(longer.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(longer.release().await.unwrap(), Released::Freed);
    assert!(matches!(
        shorter.renew(None).await.unwrap(),
        RenewalOutcome::Lost(LossReason::SessionLost)
    ));
    assert_eq!(shorter.release().await.unwrap(), Released::NotHeld);
}

/// Transfers are dropped after any step, and connections are killed.
async fn c6_a_storm_of_dropped_transfers_leaves_nothing(flavor: SqlFlavor) {
    for strict in ["", "&strict_lease=true"] {
        let store = Store::start_with(flavor, strict).await;
        let there = store.another().await;
        let mut storm = Storm { there, last: FencingToken::new(0), handed: 0, dropped: 0 };
        for round in 0..120_u32 {
            let mut claim = store.claim_for("a", BRIEF);
            storm.granted(&mut *claim, round).await;
            for _ in 0..3 {
                if round % 10 == 9 {
                    let kill = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER='lockkit' LIMIT 1";
                    store.admin.run(&format!("KILL {}", store.admin.ask::<u64>(kill).await)).await;
                }
                if !storm.transfers(&mut *claim).await {
                    break;
                }
            }
            settle(&mut *claim).await;
        }
        let Storm { handed, dropped, .. } = storm;
        println!("{handed} transferred, {dropped} dropped");
        assert!(handed > 20 && dropped > 20, "{handed} and {dropped}: the test shows nothing");
        no_transaction(&store).await;
        until("no name is listed", || async {
            store.mysql.names(Kind::Mutex, "").await.is_ok_and(|names| names.is_empty())
        })
        .await;
    }
}

struct Storm {
    /// Another process.
    there: MySql,
    /// The newest token.
    last: FencingToken,
    handed: u32,
    dropped: u32,
}

impl Storm {
    async fn granted(&mut self, claim: &mut dyn Claim, round: u32) {
        let start = Instant::now();
        let token = loop {
            match claim.attempt(Wait::No).await {
                Ok(Attempt::Granted(grant)) => break grant.token,
                Ok(Attempt::Busy { .. }) => {
                    // A server needs a moment to notice that a socket was closed, and a strict
                    // lease lasts its time.
                    assert!(start.elapsed() < SOON, "round {round}: something was left behind");
                    sleep(Duration::from_millis(2)).await;
                }
                Err(error) => {
                    assert!(error.is_temporary() || error.is_outcome_unknown(), "{error}");
                    settle(claim).await;
                }
            }
        };
        assert!(token > self.last, "{token} after {}", self.last);
        self.last = token;
    }

    /// Transfers the lock, or drops the transfer midway. True if the lock was transferred.
    async fn transfers(&mut self, claim: &mut dyn Claim) -> bool {
        let polls = rand::random_range(1..12);
        let to = spec_for("a", BRIEF);
        match cut(claim.transfer(&to, QueuePolicy::TransferFirst), polls, rand::random()).await {
            Some(Ok(Transferred::Granted(grant))) => {
                assert!(grant.token > self.last, "{} after {}", grant.token, self.last);
                self.last = grant.token;
                self.handed += 1;
                self.outsider_tries(claim).await;
                true
            }
            Some(Ok(_)) => false,
            Some(Err(error)) => {
                assert!(error.is_temporary() || error.is_outcome_unknown(), "{error}");
                false
            }
            None => {
                self.dropped += 1;
                false
            }
        }
    }

    /// Another process asks for the lock, and gets it only if the claim has lost it.
    async fn outsider_tries(&mut self, claim: &mut dyn Claim) {
        let mut outsider = self.there.claim(spec_for("a", TTL)).unwrap();
        match outsider.attempt(Wait::No).await {
            Ok(Attempt::Granted(grant)) => {
                // That happens only if the connection of the holder was killed.
                let lost = claim.renew(None).await;
                assert!(!matches!(lost, Ok(RenewalOutcome::Alive(_))), "C1: {grant:?}");
                assert!(grant.token > self.last);
                self.last = grant.token;
            }
            Ok(Attempt::Busy { .. }) => {}
            Err(error) => {
                assert!(error.is_temporary() || error.is_outcome_unknown(), "{error}")
            }
        }
        settle(&mut *outsider).await;
    }
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

/// Catches a handle with which the previous owner writes into the next one's transaction.
async fn the_previous_owners_transaction_leads_nowhere(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    let previous = transaction(&*claim);
    transfer(&mut *claim, "a", TTL).await;
    let error =
        previous.run(async |_| panic!("it runs in another owner's transaction")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    previous.guard_dropped();
    previous.guard_released();
    let present = transaction(&*claim);
    sell(&store, &present, 1).await;
    assert_eq!(store.admin.count("stock").await, 0);
    present.guard_released();
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert_eq!(store.admin.count("stock").await, 1);
}

/// Catches a transfer that carries statements of one owner to the next, and one that forgets them.
async fn a_transaction_that_was_used_ends_with_its_owner(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    for (item, is_released, stock) in [(1, true, 1), (2, false, 1), (3, true, 2)] {
        let mut claim = store.claim("a");
        granted(claim.attempt(Wait::No).await);
        let used = transaction(&*claim);
        sell(&store, &used, item).await;
        let unsaid =
            claim.transfer(&spec_for("a", TTL), QueuePolicy::TransferFirst).await.unwrap_err();
        assert!(!unsaid.is_outcome_unknown(), "{unsaid}");
        if is_released {
            used.guard_released()
        } else {
            used.guard_dropped()
        }
        assert_eq!(
            claim.transfer(&spec_for("a", TTL), QueuePolicy::TransferFirst).await.unwrap(),
            Transferred::Yielded
        );
        assert_eq!(store.admin.count("stock").await, stock, "{item}");
        let mut next = store.claim("a");
        no_transaction(&store).await;
        granted(next.attempt(Wait::No).await);
        assert_eq!(next.release().await.unwrap(), Released::Freed);
    }
}

async fn c3_an_extended_lease_lasts_until_its_end_and_no_longer(flavor: SqlFlavor) {
    const LEASE: Duration = Duration::from_secs(5);
    const LONG: Duration = Duration::from_secs(16);
    let store = Store::start(flavor).await;
    let mut claim = store.claim_for("a", LEASE);
    granted(claim.attempt(Wait::No).await);
    let start = Instant::now();
    let lasts = |outcome| match outcome {
        RenewalOutcome::Alive(Lease::Proven { lasts, .. }) => lasts,
        other => panic!("{other:?}"),
    };
    assert!(lasts(claim.renew(Some(LONG)).await.unwrap()) >= LONG);
    // Neither of these shortens the lease.
    for lease in [Duration::from_millis(10), LEASE] {
        assert!(lasts(claim.renew(Some(lease)).await.unwrap()) > LONG - LEASE);
    }
    assert!(lasts(claim.renew(None).await.unwrap()) > LONG - LEASE);
    sell(&store, &transaction(&*claim), 1).await;
    // No request is sent meanwhile.
    sleep(LEASE + Duration::from_millis(1500)).await;
    let left = lasts(claim.renew(None).await.unwrap());
    assert!(left <= LONG.saturating_sub(start.elapsed()) + LEASE && left > LEASE, "{left:?}");
    sleep(LONG.saturating_sub(start.elapsed())).await;
    assert_eq!(lasts(claim.renew(None).await.unwrap()), LEASE);
    // From then on, the lease ends as it did before.
    let thread = store.admin.thread("a").await;
    store.admin.until_ended(thread).await;
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    // A connection with another idle timeout is not given to other locks.
    let mut next = store.claim_for("b", LEASE);
    granted(next.attempt(Wait::No).await);
    assert!(lasts(next.renew(Some(TTL)).await.unwrap()) >= TTL);
    assert_eq!(next.release().await.unwrap(), Released::Freed);
    granted(next.attempt(Wait::No).await);
    let thread = store.admin.thread("b").await;
    store.admin.until_ended(thread).await;
    let error = next.renew(Some(TTL * 1_000_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
}

async fn c9_an_extended_strict_lease_is_waited_for(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&strict_lease=true").await;
    let mut claim = store.claim_for("a", SHORT);
    granted(claim.attempt(Wait::No).await);
    let asked = Instant::now();
    let long = SHORT * 2;
    assert!(matches!(claim.renew(Some(long)).await.unwrap(), RenewalOutcome::Alive(_)));
    store.admin.kill(store.admin.thread("a").await).await;
    let mut next = store.claim("a");
    let waiting = async {
        while !matches!(next.attempt(Wait::Block(SOON)).await.unwrap(), Attempt::Granted(_)) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, waiting).await.unwrap();
    assert!(asked.elapsed() >= long, "{:?}: before the lease had ended", asked.elapsed());
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

/// Once a token was raised, the tokens of two names on one connection do not show which was granted
/// later.
async fn c4_a_raised_token_does_not_hide_a_connection_from_operators(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&pool_size=2").await;
    let mut first = store.claim("first");
    let token = granted(first.attempt(Wait::No).await).token;
    let floor = FencingToken::new(token.get() + 3_600_000_000);
    assert_eq!(first.raise_token(floor).await.unwrap(), Some(floor));
    assert_eq!(first.release().await.unwrap(), Released::Freed);
    let mut second = store.claim("second");
    let token = granted(second.attempt(Wait::No).await).token;
    let thread = store.admin.thread("second").await;
    assert_eq!(store.admin.thread("first").await, thread, "the one connection");
    // The holder does not react.
    assert_eq!(store.mysql.force_release(&mutex("second"), token).await.unwrap(), Released::Freed);
    assert!(matches!(second.renew(None).await.unwrap(), RenewalOutcome::Lost(_)));
    assert_eq!(second.raise_token(floor).await.unwrap(), None);
    // The other way round: a later lock with a smaller token is left alone.
    let mut third = store.claim("third");
    granted(third.attempt(Wait::No).await);
    assert_eq!(store.mysql.force_release(&mutex("first"), floor).await.unwrap(), Released::NotHeld);
    assert!(matches!(third.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(third.release().await.unwrap(), Released::Freed);
    let mut next = store.claim("first");
    assert!(granted(next.attempt(Wait::No).await).token > floor);
    for floor in [u64::MAX, (1 << 62) + 1] {
        let error = next.raise_token(FencingToken::new(floor)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    }
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

async fn c4_a_lost_lock_raises_nothing(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    let token = granted(claim.attempt(Wait::No).await).token;
    store.admin.kill(store.admin.thread("a").await).await;
    let floor = FencingToken::new(token.get() + 1_000);
    assert_eq!(claim.raise_token(floor).await.unwrap(), None);
    let mut next = store.claim("a");
    let present = granted(next.attempt(Wait::No).await).token;
    assert!(present > floor);
    assert_eq!(claim.raise_token(FencingToken::new(present.get() + 1_000)).await.unwrap(), None);
    assert_eq!(store.admin.ask::<u64>("SELECT fence FROM lockkit_fence").await, present.get());
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

async fn c14_names_are_listed_while_their_holders_live(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let there = store.another().await;
    let names = async |prefix: &str| {
        let mut names = there.names(Kind::Mutex, prefix).await.unwrap();
        names.sort();
        names
    };
    let mut killed = store.claim("killed");
    let mut freed = store.claim("freed");
    let mut held = store.claim("held");
    for claim in [&mut killed, &mut freed, &mut held] {
        granted(claim.attempt(Wait::No).await);
    }
    assert_eq!(names("").await, ["freed", "held", "killed"].map(mutex));
    assert_eq!(names("h").await, [mutex("held")]);
    store.admin.kill(store.admin.thread("killed").await).await;
    assert_eq!(freed.release().await.unwrap(), Released::Freed);
    transfer(&mut *held, "held", TTL).await;
    assert_eq!(names("").await, [mutex("held")]);
    // A list of names takes no free lock.
    let looking = tokio::spawn(async move {
        for _ in 0..200 {
            there.names(Kind::Mutex, "").await.unwrap();
        }
    });
    while !looking.is_finished() {
        granted(freed.attempt(Wait::No).await);
        given_up(freed.release()).await;
    }
    looking.await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Freed);
    assert_eq!(store.mysql.names(Kind::Mutex, "").await.unwrap(), []);
}

async fn c14_a_sign_of_life_needs_no_free_connection(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&pool_size=2").await;
    let mut claim = store.claim("a");
    let mut other = store.claim("b");
    granted(claim.attempt(Wait::No).await);
    granted(other.attempt(Wait::No).await);
    let asking = async {
        assert_eq!(store.mysql.probe().await.unwrap(), Role::Primary);
        assert_eq!(store.mysql.names(Kind::Mutex, "").await.unwrap(), [mutex("a"), mutex("b")]);
        transfer(&mut *claim, "a", TTL).await;
    };
    // Both connections of the pool hold a lock for longer.
    timeout(SOON, asking).await.expect("it waits for a connection");
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}
