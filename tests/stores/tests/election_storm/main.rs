//! C1, C3, C4, C9 and C14 for elections, with real processes: candidates that lead in turn, observers that watch, and the
//! present leader killed or stopped again and again.
//!
//! The test binary starts itself again as the candidates and the observers; its arguments tell it so. Each of them writes
//! down what it believes, line by line, by the clock that all processes of a machine share.

mod check;
mod child;

use std::{any::Any, env, path::Path, time::Duration};

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit::{Locker, spi::Descriptor};
use lockkit_fixture::{Leashed, RedisServer, SqlFlavor, SqlServer, ZooKeeperServer, slack};
use lockkit_torture::clock::now;
use nix::sys::signal::Signal;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};

use crate::{
    check::{Blow, Story},
    child::ELECTION,
};

const CANDIDATES: usize = 5;
const OBSERVERS: usize = 3;
const BLOWS: usize = 8;
/// A leader that has stood for so long, should have been seen by all.
const SETTLED: Duration = Duration::from_millis(1_600);
/// A storm takes half a minute.
const LONGEST: Duration = Duration::from_secs(60);

fn main() -> Result<(), Failed> {
    let words: Vec<_> = env::args().skip(1).collect();
    if let [role, url, id, ttl] = &*words
        && let Some(role) = role.strip_prefix("storm-")
    {
        return child::run(role, url, id, Duration::from_millis(ttl.parse()?));
    }
    let mut arguments = Arguments::from_args();
    // Most of their time they wait.
    arguments.test_threads.get_or_insert(2);
    let trials = vec![
        Trial::test("redis::storm_of_kills", || storm(redis()?)),
        Trial::test("zookeeper::storm_of_kills", || storm(zookeeper("true")?)),
        Trial::test("zookeeper-unfair::storm_of_kills", || storm(zookeeper("false")?)),
        Trial::test("mariadb::storm_of_kills", || storm(sql("optimistic", 1_000)?)),
        Trial::test("mariadb-pessimistic::storm_of_kills", || storm(sql("pessimistic", 1_500)?)),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

/// A store for one storm, for as long as the value lives.
struct Place {
    url: String,
    ttl: Duration,
    _server: Box<dyn Any>,
}

fn redis() -> Result<Place, Failed> {
    let server = RedisServer::start()?;
    Ok(Place { url: server.url(), ttl: Duration::from_secs(1), _server: Box::new(server) })
}

fn zookeeper(fair: &str) -> Result<Place, Failed> {
    let server = ZooKeeperServer::start()?;
    let url = format!("{}?session_timeout=1500ms&fair={fair}", server.url());
    Ok(Place { url, ttl: Duration::from_millis(1_500), _server: Box::new(server) })
}

fn sql(strategy: &str, ttl: u64) -> Result<Place, Failed> {
    let server = SqlServer::start(SqlFlavor::MariaDb)?;
    let url = format!("{}?strategy={strategy}", server.url());
    Ok(Place { url, ttl: Duration::from_millis(ttl), _server: Box::new(server) })
}

fn storm(place: Place) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let folder = tempfile::tempdir()?;
    let (story, descriptor) = runtime.block_on(async {
        let locker = lockkit::connect(&place.url).await?;
        let story = weather(&locker, &place, folder.path()).await?;
        let descriptor = locker.descriptor().clone();
        locker.shutdown().await?;
        Ok::<(Story, Descriptor), Failed>((story, descriptor))
    })?;
    story.verify(&descriptor, place.ttl, slack())
}

/// A process of ours, which writes what it believes to its log.
struct Actor {
    process: Leashed,
    id: String,
}

impl Actor {
    fn start(role: &str, id: String, place: &Place, folder: &Path) -> Result<Self, Failed> {
        let log = folder.join(format!("{role}-{id}"));
        let (role, ttl) = (format!("storm-{role}"), place.ttl.as_millis().to_string());
        let arguments = [&role, &place.url, &id, &ttl];
        Ok(Self { process: Leashed::spawn(&env::current_exe()?, arguments, &log)?, id })
    }
}

/// Hits the present leader, as an observer of our own knows it, again and again.
async fn weather(locker: &Locker, place: &Place, folder: &Path) -> Result<Story, Failed> {
    let seed = rand::random();
    println!("seed {seed}");
    let mut chance = StdRng::seed_from_u64(seed);
    let mut observers = Vec::new();
    for n in 0..OBSERVERS {
        observers.push(Actor::start("observer", n.to_string(), place, folder)?);
    }
    let mut candidates = Vec::new();
    for n in 0..CANDIDATES {
        candidates.push(Actor::start("candidate", format!("{n}.0"), place, folder)?);
    }
    let mut watch = locker.election(ELECTION)?.watch();
    let (mut story, mut born) = (Story::default(), 0);
    let end = now() + u64::try_from(LONGEST.as_nanos())?;
    while story.blows.len() < BLOWS && now() < end {
        let leader = loop {
            // Until somebody leads, and every second time until it has settled.
            let leader = match watch.current() {
                Some(leader) => leader.clone(),
                None => match watch.changed().await? {
                    Some(leader) => leader,
                    None => continue,
                },
            };
            let settles = story.blows.len().is_multiple_of(2);
            let stay = if settles { SETTLED } else { Duration::from_millis(chance.random_range(0..300)) };
            if timeout(stay, watch.changed()).await.is_err() {
                break leader;
            }
        };
        let Some(hit) = candidates.iter().position(|candidate| candidate.id == leader.value) else {
            continue;
        };
        story.blows.push(Blow { at: now(), id: leader.value });
        if story.blows.len() % 3 == 0 {
            candidates[hit].process.pause()?;
            sleep(place.ttl.mul_f64(chance.random_range(1.2..1.8))).await;
            candidates[hit].process.resume()?;
        } else {
            candidates[hit].process.signal(Signal::SIGKILL)?;
            born += 1;
            let next = Actor::start("candidate", format!("{hit}.{born}"), place, folder)?;
            let dead = std::mem::replace(&mut candidates[hit], next);
            story.candidates.push((dead.id, dead.process.log()));
        }
        // Whoever follows, it is not the one that was hit.
        watch.changed().await?;
    }
    // The last one that was hit is followed as well.
    let last = story.blows.last().map_or(0, |blow| blow.at);
    while !candidates.iter().any(|candidate| gained_after(&candidate.process.log(), last)) {
        if now() > end + u64::try_from(LONGEST.as_nanos())? {
            break; // the story tells
        }
        sleep(Duration::from_millis(50)).await;
    }
    // A settled leader is seen.
    sleep(slack() / 2).await;
    for actor in &mut candidates {
        actor.process.kill()?;
        story.candidates.push((actor.id.clone(), actor.process.log()));
    }
    for actor in &mut observers {
        actor.process.kill()?;
        story.observers.push(actor.process.log());
    }
    Ok(story)
}

fn gained_after(told: &str, then: u64) -> bool {
    let times = told.lines().filter_map(|line| line.strip_prefix("gained ")?.split(' ').next()?.parse().ok());
    times.max().is_some_and(|at: u64| at > then)
}
