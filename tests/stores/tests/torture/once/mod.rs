//! Five processes run the slots of one schedule, by clocks that are up to a minute apart. The test
//! kills the processes, and disturbs the servers in ways that break no promise. No slot may be
//! missed, and no repeat may be unannounced.
//!
//! The runners append what they do to one file. The test program starts itself again as a runner.

mod check;
pub(crate) mod child;
mod history;

use std::{
    fs::File,
    ops::Range,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Failed, Trial};
use lockkit_fixture::{Peer, is_alive};
use lockkit_torture::site::{ServerFault, Site};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tempfile::TempDir;

use self::history::Line;
use crate::site::{self, Start};

/// By how many milliseconds the clock of each runner is ahead.
const CLOCKS: [i64; 5] = [-30_000, -15_000, 0, 15_000, 30_000];

/// The sites of the everyday tests.
const EVERYDAY: [&str; 3] = ["mariadb", "redis", "zookeeper"];
/// The sites of all tests, and the slots of each. Several servers take longer for each slot, and
/// the faults matter most.
const THOROUGH: [(&str, u64); 5] = [
    ("mariadb", 10_000),
    ("redis", 10_000),
    ("redis-sentinel-wait", 2_000),
    ("zookeeper", 10_000),
    ("zookeeper-ensemble", 2_000),
];

/// The bound for the slots between two faults. They take seconds.
const LONGEST: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(5);
/// How long after the beginning of a long slot a runner is killed, in milliseconds. Some kills hit
/// the work, others the record of its end or the next slot.
const KILL_WITHIN: u64 = 600;

/// The size of a storm.
#[derive(Clone, Copy)]
struct Size {
    /// The slots, of one millisecond each.
    slots: u64,
    faults: u64,
}

pub(crate) fn trials() -> Vec<Trial> {
    let short = Size { slots: 300, faults: 6 };
    let mut trials = vec![Trial::test("once::the_check_finds_each_fault", check::finds_each_fault)];
    for (name, start) in site::all() {
        if EVERYDAY.contains(&name) {
            let name = format!("{name}::c5_slots_run_once_although_runners_die");
            trials.push(Trial::test(name, move || storm(start, short)));
        }
        if let Some((_, slots)) = THOROUGH.iter().find(|(site, _)| *site == name) {
            let name = format!("{name}::c5_thousands_of_slots_run_once_although_runners_die");
            let long = Size { slots: *slots, faults: 40 };
            trials.push(Trial::test(name, move || storm(start, long)));
        }
    }
    trials
}

fn storm(start: Start, size: Size) -> Result<(), Failed> {
    let seed = rand::random();
    println!("seed {seed}");
    let mut chance = StdRng::seed_from_u64(seed);
    let mut site = start()?;
    let mut faults = site.faults();
    faults.retain(|fault| fault.weakens.is_none());
    let step = size.slots / (size.faults + 1);
    let mut crew = Crew::start(&site.open()?, size.slots, step)?;
    for number in 1..=size.faults {
        let line = crew.until_begun(crew.slots.start + number * step)?;
        match number % 3 {
            // The work of this slot is long, so this kill hits it.
            1 => crew.kill(line.runner)?,
            2 => {
                thread::sleep(Duration::from_millis(chance.random_range(0..KILL_WITHIN)));
                let any = chance.random_range(0..CLOCKS.len());
                crew.kill(if chance.random() { line.runner } else { any })?;
            }
            _ => {
                let fault = &faults[chance.random_range(0..faults.len())];
                disturb(&mut *site, fault, &mut chance)?;
            }
        }
    }
    crew.until_all_end()?;
    let figures = check::verify(&history::read(&crew.file)?, crew.slots)?;
    println!("{figures:?}");
    if figures.takeovers == 0 {
        return Err(format!("that was no storm: {figures:?}").into());
    }
    Ok(())
}

/// Causes a fault of the servers, and heals it.
fn disturb(site: &mut dyn Site, fault: &ServerFault, chance: &mut StdRng) -> Result<(), Failed> {
    let target = site.strike(fault, chance.random())?;
    println!("{} of {target}", fault.kind);
    let millis = |length: &Duration| u64::try_from(length.as_millis());
    let lasts = millis(fault.lasts.start())?..=millis(fault.lasts.end())?;
    thread::sleep(Duration::from_millis(chance.random_range(lasts)));
    Ok(site.heal()?)
}

/// The runners. A runner is `None` once it has ended by itself.
struct Crew {
    runners: Vec<Option<Peer>>,
    url: String,
    slots: Range<u64>,
    step: u64,
    file: PathBuf,
    _folder: TempDir,
}

impl Crew {
    fn start(url: &str, count: u64, step: u64) -> Result<Self, Failed> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("runs");
        File::create(&file)?;
        // The last clock passes the middle of the schedule now, and the others have passed its end.
        let first = child::now(CLOCKS[0]) - count / 2;
        let slots = first..first + count;
        let runners = Vec::new();
        let mut crew = Self { runners, url: url.to_owned(), slots, step, file, _folder: folder };
        for number in 0..CLOCKS.len() {
            let runner = crew.runner(number)?;
            crew.runners.push(Some(runner));
        }
        Ok(crew)
    }

    fn runner(&self, number: usize) -> Result<Peer, Failed> {
        let Self { url, slots: Range { start, end }, step, .. } = self;
        let ahead = CLOCKS[number];
        let file = self.file.display();
        Ok(Peer::start(&format!("{url} {number} {ahead} {start} {end} {step} {file}"))?)
    }

    /// Kills a runner that has not ended, and starts it again.
    fn kill(&mut self, number: usize) -> Result<(), Failed> {
        let Some(runner) = self.runners[number].take() else { return Ok(()) };
        let said = runner.kill()?;
        if said.is_empty() {
            self.runners[number] = Some(self.runner(number)?);
        } else if said != ["bye"] {
            return Err(format!("runner {number} said {said:?}").into());
        }
        Ok(())
    }

    /// Waits until this slot or a later one has begun. Returns the beginning.
    fn until_begun(&mut self, slot: u64) -> Result<Line, Failed> {
        let end = Instant::now() + LONGEST;
        loop {
            self.look()?;
            let last = history::last_beginning(&self.file)?;
            match last.filter(|line| line.slot >= slot) {
                Some(line) => return Ok(line),
                None if Instant::now() < end => thread::sleep(POLL),
                None => {
                    return Err(format!("the slot {slot} does not begin, after {last:?}").into());
                }
            }
        }
    }

    fn until_all_end(&mut self) -> Result<(), Failed> {
        let end = Instant::now() + LONGEST;
        while self.runners.iter().any(Option::is_some) {
            if Instant::now() > end {
                let last = history::last_beginning(&self.file)?;
                return Err(format!("the runners do not end, after {last:?}").into());
            }
            thread::sleep(POLL);
            self.look()?;
        }
        Ok(())
    }

    /// Collects the runners that have ended by themselves. Each of them must have done all slots.
    fn look(&mut self) -> Result<(), Failed> {
        for runner in &mut self.runners {
            let has_ended = runner.as_ref().is_some_and(|peer| !is_alive(peer.id()));
            if has_ended && let Some(peer) = runner.take() {
                peer.ends()?;
            }
        }
        Ok(())
    }
}
