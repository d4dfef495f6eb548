//! Tests a demoted primary whose clients stay connected. It has all data, but another server grants
//! the locks now. So none of its answers is the truth.

use std::num::NonZeroU32;

use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, OwnerId, Result,
    spi::Released,
    spi::{
        Admin as _, Backend as _, ClaimSpec, Mode, Note, Noted, QueuePolicy, RenewalOutcome, Wait,
    },
};
use lockkit_redis::Redis;

use crate::support::*;

/// A name that is held in one mode and wanted in another.
struct Case {
    kind: Kind,
    held: Mode,
    wanted: Mode,
}

fn cases() -> [Case; 5] {
    let one = Mode::Permits { count: NonZeroU32::MIN, limit: NonZeroU32::MIN };
    let exclusive = Mode::Exclusive;
    let shared = Mode::Shared;
    [
        Case { kind: Kind::Mutex, held: exclusive, wanted: exclusive },
        Case { kind: Kind::Election, held: exclusive, wanted: exclusive },
        Case { kind: Kind::RwLock, held: exclusive, wanted: shared },
        Case { kind: Kind::RwLock, held: shared, wanted: exclusive },
        Case { kind: Kind::Semaphore, held: one, wanted: one },
    ]
}

impl Case {
    fn name(&self, text: &str) -> LockName {
        LockName::new(self.kind, &format!("{text} {:?}", self.held)).unwrap()
    }

    fn claim(&self, text: &str, mode: Mode) -> ClaimSpec {
        ClaimSpec::new(self.name(text), OwnerId::random(), mode, TTL, OP_TIMEOUT)
    }

    fn has_notes(&self) -> bool {
        matches!(self.kind, Kind::Mutex | Kind::Election)
    }
}

/// A locker for each question, connected while the server is still the primary.
struct Lockers {
    store: Store,
    unused: Vec<Redis>,
}

impl Lockers {
    async fn start(count: usize) -> Self {
        let store = Store::start().await;
        let mut unused = Vec::new();
        for _ in 0..count {
            unused.push(connect(&store.server.url()).await.unwrap());
        }
        Self { store, unused }
    }

    fn next(&mut self) -> Redis {
        self.unused.pop().expect("more lockers")
    }

    /// Makes the server follow one that is not there, so that it keeps its data.
    async fn demote(&self) {
        self.store.admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
    }
}

/// The wrong answers of a server that is no longer a primary.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn check<T: std::fmt::Debug>(&mut self, answer: Result<T>, case: &Case, what: &str) {
        match answer {
            Err(error) if error.kind() == ErrorKind::ReadOnly && error.is_temporary() => {}
            answer => {
                self.0.push(format!("{} held as {:?}, {what}: {answer:?}", case.kind, case.held))
            }
        }
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || self.0.is_empty(), "{:#?}", self.0);
    }
}

#[tokio::test]
async fn c13_a_demoted_primary_does_not_report_a_name_as_taken_or_free() {
    let mut lockers = Lockers::start(50).await;
    let mut held = Vec::new();
    for case in cases() {
        let mut holder = lockers.next().claim(case.claim("held", case.held)).unwrap();
        granted(holder.attempt(Wait::No).await);
        held.push(holder);
    }
    lockers.demote().await;
    let mut wrong = Wrong::default();
    for case in cases() {
        let kind = case.kind;
        let name = case.name("held");
        for wait in [Wait::No, Wait::Queue] {
            let mut claim = lockers.next().claim(case.claim("held", case.wanted)).unwrap();
            wrong.check(claim.attempt(wait).await, &case, "attempt");
        }
        wrong.check(lockers.next().inspect(&name).await, &case, "inspect");
        wrong.check(
            lockers.next().inspect(&case.name("free")).await,
            &case,
            "inspect what is free",
        );
        let forced = lockers.next().force_release(&name, FencingToken::new(1)).await;
        wrong.check(forced, &case, "force release");
        wrong.check(lockers.next().names(kind, "").await, &case, "names");
        wrong.check(lockers.next().names(kind, "none").await, &case, "names of none");
        if case.has_notes() {
            wrong.check(lockers.next().note(&name).await, &case, "note");
        }
    }
    let [case, ..] = cases();
    wrong.check(lockers.next().time().await, &case, "time");
    wrong.check(lockers.next().diagnose().await, &case, "diagnose");
}

/// A renewal of a lease that is already longer needs no change in the store. Nor does raising a
/// token that is already as large.
#[tokio::test]
async fn c10_a_demoted_primary_confirms_no_hold_that_needs_no_change() {
    let mut lockers = Lockers::start(10).await;
    let mut held = Vec::new();
    for call in ["keep alive", "raise"] {
        for case in cases() {
            let mut holder = lockers.next().claim(case.claim(call, case.held)).unwrap();
            let token = granted(holder.attempt(Wait::No).await).token;
            holder.renew(Some(TTL * 2)).await.unwrap();
            held.push((call, case, holder, token));
        }
    }
    lockers.demote().await;
    let mut wrong = Wrong::default();
    for (call, case, mut holder, token) in held {
        match call {
            "raise" => wrong.check(holder.raise_token(token).await, &case, call),
            _ => wrong.check(holder.renew(None).await, &case, call),
        }
    }
}

/// The server's data about other owners is no answer to a claim that holds the name as far as it
/// knows.
#[tokio::test]
async fn c13_a_demoted_primary_tells_no_holder_that_another_client_has_the_lock() {
    let calls = ["release", "hand over", "note", "old note", "keep alive", "raise"];
    let mut lockers = Lockers::start(calls.len()).await;
    let mut held = Vec::new();
    for call in calls {
        let mut holder = lockers.next().claim(spec(call)).unwrap();
        granted(holder.attempt(Wait::No).await);
        if call == "old note" {
            assert_eq!(
                holder.write_note(&Note::new(7, "x".to_owned())).await.unwrap(),
                Noted::Written
            );
        } else {
            store_foreign(&lockers.store, call).await;
        }
        held.push((call, holder));
    }
    lockers.demote().await;
    let [case, ..] = cases();
    let mut wrong = Wrong::default();
    for (call, mut holder) in held {
        match call {
            "release" => wrong.check(holder.release().await, &case, call),
            "hand over" => wrong.check(
                holder.transfer(&spec(call), QueuePolicy::QueueFirst).await,
                &case,
                call,
            ),
            "keep alive" => wrong.check(holder.renew(None).await, &case, call),
            "raise" => wrong.check(holder.raise_token(FencingToken::new(1)).await, &case, call),
            _ => wrong.check(holder.write_note(&Note::new(6, "y".to_owned())).await, &case, call),
        }
    }
}

/// On the server that grants the locks now, the number of permits may be another one.
#[tokio::test]
async fn c13_a_demoted_primary_does_not_report_the_permits_of_a_name() {
    let mut lockers = Lockers::start(2).await;
    let [.., case] = cases();
    let mut holder = lockers.next().claim(case.claim("held", case.held)).unwrap();
    granted(holder.attempt(Wait::No).await);
    lockers.demote().await;
    let two = Mode::Permits { count: NonZeroU32::MIN, limit: NonZeroU32::MIN.saturating_add(1) };
    let mut claim = lockers.next().claim(case.claim("held", two)).unwrap();
    Wrong::default().check(claim.attempt(Wait::No).await, &case, "attempt with another limit");
}

async fn store_foreign(store: &Store, name: &str) {
    store.admin.ask::<()>(&["SET", &lock_key(name), "somebody else", "PX", "60000"]).await;
}

/// The same on a primary: the write that reveals a demoted primary changes nothing.
#[tokio::test]
async fn c14_questions_do_not_change_the_store_even_if_it_is_full() {
    let store = Store::start().await;
    for case in cases() {
        let mut holder = store.redis.claim(case.claim("held", case.held)).unwrap();
        granted(holder.attempt(Wait::No).await);
        store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory", "1mb"]).await;
        let keys = store.admin.keys().await;
        let mut other = store.redis.claim(case.claim("held", case.wanted)).unwrap();
        busy(other.attempt(Wait::No).await);
        assert_eq!(store.redis.inspect(&case.name("held")).await.unwrap().holders.len(), 1);
        assert_eq!(store.redis.inspect(&case.name("free")).await.unwrap().holders.len(), 0);
        let forced = store.redis.force_release(&case.name("held"), FencingToken::new(1)).await;
        assert_eq!(forced.unwrap(), Released::NotHeld, "it has another token");
        assert_eq!(store.admin.keys().await, keys);
        store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
        assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    }
}
