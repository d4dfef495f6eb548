//! C1, C3, C4, C9 and C14 for elections, with real processes. Candidates lead in turn and observers
//! watch, while the test kills or stops the present leader again and again.
//!
//! The test binary starts itself again as the candidates and the observers. Each of them records
//! line by line what it believes, by the clock that all processes of a machine share. The checker
//! of the torture tool reads these records.

mod check;
mod child;

use std::{any::Any, path::Path, time::Duration};

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit::{Leader, LeaderWatch, Locker};
use lockkit_fixture::{Peer, RedisServer, SqlFlavor, SqlServer, ZooKeeperServer, role, slack};
use lockkit_torture::{
    check::Terms,
    clock::now,
    history::{DIRECTOR, Event, Record, Writer, read},
};
use nix::sys::signal::Signal;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};

use crate::child::{CANDIDATE, ELECTION, OBSERVER};

const CANDIDATES: usize = 5;
const OBSERVERS: usize = 3;
const BLOWS: u64 = 8;
/// Observers look about three times a second.
const LOOKS: Duration = Duration::from_millis(313);
/// The bound for a storm, which takes half a minute.
const LONGEST: Duration = Duration::from_secs(60);

/// All observers have seen a leader that has led for this long.
fn settled() -> Duration {
    LOOKS + slack() / 2
}

fn main() -> Result<(), Failed> {
    if let Some(words) = role() {
        return child::run(&words);
    }
    let mut arguments = Arguments::from_args();
    // The trials wait most of their time.
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

/// A store for one storm, which lives as long as this value.
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
    let folder = tempfile::tempdir()?;
    let descriptor = Runtime::new()?.block_on(async {
        let locker = lockkit::connect(&place.url).await?;
        weather(&locker, &place, folder.path()).await?;
        let descriptor = locker.descriptor().clone();
        locker.shutdown().await?;
        Ok::<_, Failed>(descriptor)
    })?;
    check::verify(&read(folder.path())?, &Terms::of(&descriptor, slack()))
}

/// A process of this test, which records what it believes in the folder.
struct Actor {
    process: Peer,
    number: u32,
}

/// Starts the processes, each with another number.
struct Casting<'a> {
    place: &'a Place,
    folder: &'a Path,
    last: u32,
}

impl Casting<'_> {
    fn start(&mut self, role: &str) -> Result<Actor, Failed> {
        self.last += 1;
        let Place { url, ttl, .. } = self.place;
        let words =
            format!("{role} {url} {} {} {}", self.last, ttl.as_millis(), self.folder.display());
        Ok(Actor { process: Peer::start(&words)?, number: self.last })
    }
}

/// Hits the present leader again and again. A watch of the test itself finds that leader.
async fn weather(locker: &Locker, place: &Place, folder: &Path) -> Result<(), Failed> {
    let seed = rand::random();
    println!("seed {seed}");
    let mut chance = StdRng::seed_from_u64(seed);
    let director = Writer::create(&folder.join("director.jsonl"), DIRECTOR)?;
    let mut casting = Casting { place, folder, last: 0 };
    let observers =
        (0..OBSERVERS).map(|_| casting.start(OBSERVER)).collect::<Result<Vec<_>, _>>()?;
    let mut candidates =
        (0..CANDIDATES).map(|_| casting.start(CANDIDATE)).collect::<Result<Vec<_>, _>>()?;
    let mut watch = locker.election(ELECTION)?.watch();
    let mut fault = 0;
    let mut last = 0;
    let end = now() + child::nanos(LONGEST);
    while u64::from(fault) < BLOWS && now() < end {
        // Every second leader must have settled.
        let leader = next_leader(&mut watch, &mut chance, fault % 2 == 0).await?;
        let is_leader = |candidate: &Actor| candidate.number.to_string() == leader.value;
        let Some(hit) = candidates.iter().position(is_leader) else { continue };
        let number = candidates[hit].number;
        fault += 1;
        last = now();
        let strikes = |kind: &str| {
            let kind = kind.to_owned();
            let target = "the leader".to_owned();
            director.write_at(
                last,
                Event::Strikes { fault, kind, target, victim: Some(number), weakens: None },
            );
        };
        if fault % 3 == 0 {
            strikes("stop");
            candidates[hit].process.signal(Signal::SIGSTOP)?;
            sleep(place.ttl.mul_f64(chance.random_range(1.2..1.8))).await;
            candidates[hit].process.signal(Signal::SIGCONT)?;
            director.write(Event::Heals { fault });
        } else {
            strikes("kill");
            let next = casting.start(CANDIDATE)?;
            end_of(std::mem::replace(&mut candidates[hit], next), &director)?;
        }
        // The next leader is not the one that was hit.
        watch.changed().await?;
    }
    // The last leader that was hit must have a successor as well.
    grant_after(last, folder, end + child::nanos(LONGEST)).await?;
    // The observers must see the last leader once it has settled.
    sleep(slack() / 2).await;
    candidates.into_iter().try_for_each(|candidate| end_of(candidate, &director))?;
    observers.into_iter().try_for_each(|observer| end_of(observer, &director))
}

/// Waits for a leader that stays: until it has settled, or else for a short random time.
async fn next_leader(
    watch: &mut LeaderWatch,
    chance: &mut StdRng,
    settles: bool,
) -> Result<Leader, Failed> {
    loop {
        let leader = match watch.current() {
            Some(leader) => leader.clone(),
            None => match watch.changed().await? {
                Some(leader) => leader,
                None => continue,
            },
        };
        let brief = Duration::from_millis(chance.random_range(0..300));
        // A leader records that it leads after each of its checks, so its record ends earlier than
        // its term.
        let stay = if settles { settled() + 10 * child::BETWEEN_CHECKS } else { brief };
        if timeout(stay, watch.changed()).await.is_err() {
            return Ok(leader);
        }
    }
}

/// Waits for a grant after the instant `last`, but no longer than until `end`.
async fn grant_after(last: u64, folder: &Path, end: u64) -> Result<(), Failed> {
    let is_next =
        |record: &Record| record.at > last && matches!(record.event, Event::Granted { .. });
    while !read(folder)?.iter().any(is_next) {
        if now() > end {
            break; // the history tells
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Kills the process, and records its death.
fn end_of(actor: Actor, director: &Writer) -> Result<(), Failed> {
    let said = actor.process.kill()?;
    assert!(said.is_empty(), "process {} said {said:?}", actor.number);
    director.write(Event::Died { victim: actor.number });
    Ok(())
}
