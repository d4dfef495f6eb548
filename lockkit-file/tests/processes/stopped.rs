//! Tests processes that are stopped.

use std::{fs, time::Duration};

use libtest_mimic::Failed;
use lockkit_core::{ErrorKind, LockOptions};
use nix::sys::signal::Signal;

use crate::parent::{SOON, Store, stop};

pub(crate) fn holder() -> Result<(), Failed> {
    let store = Store::new()?;
    let mut holder = store.client("hold")?;
    holder.hear()?;
    stop(&holder, &store)?;
    let mutex = store.mutex()?;
    let bound = Duration::from_millis(1_500);
    let error = store.runtime.block_on(mutex.lock_timeout(bound)).expect_err("C1: it holds on");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    holder.signal(Signal::SIGCONT)?;
    holder.tell("")?;
    assert_eq!(holder.hear()?, "released");
    drop(store.runtime.block_on(mutex.lock_timeout(SOON))?);
    Ok(holder.ends()?)
}

pub(crate) fn waiter() -> Result<(), Failed> {
    let store = Store::new()?;
    let held = store.runtime.block_on(store.mutex()?.lock())?;
    let mut first = store.client("hold")?;
    store.wait_for_waiters(1)?;
    stop(&first, &store)?;
    let mut second = store.client("hold")?;
    store.wait_for_waiters(2)?;
    store.runtime.block_on(held.release())?;
    // This takes three seconds and a poll.
    second.hear()?;
    first.signal(Signal::SIGCONT)?;
    second.tell("")?;
    assert_eq!(second.hear()?, "released");
    second.ends()?;
    first.hear()?;
    first.tell("")?;
    assert_eq!(first.hear()?, "released");
    Ok(first.ends()?)
}

pub(crate) fn inside_the_gate() -> Result<(), Failed> {
    let store = Store::new()?;
    let options = LockOptions::new().with_op_timeout(Duration::from_millis(200));
    let guard = store.runtime.block_on(store.mutex()?.lock())?;
    store.runtime.block_on(guard.release())?;
    let mutex = store.mutex()?.with_options(options)?;
    let mut inside = store.client("gate")?;
    assert_eq!(inside.hear()?, "ready");
    inside.signal(Signal::SIGSTOP)?;
    // Until then the call tries again.
    let bound = Duration::from_secs(6);
    let error = store.runtime.block_on(mutex.lock_timeout(bound)).expect_err("a gate for one");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&format!("process {} (", inside.id())), "{error}");
    inside.signal(Signal::SIGCONT)?;
    inside.tell("")?;
    drop(store.runtime.block_on(store.mutex()?.lock_timeout(SOON))?);
    Ok(inside.ends()?)
}

/// Other processes can't know when a stopped holder looks again. It learns of the loss when it
/// continues, before its next check.
pub(crate) fn without_a_session() -> Result<(), Failed> {
    let store = Store::new()?;
    let holder = store.client("tell-loss")?;
    let token: u64 = holder.hear()?.parse()?;
    stop(&holder, &store)?;
    for session in store.sessions()? {
        fs::remove_file(session)?;
    }
    let next = store.runtime.block_on(store.mutex()?.lock_timeout(SOON))?;
    assert!(next.fencing_token().get() > token);
    holder.signal(Signal::SIGCONT)?;
    assert_eq!(holder.hear()?, "SessionLost");
    assert_eq!(holder.hear()?, "false");
    assert!(next.is_held());
    Ok(holder.ends()?)
}
