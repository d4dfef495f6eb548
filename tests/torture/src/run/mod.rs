//! One round: the processes, the faults, and the checker's verdict.

mod evidence;
mod leaks;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use lockkit::{Locker, spi::Descriptor};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use self::evidence::lacking;

use crate::{
    check::{Terms, Verdict, check},
    child::{Child, Program, Role},
    error::{Error, Result},
    history::{DIRECTOR, Writer, read},
    link::Link,
    nemesis::{
        Companions, Crew, Deck, Fleet, Hands, KILL_HOLDER, Life, Notes, Plan, Schedule,
        hurt_processes, hurt_servers, kill_a_holder,
    },
    report,
    site::Site,
    worker::Locks,
    workload::Workload,
};

/// The time for a child to release its locks.
const FAREWELL: Duration = Duration::from_secs(60);
/// The extra time for the next holder after a death, beyond the bound of the contract.
const MARGIN: Duration = Duration::from_secs(1);

/// The settings of one round.
#[derive(Clone, Debug)]
pub struct Round {
    /// Determines all random choices, but not the timing of the stores and of the machine.
    pub seed: u64,
    /// The time during which faults happen.
    pub span: Duration,
    /// The time without faults at the end of the round. The round extends it if the next holder
    /// after a death may take longer.
    pub calm: Duration,
    /// The work of the processes.
    pub workload: Workload,
    /// The kinds of faults. An empty list means all kinds, and `none` means no fault.
    pub only: Vec<String>,
    /// The average time from the end of one fault to the start of the next.
    pub pause: Duration,
    /// The extra time beyond the bounds of the contract, for a busy machine.
    pub slack: Duration,
    /// The folder of the history and the report. The round creates it, or it must be empty.
    pub folder: PathBuf,
}

/// The result of a round.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The store's name for itself.
    pub store: String,
    /// The checker's verdict.
    pub verdict: Verdict,
    /// The planned faults.
    pub plan: Plan,
    /// The kinds of faults without time left, once for each fault.
    pub skipped: Vec<&'static str>,
    /// The reason why a verdict without violations proves nothing, if there is one. The round
    /// failed, no lock was granted, or a process did no work.
    pub error: Option<String>,
}

/// A round before its start.
#[derive(Debug)]
struct Stage<'a> {
    round: &'a Round,
    url: String,
    more_urls: Vec<String>,
    locker: Locker,
    descriptor: Descriptor,
    plan: Plan,
    notes: Notes,
    /// Whether the round ends with the death of a holder.
    kills: bool,
}

/// The settings for another check of a history.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    store: String,
    seed: u64,
    terms: Terms,
    /// As in the outcome.
    error: Option<String>,
}

/// The result of another check of a history.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The checker's verdict.
    pub verdict: Verdict,
    /// The reason why a verdict without violations proves nothing, as in [`Outcome::error`].
    pub error: Option<String>,
    /// The report.
    pub report: PathBuf,
}

const HEADER: &str = "run.json";

/// A site, and the program of the processes that use it.
#[derive(Clone, Debug)]
pub struct Arena {
    hands: Hands,
    name: String,
    program: Program,
}

impl Arena {
    /// Processes of `program` on this site.
    #[must_use]
    pub fn new(site: Box<dyn Site>, program: Program) -> Self {
        let name = site.name().to_owned();
        Self { hands: Hands::new(site), name, program }
    }

    /// The site's name for itself.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a round, and checks its history. Calls `announce` with the plan before the round
    /// starts.
    ///
    /// # Errors
    /// No round started: the folder is in use, a fault does not exist, the store is unreachable, or
    /// a process can't start. If a lock misbehaves, this is not an error, but a violation in the
    /// verdict. A failure after the start of the round is in the outcome.
    pub async fn play(&self, round: &Round, announce: impl FnOnce(&Plan)) -> Result<Outcome> {
        let folder = &round.folder;
        refuse_used(folder)?;
        let opened = self
            .hands
            .work("could not open the store", |site| Ok((site.open()?, site.more_urls())));
        let (url, more_urls) = opened.await?;
        let locker = connect(&url).await?;
        let descriptor = locker.descriptor().clone();
        let deck = self.deck(round, &url, &descriptor).await?;
        deck.refuse_unknown()?;
        let plan = deck.draw(round.seed, round.span);
        let kills = deck.wants(KILL_HOLDER);
        let terms = Terms::of(&descriptor, round.slack);
        fs::create_dir_all(folder)
            .map_err(|error| Error::of(format!("could not create {}", folder.display()), error))?;
        let unfinished = Some("the round did not reach its end".to_owned());
        let store = self.name.clone();
        let seed = round.seed;
        let mut header = Header { store, seed, terms, error: unfinished };
        header.write(folder)?;
        write(&folder.join("plan.txt"), &plan.to_string())?;
        announce(&plan);
        let notes = Notes::new(Writer::create(&folder.join("director.jsonl"), DIRECTOR)?);
        let stage = Stage { round, url, more_urls, locker, descriptor, plan, notes, kills };
        let (mut fleet, mut companions) = self.enter(&stage).await?;
        let played = self.perform(&stage, &mut fleet, &mut companions).await;
        // The checker judges the history up to this point, even after a failure.
        let ended = match played {
            Ok(()) => self.end(&stage, fleet, companions).await,
            Err(error) => {
                fleet.give_up().await;
                Err(error)
            }
        };
        let records = read(folder)?;
        header.error = match ended {
            Ok(lives) => lacking(&records, &lives, round.span),
            Err(error) => Some(error.to_string()),
        };
        header.write(folder)?;
        let Header { store, terms, error, .. } = header;
        let Stage { plan, notes, .. } = stage;
        Ok(Outcome {
            store,
            verdict: check(&records, &terms),
            plan,
            skipped: notes.skipped(),
            error,
        })
    }

    /// The faults that are possible on this store in this round.
    async fn deck(&self, round: &Round, url: &str, descriptor: &Descriptor) -> Result<Deck> {
        Ok(Deck {
            holders: usize::try_from(round.workload.processes).unwrap_or(usize::MAX),
            has_links: Link::fits(url)?,
            servers: self
                .hands
                .work("could not list the faults of the site", |site| Ok(site.faults()))
                .await?,
            only: round.only.clone(),
            longest_ttl: longest_ttl(&round.workload, descriptor),
            shortest_ttl: shortest_ttl(&round.workload, descriptor),
            pause: round.pause,
        })
    }

    /// Starts all processes.
    async fn enter(&self, stage: &Stage<'_>) -> Result<(Fleet, Companions)> {
        let Stage { round, url, more_urls, notes, .. } = stage;
        let history = round.folder.join("register.jsonl");
        let register = Child::start(&self.program, Role::Register { history }).await?;
        let address =
            register.address().ok_or_else(|| Error::new("the register has no address"))?;
        let crew = Crew {
            program: self.program.clone(),
            url: url.clone(),
            more_urls: more_urls.clone(),
            seed: round.seed,
            workload: round.workload.clone(),
            register: address,
            folder: round.folder.clone(),
        };
        let companions = Companions::start(crew.clone(), register, notes.clone()).await?;
        Ok((Fleet::start(crew, notes.clone()).await?, companions))
    }

    /// Causes the faults, and then lets all processes work without faults.
    async fn perform(
        &self,
        stage: &Stage<'_>,
        fleet: &mut Fleet,
        companions: &mut Companions,
    ) -> Result<()> {
        let Stage { round, locker, descriptor, plan, notes, .. } = stage;
        let schedule = Schedule { start: Instant::now(), span: round.span };
        let connection_bound = descriptor.exceptions.connection_bound;
        let hurt = async {
            tokio::try_join!(
                hurt_processes(fleet, &plan.ours, schedule, notes, connection_bound),
                hurt_servers(&self.hands, &plan.servers, schedule, notes),
            )?;
            let mut calm = round.calm;
            if stage.kills {
                let locks = Locks::of(&round.workload, locker)?;
                kill_a_holder(fleet, locker, &locks, notes, round.seed).await?;
                // This is long enough to see whether another process gets the lock.
                let ttl = longest_ttl(&round.workload, descriptor);
                calm = calm.max(ttl + descriptor.takeover_delay + round.slack * 2 + MARGIN);
            }
            sleep(calm).await;
            fleet.look_after().await
        };
        tokio::select! {
            done = hurt => done,
            error = companions.watch() => Err(error),
        }
    }

    /// Ends all processes, looks for leftovers, and returns the life of each process.
    async fn end(
        &self,
        stage: &Stage<'_>,
        fleet: Fleet,
        companions: Companions,
    ) -> Result<Vec<Life>> {
        let mut lives = fleet.end(FAREWELL).await;
        lives.push(companions.end(FAREWELL).await);
        self.look_for_leaks(stage.round, &stage.locker, &stage.descriptor).await?;
        let left = stage.locker.shutdown().await;
        left.map_err(|error| Error::of("the director could not disconnect from the store", error))?;
        Ok(lives)
    }
}

impl Outcome {
    /// The planned kinds of faults that did not happen, although there was time.
    #[must_use]
    pub fn missing(&self) -> BTreeSet<&'static str> {
        let mut missing = self.plan.kinds();
        missing.retain(|kind| {
            !self.verdict.figures.faults.contains_key(*kind) && !self.skipped.contains(kind)
        });
        missing
    }

    /// Writes the report, and a picture for each broken promise, into `folder`, which contains the
    /// history.
    ///
    /// # Errors
    /// A file can't be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        write_report(&self.verdict, &self.store, folder)
    }
}

impl Header {
    fn write(&self, folder: &Path) -> Result<()> {
        write(&folder.join(HEADER), &serde_json::to_string(self).unwrap_or_default())
    }
}

/// Checks the history in a folder again, and writes its report again.
///
/// # Errors
/// The folder is not the folder of a round, or a record can't be parsed.
pub fn check_folder(folder: &Path) -> Result<Checked> {
    let path = folder.join(HEADER);
    let of = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::of(format!("{} is not the folder of a round", folder.display()), error)
    };
    let text = fs::read_to_string(&path).map_err(|error| of(error.into()))?;
    let Header { store, terms, error, .. } =
        serde_json::from_str(&text).map_err(|error| of(error.into()))?;
    let verdict = check(&read(folder)?, &terms);
    let report = write_report(&verdict, &store, folder)?;
    Ok(Checked { verdict, error, report })
}

fn write_report(verdict: &Verdict, store: &str, folder: &Path) -> Result<PathBuf> {
    let records = read(folder)?;
    for (n, violation) in verdict.violations.iter().chain(&verdict.documented).enumerate() {
        write(
            &folder.join(format!("timeline-{}.svg", n + 1)),
            &report::timeline(violation, &records),
        )?;
    }
    let path = folder.join("report.md");
    write(&path, &report::markdown(verdict, store))?;
    Ok(path)
}

/// Refuses a folder that has files already.
fn refuse_used(folder: &Path) -> Result<()> {
    if fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some()) {
        let folder = folder.display();
        return Err(Error::new(format!(
            "the folder {folder} is not empty, as after an earlier round; choose another folder"
        )));
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)
        .map_err(|error| Error::of(format!("could not write {}", path.display()), error))
}

async fn connect(url: &str) -> Result<Locker> {
    // The servers may still recover from the previous round.
    let connected = leaks::answered(async || lockkit::connect(url).await).await;
    connected.map_err(|error| Error::of("could not connect to the store", error))
}

/// The longest lease of the workload. A store may not offer leases as short as the workload asks
/// for.
fn longest_ttl(workload: &Workload, descriptor: &Descriptor) -> Duration {
    workload.ttls.iter().copied().max().unwrap_or_default().max(descriptor.min_ttl)
}

/// The shortest lease of the workload that the store offers.
fn shortest_ttl(workload: &Workload, descriptor: &Descriptor) -> Duration {
    workload.ttls.iter().copied().min().unwrap_or_default().max(descriptor.min_ttl)
}
