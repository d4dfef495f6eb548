//! Tests the permits of a semaphore.

use redis::Commands as _;

use crate::support::{Answer, Claim, LEASE, LIVENESS, NEVER, START, Store, WINDOW};

#[test]
fn c1_permits_add_up_to_the_limit_and_not_beyond() {
    let mut store = Store::new(3);
    let heavy = Claim::new(1, 2);
    let light = Claim::new(2, 1);
    let other = Claim::new(3, 1).impatient();
    store.acquire(&heavy).token();
    store.acquire(&light).token();
    assert!(store.acquire(&other).is_busy());
    assert_eq!(store.release(&light), 1);
    store.acquire(&other).token();
    assert_eq!(store.release(&heavy), 1);
    assert_eq!(store.release(&heavy), 0);
    assert_eq!(store.release(&light), 0, "released long ago");
    assert_eq!(store.inspect().used, 1);
    assert_eq!(store.release(&other), 1);
    store.assert_idle();
}

#[test]
fn c5_a_retry_gets_its_own_token_and_a_lease_that_starts_again() {
    let mut store = Store::new(2);
    let claim = Claim::new(1, 1);
    let other = Claim::new(2, 1);
    let token = store.acquire(&claim).token();
    store.acquire(&other).token();
    store.advance(LEASE - 1);
    assert_eq!(store.acquire(&claim), Answer::Granted { lease: LEASE, token });
    assert_eq!(store.inspect().used, 2);
    let shorter = store.acquire_with(&claim, 1, NEVER, 2);
    assert_eq!(shorter, Answer::Granted { lease: LEASE, token });
    store.advance(LEASE - 1);
    assert_eq!(store.inspect().holders.len(), 1, "the lease of {other:?} was not prolonged");
    store.advance(1);
    assert!(store.acquire(&claim).token() > token, "a lapsed grant is not taken up again");
}

#[test]
fn c5_an_attempt_that_comes_too_late_does_nothing() {
    let mut store = Store::new(1);
    let claim = Claim::new(1, 1);
    assert_eq!(store.acquire_with(&claim, LEASE, START - 1, 1), Answer::Late);
    assert_eq!(store.keys(), [""; 0]);
    assert_ne!(store.acquire_with(&claim, LEASE, START, 1), Answer::Late);
    assert_eq!(store.release_after(&claim, START), -1);
    store.advance_micros(1);
    assert_eq!(store.release_after(&claim, START), 0);
    store.assert_idle();
}

#[test]
fn c12_a_heavy_head_is_not_overtaken_by_a_light_newcomer() {
    let mut store = Store::new(3);
    let a = Claim::new(1, 1);
    let b = Claim::new(2, 1);
    let heavy = Claim::new(3, 3);
    let light = Claim::new(4, 1);
    let newcomer = Claim::new(5, 1).impatient();
    store.acquire(&a).token();
    store.acquire(&b).token();
    assert!(store.acquire(&heavy).is_busy());
    assert!(store.acquire(&light).is_busy(), "one permit is free, but not for those behind");
    assert!(store.acquire(&newcomer).is_busy());
    store.release(&a);
    assert!(store.acquire(&light).is_busy());
    store.release(&b);
    assert_eq!(store.inspect().holders[0].owner, heavy.owner);
    store.acquire(&heavy).token();
    store.release(&heavy);
    assert_eq!(store.inspect().holders[0].owner, light.owner);
    store.acquire(&newcomer).token();
}

#[test]
fn c8_one_release_serves_all_waiters_that_fit_and_wakes_each() {
    let mut store = Store::new(3);
    let holder = Claim::new(1, 3);
    let waiters = [2, 3, 4].map(|number| Claim::new(number, 1).of("a"));
    let heavy = Claim::new(5, 2).of("a");
    let token = store.acquire(&holder).token();
    for claim in waiters.iter().take(2).chain([&heavy]).chain(waiters.iter().skip(2)) {
        assert!(store.acquire(claim).is_busy());
    }
    store.release(&holder);
    let now = START;
    let expected = [1, 2].map(|more| {
        let token = token + more;
        format!("{} {token} {now} {WINDOW}", waiters[usize::try_from(more - 1).unwrap()].id())
    });
    assert_eq!(store.told(), expected);
    let view = store.inspect();
    assert_eq!((view.used, view.waiters), (2, 2));
    assert_eq!(view.holders[0].deadline, now + WINDOW * 1000);
    // A waiter that got the message asks. It gets its own grant, now with a whole lease.
    assert_eq!(store.acquire(&waiters[0]), Answer::Granted { lease: LEASE, token: token + 1 });
    store.advance(WINDOW);
    // The other waiter never asked. Its permit lapses, and the next request serves the heavy one.
    let (lapse, waits) = store.refresh(&[&waiters[2]]);
    assert_eq!(waits, [true]);
    assert_eq!(lapse, i64::try_from(WINDOW).unwrap());
    assert_eq!(store.told().len(), 1);
    assert_eq!(store.used(), (3, 3));
}

#[test]
fn c8_a_waiter_without_a_connection_is_passed_over_fully_and_keeps_its_place() {
    let mut store = Store::new(2);
    let holder = Claim::new(1, 2);
    let gone = Claim::new(2, 2).of("nobody");
    let next = Claim::new(3, 1).of("a");
    store.acquire(&holder).token();
    assert!(store.acquire(&gone).is_busy());
    store.release(&holder);
    assert_eq!(store.keys(), ["counter", "grants", "live", "queue"]);
    assert_eq!(store.used(), (0, 0));
    assert_eq!(
        store.acquire_with(&holder, LEASE, NEVER, 5),
        Answer::Limit(2),
        "one with this limit waits"
    );
    let queue = store.ttl("queue");
    assert!(store.ttl("grants") <= queue);

    store.acquire(&holder).token();
    assert!(store.acquire(&next).is_busy());
    store.release(&holder);
    assert_eq!(store.told().len(), 1);
    assert_eq!(store.used(), (1, 1));
    assert!(store.acquire(&gone).is_busy());
    store.release(&next);
    assert_eq!(
        store.refresh(&[&gone]),
        (i64::try_from(WINDOW).unwrap(), vec![false]),
        "served while it asked"
    );
    store.acquire(&gone).token();
    store.release(&gone);
    store.assert_idle();
}

#[test]
fn c8_dead_waiters_are_passed_over_and_their_limit_is_forgotten() {
    let mut store = Store::new(1);
    let holder = Claim::new(1, 1);
    let dead = Claim::new(2, 1);
    let other = Claim::new(3, 4);
    store.acquire(&holder).token();
    assert!(store.acquire(&dead).is_busy());
    assert_eq!(store.acquire_with(&other, LEASE, NEVER, 5), Answer::Limit(1));
    store.advance(LIVENESS + 1);
    store.release(&holder);
    store.assert_idle();
    store.acquire_with(&other, LEASE, NEVER, 5).token();
    assert_eq!(store.acquire(&holder), Answer::Limit(5));
    assert_eq!(store.inspect().limit, Some(5));
    store.advance(LEASE);
    store.acquire(&holder).token();
    assert_eq!(store.inspect().limit, Some(1));
}

#[test]
fn c6_a_cancelled_waiter_lets_later_ones_pass_and_passes_its_grant_on() {
    let mut store = Store::new(2);
    let holder = Claim::new(1, 1);
    let heavy = Claim::new(2, 2);
    let light = Claim::new(3, 1).of("a");
    store.acquire(&holder).token();
    assert!(store.acquire(&heavy).is_busy());
    assert!(store.acquire(&light).is_busy());
    assert_eq!(store.release(&heavy), 0);
    assert_eq!(store.told().len(), 1);
    assert!(store.acquire(&heavy).is_busy());
    store.release(&holder);
    store.release(&light);
    assert_eq!(store.inspect().holders[0].owner, heavy.owner);
    assert!(store.acquire(&light).is_busy());
    assert_eq!(store.release(&heavy), 1, "it was granted meanwhile");
    assert_eq!(store.told().len(), 1);
    store.release(&light);
    store.assert_idle();
}

#[test]
fn c6_the_last_waiter_to_leave_takes_the_limit_along() {
    let mut store = Store::new(1);
    let holder = Claim::new(1, 1);
    let gone = Claim::new(2, 1).of("nobody");
    store.acquire(&holder).token();
    assert!(store.acquire(&gone).is_busy());
    store.release(&holder);
    store.release(&gone);
    store.assert_idle();
}

#[test]
fn c2_a_renewal_never_shortens_and_never_re_creates() {
    let mut store = Store::new(2);
    let claim = Claim::new(1, 1);
    let other = Claim::new(2, 1);
    assert_eq!(store.extend(&claim, LEASE), -1);
    store.acquire(&claim).token();
    assert_eq!(store.extend(&claim, 1), 10_000);
    assert_eq!(store.extend(&claim, 2 * LEASE), 20_000);
    assert_eq!(store.extend(&other, LEASE), -1);
    store.advance(2 * LEASE);
    assert_eq!(store.extend(&claim, LEASE), -1, "lapsed, though nobody has cleared it away");
    assert_eq!(store.release(&claim), 0);
    store.assert_idle();
}

#[test]
fn c14_force_release_frees_the_grant_with_the_token_alone() {
    let mut store = Store::new(2);
    let (a, b, waiter) = (Claim::new(1, 1), Claim::new(2, 1), Claim::new(3, 1).of("a"));
    let token = store.acquire(&a).token();
    let other = store.acquire(&b).token();
    assert!(store.acquire(&waiter).is_busy());
    assert_eq!(store.force_release(token - 1), 0);
    assert_eq!(store.force_release(token), 1);
    assert_eq!(store.force_release(token), 0);
    assert_eq!(store.told().len(), 1);
    assert_eq!(store.extend(&a, LEASE), -1);
    assert_eq!(store.extend(&b, LEASE), 10_000);
    let mut left: Vec<_> = store.inspect().holders.iter().map(|holder| holder.token).collect();
    left.sort_unstable();
    assert_eq!(left, [other, other + 1]);
}

#[test]
fn c4_tokens_rise_though_the_clock_is_set_back_and_end_with_an_answer() {
    let mut store = Store::new(2);
    let a = Claim::new(1, 1);
    let b = Claim::new(2, 1);
    let token = store.acquire(&a).token();
    assert_eq!(token, START);
    store.now -= 3_600_000_000;
    store.advance(0);
    assert_eq!(store.acquire(&b).token(), token + 1);
    assert_eq!(store.connection.pttl::<_, i64>("counter").unwrap(), -1, "it lapses");
    store.release(&b);
    let _: () = store.connection.set("counter", (1_u64 << 53) - 2).unwrap();
    assert_eq!(store.acquire(&b).token(), (1 << 53) - 1);
    store.release(&b);
    assert_eq!(store.acquire(&b), Answer::NoToken);
    assert_eq!(store.used(), (1, 1));
}

#[test]
fn c8_a_heavy_waiter_without_a_connection_does_not_hold_light_ones_up() {
    let mut store = Store::new(2);
    let holder = Claim::new(1, 1);
    let heavy = Claim::new(2, 2).of("nobody");
    let light = Claim::new(3, 1).of("a");
    let newcomer = Claim::new(4, 1).impatient();
    store.acquire(&holder).token();
    assert!(store.acquire(&heavy).is_busy());
    // A claim that queues behind it passes it, and so does a claim that does not wait.
    let token = store.acquire(&light).token();
    store.release(&light);
    assert!(store.acquire(&newcomer).token() > token);
    store.release(&newcomer);
    assert!(store.acquire(&heavy).is_busy(), "it keeps its place");
    store.release(&holder);
    assert!(store.acquire(&heavy).token() > token);
}

#[test]
fn c12_a_newcomer_is_the_last_though_waiters_are_set_aside_and_the_clock_goes_back() {
    let order =
        |store: &mut Store| store.connection.zrange::<_, Vec<String>>("queue", 0, -1).unwrap();
    for waits_on in [&[][..], &[Claim::new(4, 1)]] {
        let mut store = Store::new(1);
        let holder = Claim::new(1, 1);
        let first = Claim::new(2, 1);
        let gone = Claim::new(3, 1).of("nobody");
        let newcomer = Claim::new(5, 1);
        store.acquire(&holder).token();
        for claim in [&gone, &first].into_iter().chain(waits_on) {
            store.advance(1);
            assert!(store.acquire(claim).is_busy());
        }
        store.release(&holder);
        let expected: Vec<_> = waits_on.iter().chain([&gone]).map(Claim::waiter).collect();
        assert_eq!(order(&mut store), expected, "set aside");
        store.now -= 3_600_000_000;
        store.advance(0);
        assert!(store.acquire(&newcomer).is_busy());
        assert!(store.acquire(&gone).is_busy());
        let expected = [&gone].into_iter().chain(waits_on).chain([&newcomer]);
        assert_eq!(order(&mut store), expected.map(Claim::waiter).collect::<Vec<_>>());
    }
}
