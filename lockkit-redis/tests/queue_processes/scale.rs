//! Tests many names and many waiters of one process. The memory that they take is printed.

use libtest_mimic::Failed;
use lockkit_fixture::Peer;

use crate::parent::Store;

const NAMES: u64 = 10_000;
const CROWD: u64 = 1_000;

/// The memory that the client and the server need for each name or waiter.
fn weigh(client: &mut Peer, store: &Store, empty: u64, many: u64) -> Result<String, Failed> {
    let line = client.hear()?;
    let (before, after) = line.split_once(' ').ok_or("no two figures")?;
    let grown = after.parse::<u64>()?.saturating_sub(before.parse()?) * 1024 / many;
    let kept = store.dataset()?.saturating_sub(empty) / many;
    Ok(format!("{grown} bytes in the client (resident), {kept} in the server"))
}

pub(crate) fn names() -> Result<(), Failed> {
    let store = Store::start()?;
    let empty = store.dataset()?;
    let mut client = store.client(&format!("names {NAMES}"))?;
    let weight = weigh(&mut client, &store, empty, NAMES)?;
    println!("a held name: {weight}");
    assert_eq!(store.integer(["DBSIZE"])?, i64::try_from(NAMES + 2)?);
    assert_eq!(store.channels()?, 1);
    client.tell("")?;
    client.ends()?;
    assert_eq!(store.integer(["DBSIZE"])?, 2);
    store.assert_clean()
}

pub(crate) fn crowd() -> Result<(), Failed> {
    let store = Store::start()?;
    let empty = store.dataset()?;
    let mut client = store.client(&format!("crowd {CROWD}"))?;
    client.hear()?;
    store.wait_for_waiters(i64::try_from(CROWD)?)?;
    client.tell("")?;
    let weight = weigh(&mut client, &store, empty, CROWD)?;
    println!("a waiter: {weight}");
    assert_eq!(store.channels()?, 1);
    client.tell("")?;
    let granted: u64 = client.hear()?.parse()?;
    println!("{granted} of {CROWD} were served, the others left");
    assert!((CROWD / 2..CROWD).contains(&granted), "{granted} of {CROWD} were served");
    client.ends()?;
    store.assert_clean()
}
