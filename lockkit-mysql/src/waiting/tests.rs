//! Tests of the lines, their calls, and their poller.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use lockkit_core::{Kind, OwnerId, spi::Wakeable};
use tokio::runtime::{Builder, Runtime};

use super::{
    polling::{LookLimits, MOST_BYTES, Turn},
    *,
};
use crate::schedule::Pace;

#[derive(Debug, Default)]
struct WakeSignal(AtomicU32);

impl Wakeable for WakeSignal {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn join(waiters: &Arc<Waiters>, name: &LockName) -> (Place, Arc<WakeSignal>) {
    let signal = Arc::new(WakeSignal::default());
    let mut spec = spec(name, Duration::from_secs(4));
    spec.wake = Wake::to(&signal);
    (waiters.join(&spec), signal)
}

fn spec(name: &LockName, op_timeout: Duration) -> ClaimSpec {
    let ttl = Duration::from_secs(30);
    ClaimSpec::new(name.clone(), OwnerId::random(), Mode::Exclusive, ttl, op_timeout)
}

#[test]
fn c6_a_leaving_waiter_passes_the_wake_up_to_one_other_waiter() {
    let waiters = Arc::<Waiters>::default();
    let name = LockName::new(Kind::Mutex, "a").unwrap();
    let (first, signal_1) = join(&waiters, &name);
    let (second, signal_2) = join(&waiters, &name);
    let (third, signal_3) = join(&waiters, &name);
    waiters.call_first(&name);
    assert!(first.is_called() && !second.is_called());
    drop(first);
    assert!(second.is_called() && !third.is_called());
    second.put_back();
    drop(second);
    assert!(!third.is_called());
    assert_eq!([signal_1, signal_2, signal_3].map(|signal| signal.0.load(Relaxed)), [1, 1, 0]);
    drop(third);
    assert!(!waiters.is_any(&name));
    assert!(!waiters.call_next(&name));
}

#[test]
fn c8_a_call_that_comes_while_its_answer_is_under_way_is_not_lost() {
    let waiters = Arc::<Waiters>::default();
    let name = LockName::new(Kind::Mutex, "a").unwrap();
    let (first, signal) = join(&waiters, &name);
    waiters.call_first(&name);
    waiters.call_first(&name);
    first.put_back();
    assert!(first.is_called());
    assert_eq!(signal.0.load(Relaxed), 2);
    first.put_back();
    assert!(!first.is_called());
}

#[test]
fn c8_a_waiter_that_ignores_its_wake_up_is_passed_over_later() {
    let waiters = Arc::<Waiters>::default();
    let name = LockName::new(Kind::Mutex, "a").unwrap();
    let (first, _) = join(&waiters, &name);
    let (second, _) = join(&waiters, &name);
    let (third, _) = join(&waiters, &name);
    let long = Duration::from_secs(60);
    let none = Duration::ZERO;
    assert!(!second.step_up(none), "the first was not called yet");
    assert!(first.step_up(long) && !second.step_up(long));
    assert!(second.step_up(none) && !third.step_up(long));
    assert!(first.is_called() && second.is_called() && !third.is_called());
}

fn name(text: &str) -> LockName {
    LockName::new(Kind::Mutex, text).unwrap()
}

fn limits(names: usize) -> LookLimits {
    LookLimits { names, only_hasty: false }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

#[test]
fn one_waiter_serves_all_lines_and_another_after_it_left() {
    let waiters = Arc::<Waiters>::default();
    let a = name("a");
    let b = name("b");
    let runtime = runtime();
    let start_polling = |name| Some(waiters.start_polling(name, runtime.handle().id())?.0);
    assert_eq!(start_polling(&a), None, "nobody waits");
    let (place, _) = join(&waiters, &a);
    let first = start_polling(&a).unwrap();
    assert_eq!(start_polling(&a), None);
    let (other, _) = join(&waiters, &b);
    assert_eq!(start_polling(&b), None, "it polls for all of them");
    drop(place);
    assert!(!waiters.resign(first), "somebody waits still");
    drop(other);
    assert!(matches!(waiters.turn(first, Clock::Boot.now(), limits(1)), Turn::Over));
    let (_place, _) = join(&waiters, &a);
    assert_eq!(start_polling(&a), None, "it has not gone yet");
    assert!(!waiters.resign(first), "C8: it went from one that has just come");
    waiters.abandon(first);
    let second = start_polling(&a).unwrap();
    assert!(waiters.resign(first) && !waiters.resign(second));
    waiters.abandon(first);
    assert_eq!(start_polling(&a), None);
}

/// Catches waiters that rely on a poller in a runtime that is not driven any more.
#[test]
fn c8_a_new_poller_polls_all_lines_at_once() {
    let waiters = Arc::<Waiters>::default();
    let a = name("a");
    let one = runtime();
    let other = runtime();
    let (_place, _) = join(&waiters, &a);
    let first = waiters.start_polling(&a, one.handle().id()).unwrap().0;
    let now = Clock::Boot.now().after(Duration::from_secs(1));
    assert!(matches!(waiters.turn(first, now, limits(1)), Turn::Ask(_)));
    assert!(matches!(
        waiters.turn(first, now.after(Duration::from_secs(1)), limits(1)),
        Turn::Wait(_)
    ));
    waiters.abandon(first);
    let second = waiters.start_polling(&a, other.handle().id()).unwrap().0;
    assert!(matches!(waiters.turn(first, now, limits(1)), Turn::Over));
    assert!(matches!(waiters.turn(second, now, limits(1)), Turn::Ask(_)));
}

#[test]
fn c8_names_that_do_not_fit_are_polled_next_and_no_poll_is_too_long() {
    let waiters = Arc::<Waiters>::default();
    let names: Vec<_> = (0..700).map(|n| name(&format!("{n:0>255}"))).collect();
    let places: Vec<_> = names.iter().map(|name| join(&waiters, name).0).collect();
    let runtime = runtime();
    let numbers =
        names.iter().filter_map(|name| waiters.start_polling(name, runtime.handle().id()));
    let [number] = numbers.map(|(number, _)| number).collect::<Vec<_>>()[..] else { panic!() };
    let now = Clock::Boot.now().after(Duration::from_secs(1));
    let mut seen = Vec::new();
    while let Turn::Ask(batch) = waiters.turn(number, now, limits(50)) {
        assert!(batch.names.len() <= 50);
        assert_eq!(batch.patience, Duration::from_secs(3));
        seen.extend(batch.names);
    }
    seen.sort_unstable();
    assert_eq!(seen, names, "each of them once");
    let pace = Pace::new(1, 0.5);
    names.iter().for_each(|name| waiters.plan(name, pace, None));
    let later = now.after(Duration::from_secs(1));
    let Turn::Ask(batch) = waiters.turn(number, later, limits(usize::MAX)) else { panic!() };
    let bytes: usize = batch.names.iter().map(|name| name.as_str().len()).sum();
    assert!(bytes <= MOST_BYTES && bytes > MOST_BYTES - 300, "{bytes}");
    drop(places);
}

/// Catches one patience for all waiters, whichever it is.
#[test]
fn c8_each_waiter_gets_the_error_of_a_silent_server_after_its_own_patience() {
    let waiters = Arc::<Waiters>::default();
    let a = name("a");
    let [short, long] = [Duration::from_secs(4), Duration::from_secs(40)];
    let [hasty, patient] = [short, long].map(|op_timeout| waiters.join(&spec(&a, op_timeout)));
    let runtime = runtime();
    let number = waiters.start_polling(&a, runtime.handle().id()).unwrap().0;
    let sent = Clock::Boot.now().after(Duration::from_secs(1));
    let Turn::Ask(batch) = waiters.turn(number, sent, limits(1)) else { panic!() };
    assert_eq!(batch.patience, long * 3 / 4);
    let heard = |now: Tick| {
        let is_waiting = matches!(waiters.turn(number, now, limits(0)), Turn::Wait(_));
        assert!(is_waiting);
        [&hasty, &patient].map(|place| place.trouble().is_some())
    };
    assert_eq!(heard(sent.after(short / 2)), [false, false]);
    assert_eq!(heard(sent.after(short)), [true, false]);
    assert_eq!(heard(sent.after(long)), [true, true]);
    waiters.answered(&a, sent, 1).unwrap();
    assert_eq!(heard(sent.after(long)), [false, false]);
}

/// Catches looks that are lost one after the other until none is left, because each has a name with
/// a patient waiter.
#[test]
fn c8_a_poll_reserved_for_hasty_waiters_reads_only_theirs() {
    let waiters = Arc::<Waiters>::default();
    let runtime = runtime();
    let timeouts = [("a", 4), ("b", 6), ("c", 40), ("d", 3)];
    let places = timeouts.map(|(text, op_timeout)| {
        let place = waiters.join(&spec(&name(text), Duration::from_secs(op_timeout)));
        (place, waiters.start_polling(&name(text), runtime.handle().id()))
    });
    let number = places.iter().find_map(|(_, poller)| Some(poller.as_ref()?.0)).unwrap();
    let now = Clock::Boot.now().after(Duration::from_secs(1));
    let only_hasty = LookLimits { names: 9, only_hasty: true };
    let Turn::Ask(mut batch) = waiters.turn(number, now, only_hasty) else { panic!() };
    batch.names.sort_unstable();
    assert_eq!(batch.names, ["a", "b", "d"].map(name));
    assert!(matches!(waiters.turn(number, now, only_hasty), Turn::Wait(until) if until > now));
    assert!(
        matches!(waiters.turn(number, now, limits(9)), Turn::Ask(batch) if batch.names == [name("c")])
    );
}
