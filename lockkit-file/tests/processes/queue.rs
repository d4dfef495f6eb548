//! Tests processes that wait for each other.

use libtest_mimic::Failed;

use crate::parent::Store;

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
        assert_eq!(waiter.hear()?, "released");
        waiter.ends()?;
    }
    Ok(())
}
