//! Tests the backend as the core sees it: claims, wake-ups and futures.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{sync::Notify, time};

use super::{
    Memory,
    world::{TTL, permits, secs, spec},
};
use crate::{
    clock::Clock,
    error::ErrorKind,
    spi::{
        Attempt, Backend, Claim, ClaimSpec, Grant, Mode, Released, RenewalOutcome, Wait, Wake,
        Wakeable,
    },
};

/// A bound far longer than a wake-up takes: a lost wake-up fails the test instead of hanging it.
const LOST: Duration = Duration::from_secs(10);

struct Alarm(Notify);

impl Alarm {
    async fn woken(&self) {
        time::timeout(LOST, self.0.notified()).await.expect("nobody rang");
    }
}

impl Wakeable for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

fn waiter(memory: &Memory, mut spec: ClaimSpec) -> (Box<dyn Claim>, Arc<Alarm>) {
    let alarm = Arc::new(Alarm(Notify::new()));
    spec.wake = Wake::to(&alarm);
    (memory.claim(spec).unwrap(), alarm)
}

async fn granted(claim: &mut Box<dyn Claim>) -> Grant {
    match claim.attempt(Wait::Queue).await.unwrap() {
        Attempt::Granted(grant) => grant,
        busy => panic!("{busy:?}"),
    }
}

async fn queued(claim: &mut Box<dyn Claim>) {
    let answer = claim.attempt(Wait::Queue).await.unwrap();
    assert!(matches!(answer, Attempt::Busy { queued: true, .. }), "{answer:?}");
}

/// Returns true if the alarm was woken; never waits.
async fn is_woken(alarm: &Alarm) -> bool {
    tokio::select! {
        biased;
        () = alarm.0.notified() => true,
        () = std::future::ready(()) => false,
    }
}

#[tokio::test]
async fn c8_one_exclusive_waiter_is_woken_by_a_release() {
    let memory = Memory::new();
    let (mut holder, _) = waiter(&memory, spec(Mode::Exclusive));
    granted(&mut holder).await;
    let (mut first, first_alarm) = waiter(&memory, spec(Mode::Exclusive));
    let (mut second, second_alarm) = waiter(&memory, spec(Mode::Exclusive));
    queued(&mut first).await;
    queued(&mut second).await;
    let woken = tokio::spawn(async move {
        first_alarm.woken().await;
        granted(&mut first).await;
        first.release().await.unwrap()
    });
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    assert_eq!(woken.await.unwrap(), Released::Freed);
    second_alarm.woken().await;
    granted(&mut second).await;
}

#[tokio::test]
async fn c8_all_leading_shared_waiters_are_woken() {
    let memory = Memory::new();
    let (mut holder, _) = waiter(&memory, spec(Mode::Exclusive));
    granted(&mut holder).await;
    let (mut a, a_alarm) = waiter(&memory, spec(Mode::Shared));
    let (mut b, b_alarm) = waiter(&memory, spec(Mode::Shared));
    let (mut writer, writer_alarm) = waiter(&memory, spec(Mode::Exclusive));
    for claim in [&mut a, &mut b, &mut writer] {
        queued(claim).await;
    }
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    assert!(is_woken(&a_alarm).await && is_woken(&b_alarm).await && !is_woken(&writer_alarm).await);
    granted(&mut b).await;
    granted(&mut a).await;
}

#[tokio::test]
async fn c6_a_woken_waiter_that_leaves_wakes_the_next() {
    let memory = Memory::new();
    let (mut holder, _) = waiter(&memory, spec(Mode::Exclusive));
    granted(&mut holder).await;
    let (mut leaving, leaving_alarm) = waiter(&memory, spec(Mode::Exclusive));
    let (mut next, next_alarm) = waiter(&memory, spec(Mode::Exclusive));
    queued(&mut leaving).await;
    queued(&mut next).await;
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    assert!(is_woken(&leaving_alarm).await && !is_woken(&next_alarm).await);
    assert_eq!(leaving.release().await.unwrap(), Released::NotHeld);
    assert!(is_woken(&next_alarm).await);
    granted(&mut next).await;
    assert_eq!(next.release().await.unwrap(), Released::Freed);
    assert!(memory.is_empty());
}

#[tokio::test]
async fn c14_a_forced_release_wakes_the_one_that_lost_its_lock() {
    let memory = Memory::new();
    let spec = spec(Mode::Exclusive);
    let name = spec.name.clone();
    let (mut holder, alarm) = waiter(&memory, spec);
    let grant = granted(&mut holder).await;
    assert_eq!(memory.len(), 1);
    assert_eq!(memory.inspect(&name).await.unwrap().holders.len(), 1);
    assert_eq!(memory.force_release(&name, grant.token).await.unwrap(), Released::Freed);
    assert!(is_woken(&alarm).await);
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Lost(_)));
    assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn c3_leases_run_on_the_clock_of_the_store() {
    let memory = Memory::with_clock(Clock::Tokio);
    let mut spec = spec(Mode::Exclusive);
    spec.clock = Clock::Tokio;
    let mut rival = spec.clone();
    rival.owner = crate::OwnerId::random();
    let (mut holder, _) = waiter(&memory, spec);
    let (mut rival, _) = waiter(&memory, rival);
    granted(&mut holder).await;
    time::advance(TTL - Duration::from_millis(1)).await;
    queued(&mut rival).await;
    time::advance(Duration::from_millis(1)).await;
    granted(&mut rival).await;
}

#[tokio::test]
async fn c3_two_clocks_are_never_mixed() {
    let error = Memory::with_clock(Clock::Tokio).claim(spec(Mode::Exclusive)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("Boot") && error.to_string().contains("Tokio"), "{error}");
}

#[tokio::test]
async fn c4_tokens_start_above_those_of_an_earlier_run() {
    let earlier = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    let (mut claim, _) = waiter(&Memory::new(), spec(Mode::Exclusive));
    let token = granted(&mut claim).await.token.get();
    assert!(u128::from(token) > earlier, "{token} and {earlier}");
}

#[tokio::test]
async fn c13_more_permits_than_there_are_is_refused() {
    let (mut all, _) = waiter(&Memory::new(), spec(permits(3, 3)));
    granted(&mut all).await;
    let error = Memory::new().claim(spec(permits(4, 3))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(
        error.to_string().contains("4 permits") && error.to_string().contains("only 3"),
        "{error}"
    );
}

#[test]
fn a_claim_leaves_nothing_before_its_first_attempt() {
    let memory = Memory::new();
    let claim = memory.claim(spec(Mode::Exclusive)).unwrap();
    assert!(memory.is_empty());
    drop(claim);
    let descriptor = memory.descriptor();
    assert!(descriptor.poll.max < descriptor.takeover_delay && descriptor.takeover_delay < secs(2));
}
