//! What a contended grant costs, and whether all get as many.

use std::time::Instant;

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
    clients.iter_mut().try_for_each(|client| client.tell(""))?;
    // From here on, all take part.
    store.wait_for_waiters((processes * tasks - 1).try_into()?)?;
    store.0.ask(["CONFIG", "RESETSTAT"])?;
    let (start, since) = (Instant::now(), store.time()?);
    // Each process keeps its waiters alive once a second, however slow the lock goes round.
    let keeping_alive = || processes * (1 + start.elapsed().as_secs());
    // Two requests at least for each grant.
    let enough = 2 * (LEAST + 6) * processes * tasks;
    eventually("the lock does not go round", || Ok(store.requests()? >= enough + keeping_alive()))?;
    let until = store.time()?;
    clients.iter_mut().try_for_each(|client| client.tell(""))?;
    let mut grants: Vec<Vec<u64>> = Vec::new();
    for client in &mut clients {
        for tokens in client.hear()?.split(' ') {
            let tokens = tokens.split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
            grants.push(tokens.into_iter().filter(|token| *token >= since).collect());
        }
    }
    clients.into_iter().try_for_each(Peer::ends)?;

    let requests = store.requests()?;
    let total = grants.iter().map(Vec::len).sum::<usize>().try_into()?;
    // Until the first process may have stopped.
    let turns = grants.iter().map(|tokens| tokens.iter().filter(|token| **token < until).count());
    let turns = turns.map(u64::try_from).collect::<Result<Vec<_>, _>>()?;
    let fewest = *turns.iter().min().ok_or("nobody took part")?;
    let largest = *turns.iter().max().ok_or("nobody took part")?;
    let per_grant = ratio(requests.saturating_sub(keeping_alive()), total);
    println!(
        "{processes} processes, {tasks} tasks each, {hold} ms: {per_grant:.3} requests a grant ({requests} for {total}; of \
         them {} with a script's text and {} to keep waiters and leases alive), {fewest} to {largest} grants a task",
        store.calls("eval")?,
        // Beside each text there was a hash that the server did not know.
        requests.saturating_sub(2 * total + store.calls("eval")?),
    );
    assert!(fewest >= LEAST, "{fewest} grants of one task");
    assert!(per_grant <= most, "{per_grant} requests for a grant");
    assert!(largest <= fewest + 2, "one task was served {largest} times, another {fewest}");
    store.assert_clean()
}

fn ratio(a: u64, b: u64) -> f64 {
    let float = |number: u64| f64::from(u32::try_from(number).unwrap());
    float(a) / float(b)
}
