//! What a contended grant costs, and whether all get as many.

use libtest_mimic::Failed;
use lockkit_fixture::Peer;

use crate::parent::{Store, eventually};

/// Each task shall have this many grants.
const LEAST: u64 = 20;

pub(crate) fn compete(processes: u64, tasks: u64, hold: u64, most: f64) -> Result<(), Failed> {
    let store = Store::start()?;
    let role = format!("compete {tasks} {hold}");
    let mut clients = (0..processes).map(|_| store.client(&role)).collect::<Result<Vec<_>, _>>()?;
    clients.iter_mut().try_for_each(|client| client.hear().map(drop))?;
    store.0.ask(["CONFIG", "RESETSTAT"])?;
    clients.iter_mut().try_for_each(|client| client.tell(""))?;
    // Two requests at least for each grant.
    eventually(
        "the lock does not go round",
        || Ok(store.requests()? >= 2 * (LEAST + 6) * processes * tasks),
    )?;
    clients.iter_mut().try_for_each(|client| client.tell(""))?;
    let mut grants: Vec<u64> = Vec::new();
    for client in &mut clients {
        for count in client.hear()?.split(' ') {
            grants.push(count.parse()?);
        }
    }
    clients.into_iter().try_for_each(Peer::ends)?;

    let (requests, total) = (store.requests()?, grants.iter().sum::<u64>());
    let (fewest, largest) = (*grants.iter().min().unwrap(), *grants.iter().max().unwrap());
    let (per_grant, unfair) = (ratio(requests, total), ratio(largest, fewest));
    println!(
        "{processes} processes, {tasks} tasks each, {hold} ms: {per_grant:.3} requests a grant ({requests} for {total}; of \
         them {} with a script's text and {} to keep waiters and leases alive), {fewest} to {largest} grants a task",
        store.calls("eval")?,
        // Beside each text there was a hash that the server did not know.
        requests.saturating_sub(2 * total + store.calls("eval")?),
    );
    assert!(fewest >= LEAST, "{fewest} grants of one task");
    assert!(per_grant <= most, "{per_grant} requests for a grant");
    assert!(unfair <= 1.1, "one task was served {largest} times, another {fewest}");
    store.assert_clean()
}

fn ratio(a: u64, b: u64) -> f64 {
    let float = |number: u64| f64::from(u32::try_from(number).unwrap());
    float(a) / float(b)
}
