//! Measures the rivals. The bare driver takes and releases names that no other client wants. The
//! clients of contenders wait for each other.

use std::time::{Duration, Instant};

use tokio::task::{self, JoinSet};

use super::{
    Turn,
    closed::{Window, put_fairness},
    hand_off::put_gaps,
    zipf::{self, Ranks},
};
use crate::{
    error::{Error, Result},
    floor::{FloorClient, Rival},
    report::{Metric, Scenario, Side},
    sample::{Durations, Sample, float, nanos},
};

type Client = Box<dyn FloorClient>;

pub(super) async fn pairs(turn: &Turn<'_>, rival: &Rival, tasks: u32) -> Result<Sample> {
    let contends = rival.side != Side::Floor;
    let clients = rival.clients(tasks).await?;
    let count = u32::try_from(clients.len()).unwrap_or(u32::MAX);
    let work = clients.into_iter().enumerate().map(|(number, client)| {
        let name = match turn.scenario {
            Scenario::HotName if contends => format!("{}/{:?}", turn.name, rival.side),
            _ => format!("{}/{:?}/{number}", turn.name, rival.side),
        };
        let names = match turn.scenario {
            Scenario::Zipf => Names::Popular(name, Ranks::new(zipf::share(turn.case, count))?),
            _ => Names::One(name),
        };
        Ok((client, names))
    });
    let work = work.collect::<Result<_>>()?;
    let window = Window::after_warm_up(Instant::now(), turn.slice);
    let (clients, tallies) = all(work, turn.hold(), window).await?;
    rival.keep(tasks, clients).await;
    let mut sample = Sample::new()?;
    let served: Vec<_> = tallies.iter().map(|tally| tally.inside).collect();
    sample.all_grants = tallies.iter().map(|tally| tally.all).sum();
    sample.put(Metric::GrantsPerSecond, float(served.iter().sum()) / window.seconds());
    if contends {
        put_fairness(&mut sample, &served);
    }
    if turn.scenario == Scenario::HandOff {
        // The time between two grants is the time to release the name and to take it again.
        put_gaps(&mut sample, Durations::of(tallies.into_iter().flat_map(|tally| tally.took))?);
    }
    Ok(sample)
}

/// The names that one client takes. Clients of the bare driver never share a name.
enum Names {
    One(String),
    /// The client's share of many names. It takes some names more often than others.
    Popular(String, Ranks),
}

#[derive(Default)]
struct Tally {
    inside: u64,
    all: u64,
    /// In nanoseconds.
    took: Vec<u64>,
}

/// Each client works in a task of its own, as lockkit's tasks do, so that all threads of the
/// runtime have work.
async fn all(
    work: Vec<(Client, Names)>,
    hold: Duration,
    window: Window,
) -> Result<(Vec<Client>, Vec<Tally>)> {
    let mut tasks = JoinSet::new();
    for (mut client, names) in work {
        tasks.spawn(async move {
            let tally = repeat(&mut *client, &names, hold, window).await?;
            Ok::<_, Error>((client, tally))
        });
    }
    let mut done = Vec::new();
    while let Some(task) = tasks.join_next().await {
        done.push(task.map_err(|error| Error::of("a task of the benchmark failed", error))??);
    }
    Ok(done.into_iter().unzip())
}

async fn repeat(
    client: &mut dyn FloorClient,
    names: &Names,
    hold: Duration,
    window: Window,
) -> Result<Tally> {
    let mut tally = Tally::default();
    loop {
        let asked = Instant::now();
        if asked >= window.until {
            return Ok(tally);
        }
        let granted = match names {
            Names::One(name) => client.pair(name, hold).await?,
            Names::Popular(prefix, ranks) => {
                client.pair(&format!("{prefix}/{}", ranks.choose()), hold).await?
            }
        };
        let done = Instant::now();
        tally.all += 1;
        if window.holds(granted) {
            tally.inside += 1;
            tally.took.push(nanos(done - asked));
        }
        // A client that never waits would keep the thread, and the other clients would get no
        // grant.
        task::coop::consume_budget().await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use async_trait::async_trait;
    use tokio::sync::mpsc;

    use super::*;

    /// A client that reports the task in which it works.
    struct Teller(mpsc::Sender<task::Id>);

    #[async_trait]
    impl FloorClient for Teller {
        async fn pair(&mut self, _name: &str, _hold: Duration) -> Result<Instant> {
            let _ = self.0.send(task::id()).await;
            Ok(Instant::now())
        }
    }

    /// In one task, all clients would share one core, while lockkit's tasks use all cores.
    #[tokio::test]
    async fn each_client_has_a_task_of_its_own() {
        let (sender, mut told) = mpsc::channel(1);
        let clients = (0..3).map(|number| -> (Client, Names) {
            (Box::new(Teller(sender.clone())), Names::One(number.to_string()))
        });
        let window = Window::after_warm_up(Instant::now(), Duration::from_secs(60));
        let work = all(clients.collect(), Duration::ZERO, window);
        let three_tasks = async {
            let mut ids = HashSet::new();
            while ids.len() < 3 {
                ids.extend(told.recv().await);
            }
        };
        tokio::select! {
            () = three_tasks => {}
            _ = work => panic!("the clients have no three tasks"),
        }
    }
}
