//! Tests of losses and of their signal.

use std::thread;

use super::{MINUTE, ms, world};
use crate::{
    error::ErrorKind,
    fake::Kind,
    options::{LockOptions, Renewal},
    spi::LossReason,
};

/// Catches a signal that only a poll sees.
#[test]
fn c3_a_thread_that_waits_for_the_loss_is_woken() {
    let (store, locker) = world(Kind::Ttl);
    let guard = locker.mutex("a").unwrap().lock().unwrap();
    let lost = guard.lost();
    assert_eq!(lost.wait_timeout(ms(20)).unwrap(), None);
    assert!(!lost.is_lost());
    let signal = lost.clone();
    let waiting = thread::spawn(move || signal.wait_timeout(MINUTE).unwrap());
    thread::sleep(ms(20));
    store.evict("a");
    assert_eq!(guard.renew().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(waiting.join().unwrap(), Some(LossReason::Evicted));
    assert!(lost.is_lost() && !guard.is_held() && guard.remaining().is_zero());
    assert_eq!(guard.release().unwrap_err().kind(), ErrorKind::Lost);
    locker.shutdown().unwrap();
}

/// Catches a wait without a timer of its own.
#[test]
fn c3_the_signal_fires_at_the_local_deadline() {
    let (_store, locker) = world(Kind::Ttl);
    let options = LockOptions::new().with_ttl(ms(300)).with_renewal(Renewal::Manual);
    let guard = locker.mutex("a").unwrap().with_options(options).unwrap().lock().unwrap();
    assert_eq!(guard.lost().wait_timeout(MINUTE).unwrap(), Some(LossReason::Expired));
    assert!(!guard.hold().is_held());
    drop(guard);
    locker.shutdown().unwrap();
}

#[test]
fn a_lock_that_was_given_back_is_not_lost() {
    let (_store, locker) = world(Kind::Ttl);
    let guard = locker.mutex("a").unwrap().lock().unwrap();
    let (hold, lost) = (guard.hold(), guard.lost());
    guard.release().unwrap();
    assert_eq!(lost.wait_timeout(ms(20)).unwrap(), None);
    assert!(!lost.is_lost() && !hold.is_held());
    assert_eq!(hold.renew().unwrap_err().kind(), ErrorKind::Lost);
    locker.shutdown().unwrap();
}

/// In one case the work learns of the loss, in the other one only the release does. Catches a scope
/// that returns its output all the same.
#[test]
fn c7_a_scope_that_lost_its_lock_is_an_error() {
    for renews in [true, false] {
        let (store, locker) = world(Kind::Ttl);
        let scope = locker.mutex("a").unwrap().scope(|hold| {
            store.evict("a");
            assert!(!renews || hold.renew().is_err());
            7
        });
        assert_eq!(scope.unwrap_err().kind(), ErrorKind::Lost, "renews: {renews}");
        locker.shutdown().unwrap();
    }
}
