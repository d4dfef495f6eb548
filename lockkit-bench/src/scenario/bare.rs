//! The floor: pairs by the bare driver, on names that nobody else wants.

use std::time::Instant;

use futures_util::future::try_join_all;

use super::{Turn, closed::Window, hand_off::put_gaps};
use crate::{
    error::Result,
    floor::FloorClient,
    report::{Metric, Scenario},
    sample::{Durations, Sample, float, nanos},
};

pub(super) async fn pairs(turn: &Turn<'_>, tasks: u32) -> Result<Sample> {
    let mut clients = turn.target.floor_clients(tasks).await?;
    let window = Window::after_warm_up(Instant::now(), turn.slice);
    let work = clients.iter_mut().enumerate().map(|(number, client)| {
        let name = format!("{}/floor/{number}", turn.name);
        async move { repeat(&mut **client, &name, window).await }
    });
    let tallies = try_join_all(work).await?;
    turn.target.keep_floor_clients(tasks, clients).await;
    let mut sample = Sample::new()?;
    let inside: u64 = tallies.iter().map(|tally| tally.inside).sum();
    sample.all_grants = tallies.iter().map(|tally| tally.all).sum();
    sample.put(Metric::GrantsPerSecond, float(inside) / window.seconds());
    if turn.scenario == Scenario::HandOff {
        // Giving back and taking is what lies between two grants.
        put_gaps(&mut sample, Durations::of(tallies.into_iter().flat_map(|tally| tally.took))?);
    }
    Ok(sample)
}

#[derive(Default)]
struct Tally {
    inside: u64,
    all: u64,
    /// In nanoseconds.
    took: Vec<u64>,
}

async fn repeat(client: &mut dyn FloorClient, name: &str, window: Window) -> Result<Tally> {
    let mut tally = Tally::default();
    loop {
        let asked = Instant::now();
        if asked >= window.until {
            return Ok(tally);
        }
        client.pair(name).await?;
        let done = Instant::now();
        tally.all += 1;
        if window.holds(done) {
            tally.inside += 1;
            tally.took.push(nanos(done - asked));
        }
    }
}
