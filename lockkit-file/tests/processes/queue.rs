//! Processes that wait for each other.

use std::time::Instant;

use libtest_mimic::Failed;

use crate::{child::count, parent::Store};

const TIMES: u64 = 2_000;

pub(crate) fn in_order() -> Result<(), Failed> {
    let store = Store::new()?;
    let held = store.runtime.block_on(store.mutex()?.lock())?;
    let mut waiters = Vec::new();
    for at in 1..=6 {
        waiters.push(store.client("hold")?);
        store.wait_for_waiters(at)?;
    }
    let mut last = held.fencing_token().get();
    store.runtime.block_on(held.release())?;
    for mut waiter in waiters {
        let token: u64 = waiter.hear()?.parse()?;
        assert!(token > last, "C12: somebody was ahead");
        last = token;
        waiter.tell("")?;
        assert_eq!(waiter.hear()?, "Freed");
        waiter.ends()?;
    }
    Ok(())
}

pub(crate) fn increments() -> Result<(), Failed> {
    let store = Store::new()?;
    let role = format!("increment {TIMES}");
    let mut clients = [store.client(&role)?, store.client(&role)?];
    for client in &mut clients {
        assert_eq!(client.hear()?, "ready");
    }
    let start = Instant::now();
    for client in &mut clients {
        client.tell("")?;
    }
    for client in clients {
        client.ends()?;
    }
    eprintln!("2 × {TIMES} increments in {:?}", start.elapsed());
    assert_eq!(count(store.path())?, 2 * TIMES);
    Ok(())
}
