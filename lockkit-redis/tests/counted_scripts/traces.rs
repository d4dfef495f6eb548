//! Tests the form of the keys, and keys that are already there.

use redis::Commands as _;

use crate::support::{Claim, LEASE, LIVENESS, NEVER, Store};

#[test]
fn c9_nothing_is_kept_for_ever_and_nothing_ends_before_the_longest_lease() {
    let mut store = Store::new(2);
    let long = Claim::new(1, 1);
    let short = Claim::new(2, 1);
    let waiter = Claim::new(3, 1);
    let hours = 48 * 3_600_000;
    store.acquire_with(&long, hours, NEVER, 2).token();
    store.acquire_with(&short, 10, NEVER, 2).token();
    assert!(store.acquire(&waiter).is_busy());
    store.refresh(&[&waiter]);
    store.advance(10);
    store.refresh(&[]);
    store.acquire(&waiter).token();
    store.release(&waiter);
    let hours = i64::try_from(hours).unwrap();
    for key in ["grants", "holders"] {
        assert_eq!(store.ttl(key), hours, "{key}");
    }
    assert_eq!(store.extend(&long, 60 * 3_600_000), 216_000_000);
    for key in ["grants", "holders"] {
        assert_eq!(store.ttl(key), 216_000_000, "{key}");
    }
    assert_eq!(store.keys(), ["counter", "grants", "holders"]);
}

#[test]
fn c9_a_waiter_keeps_the_keys_that_it_needs() {
    let mut store = Store::new(1);
    let holder = Claim::new(1, 1);
    let waiter = Claim::new(2, 1).of("a");
    store.acquire_with(&holder, 10, NEVER, 1).token();
    for ask in ["acquire", "refresh"] {
        let _: () = store.connection.hset("asked", "grants", 10).unwrap();
        store.advance(1);
        match ask {
            "acquire" => assert!(store.acquire(&waiter).is_busy()),
            _ => assert_eq!(store.refresh(&[&waiter]).1, [true]),
        }
        for key in ["grants", "queue", "live"] {
            assert_eq!(store.ttl(key), i64::try_from(LIVENESS).unwrap(), "{key} after {ask}");
        }
    }
    store.advance(10);
    store.refresh(&[]);
    assert_eq!(store.told().len(), 1, "served with the limit that was stored");
}

#[test]
fn a_key_of_another_type_leaves_no_grant_behind() {
    for key in ["counter", "queue", "holders", "grants"] {
        let mut store = Store::new(1);
        let _: i64 = store.connection.lpush(key, "x").unwrap();
        let claim = Claim::new(1, 1);
        let refused =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.acquire(&claim)));
        refused.unwrap_err();
        let mut keys = store.keys();
        keys.retain(|left| left != "counter" && left != key);
        assert_eq!(keys, [""; 0], "{key}");
    }
}

#[test]
fn an_evicted_key_costs_the_holders_their_permits_but_does_not_block_the_name() {
    for key in ["holders", "grants"] {
        let mut store = Store::new(1);
        let holder = Claim::new(1, 1);
        let next = Claim::new(2, 1);
        let token = store.acquire(&holder).token();
        let _: () = store.connection.del(key).unwrap();
        assert!(store.acquire(&next).token() > token);
        assert_eq!(store.extend(&holder, LEASE), -1);
        assert_eq!(store.used(), (1, 1));
        assert_eq!(store.inspect().used, 1);
        store.release(&next);
        assert_eq!(store.used(), (0, 0));
    }
}

#[test]
fn on_the_servers_own_clock() {
    let mut store = Store::on_the_servers_clock(1);
    let holder = Claim::new(1, 1);
    let next = Claim::new(2, 1);
    let token = store.acquire_with(&holder, 50, NEVER, 1).token();
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut store.connection).unwrap();
    let now = seconds * 1_000_000 + micros;
    assert!(now - 60_000_000 < token && token <= now);
    let mut answer = store.acquire_with(&next, LEASE, NEVER, 1);
    while answer.is_busy() {
        answer = store.acquire_with(&next, LEASE, NEVER, 1);
    }
    let granted = answer.token();
    assert!(granted >= token + 50_000, "not before the lease was over: {token} {granted}");
    assert_eq!(store.release(&holder), 0);
    assert_eq!(store.release(&next), 1);
    store.assert_idle();
}
