//! Tests real processes on a real store. They record their steps, and no child outlives its parent.
//!
//! The test binary starts itself again as the child, and as a parent that is killed.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_fixture::{Peer, RedisOptions, RedisServer, is_alive, role};
use lockkit_torture::{
    child::{Child, Job, Program, Role, child},
    history::{Event, Op, Outcome, REGISTER, Record, Refusal, read},
    workload::Workload,
};
use tempfile::{TempDir, tempdir};
use tokio::{runtime::Builder, time::sleep};

const CHILD: &str = "be-a-child";
const PARENT: &str = "parent";
const SOON: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        Some(CHILD) => match block_on(child(lockkit::connect)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        // The children of a killed parent have its role, too, but the arm above handles them.
        _ if role().is_some() => {
            block_on(parent()).unwrap();
            ExitCode::SUCCESS
        }
        _ => libtest_mimic::run(&Arguments::from_args(), trials()).exit_code(),
    }
}

fn block_on<F: Future>(work: F) -> F::Output {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

fn trials() -> Vec<Trial> {
    fn trial<F: Future<Output = Result<(), Failed>> + 'static>(
        name: &str,
        case: fn() -> F,
    ) -> Trial {
        Trial::test(name, move || block_on(case()))
    }
    vec![
        trial("c6_c8_every_claim_ends_without_leftovers", orderly),
        trial("a_killed_childs_locks_pass_on_and_its_history_is_readable", killed),
        trial("a_stopped_child_is_silent_and_continues_later", stopped),
        trial("c5_errors_of_the_store_are_recorded_and_the_work_continues", store_hurt),
        trial("a_child_can_start_while_its_store_is_down", store_down),
        trial("a_broken_set_up_is_reported", broken),
        trial("no_child_outlives_its_parent", orphans),
    ]
}

/// A store, a register, and the folder of the histories.
struct Bed {
    redis: RedisServer,
    folder: TempDir,
    program: Program,
    register: Child,
}

impl Bed {
    async fn new() -> Result<Self, Failed> {
        let folder = tempdir()?;
        let program = Program::this_program([CHILD])?;
        let register = Child::start(&program, register(folder.path())).await?;
        assert_eq!(register.number(), REGISTER);
        Ok(Self { redis: RedisServer::start()?, folder, program, register })
    }

    fn job(&self, process: u32, tasks: u32) -> Job {
        let mut workload = Workload::new(3, tasks);
        // Few mutexes, so that a task soon chooses each of them.
        workload.wide = 2;
        workload.ttls = vec![Duration::from_millis(300), Duration::from_millis(600)];
        Job {
            url: self.redis.url(),
            process,
            seed: 1,
            workload,
            register: self.register.address().unwrap(),
            history: self.folder.path().join(format!("p{process}.jsonl")),
        }
    }

    async fn holder(&self, process: u32, tasks: u32) -> Result<Child, Failed> {
        Ok(Child::start(&self.program, Role::Holder(self.job(process, tasks))).await?)
    }

    fn history(&self) -> Vec<Record> {
        read(self.folder.path()).unwrap()
    }

    async fn until(&self, what: &str, is: impl Fn(&[Record]) -> bool) {
        let start = Instant::now();
        while !is(&self.history()) {
            assert!(start.elapsed() < SOON, "still not: {what}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn end(self) -> Result<Vec<Record>, Failed> {
        let history = self.history();
        assert!(self.register.end(SOON).await?);
        Ok(history)
    }
}

fn register(folder: &Path) -> Role {
    Role::Register { history: folder.join("register.jsonl") }
}

async fn orderly() -> Result<(), Failed> {
    let bed = Bed::new().await?;
    let mut children = Vec::new();
    for process in 1..=3 {
        children.push(bed.holder(process, 4).await?);
    }
    children.push(Child::start(&bed.program, Role::Observer(bed.job(4, 0))).await?);
    let ids: Vec<_> = children.iter().map(|child| child.id().unwrap()).collect();
    sleep(Duration::from_secs(3)).await;
    bed.until("a late write was refused", |history| any(history, is_late_write)).await;
    for child in children {
        let number = child.number();
        assert!(child.end(SOON).await?, "process {number} did not end by itself");
    }
    assert!(ids.iter().all(|id| !is_alive(*id)));
    let history = bed.end().await?;
    assert_complete(&history, &[1, 2, 3]);
    for process in 1..=4 {
        let ends = |event: &Event| matches!(event, Event::Ends { tasks: 0, files: 0 });
        let own: Vec<_> = history.iter().filter(|record| record.process == process).collect();
        assert!(matches!(own[0].event, Event::Begins { .. }), "{:?}", own[0]);
        assert!(ends(&own.last().unwrap().event), "{:?}", own.last());
    }
    assert!(any(&history, |event| matches!(event, Event::Compared { accepted: true, .. })));
    let sees_a_claim = |event: &Event| matches!(event, Event::Seen { holders, .. } if holders.iter().any(|it| it.op.is_some()));
    assert!(any(&history, sees_a_claim));
    Ok(())
}

async fn killed() -> Result<(), Failed> {
    let bed = Bed::new().await?;
    let mut first = bed.holder(1, 4).await?;
    bed.until("a grant", |history| any(history, |event| matches!(event, Event::Granted { .. })))
        .await;
    assert!(!first.has_ended());
    let id = first.id().unwrap();
    first.kill().await?;
    assert!(first.has_ended() && !is_alive(id));
    first.kill().await?;
    assert!(first.stop().is_err(), "no process is left to stop");
    let second = bed.holder(2, 4).await?;
    let names_of_the_dead: BTreeSet<_> = left_by(&bed.history(), 1);
    bed.until("all that the dead one held is granted again", |history| {
        let granted: BTreeSet<_> = grants(history, 2);
        // The dead process may have held nothing.
        !granted.is_empty() && names_of_the_dead.iter().all(|lock| granted.contains(lock))
    })
    .await;
    assert!(second.end(SOON).await?);
    assert!(!first.end(SOON).await?, "it was killed");
    assert_complete(&bed.end().await?, &[2]);
    Ok(())
}

async fn stopped() -> Result<(), Failed> {
    let bed = Bed::new().await?;
    let first = bed.holder(1, 4).await?;
    let second = bed.holder(2, 4).await?;
    bed.until("a grant", |history| !grants(history, 1).is_empty()).await;
    first.stop()?;
    // Longer than any lease.
    sleep(Duration::from_secs(1)).await;
    let lines = bed.history().iter().filter(|record| record.process == 1).count();
    sleep(Duration::from_millis(100)).await;
    assert_eq!(
        bed.history().iter().filter(|record| record.process == 1).count(),
        lines,
        "it is stopped"
    );
    first.go_on()?;
    bed.until("it continues", |history| {
        history.iter().filter(|it| it.process == 1).count() > lines + 20
    })
    .await;
    assert!(first.end(SOON).await? && second.end(SOON).await?);
    assert_complete(&bed.end().await?, &[1, 2]);
    Ok(())
}

async fn store_hurt() -> Result<(), Failed> {
    let mut bed = Bed::new().await?;
    let holder = bed.holder(1, 8).await?;
    let errors = |event: &Event| {
        matches!(event, Event::Refused { why: Refusal::Failed(_) | Refusal::Unknown(_), .. })
    };
    let is_grant = |event: &Event| matches!(event, Event::Granted { .. });
    bed.until("a grant", |history| any(history, is_grant)).await;
    bed.redis.pause()?;
    bed.until("a claim has an unknown outcome", |history| {
        any(history, |event| matches!(event, Event::Refused { why: Refusal::Unknown(_), .. }))
    })
    .await;
    bed.redis.resume()?;
    bed.redis.kill()?;
    let before = count(&bed.history(), errors);
    bed.until("errors", |history| count(history, errors) > before + 5).await;
    bed.redis.restart()?;
    let before = count(&bed.history(), is_grant);
    bed.until("it continues", |history| count(history, is_grant) > before + 10).await;
    assert!(holder.end(SOON).await?);
    let history = bed.end().await?;
    assert_complete(&history, &[1]);
    assert!(
        any(&history, |event| matches!(event, Event::Ends { tasks: 0, files: 0 })),
        "{:?}",
        history.last()
    );
    Ok(())
}

async fn store_down() -> Result<(), Failed> {
    let mut bed = Bed::new().await?;
    bed.redis.kill()?;
    let never_served = bed.holder(1, 1).await?;
    let holder = bed.holder(2, 2).await?;
    assert!(never_served.end(SOON).await?);
    bed.redis.restart()?;
    bed.until("a grant", |history| !grants(history, 2).is_empty()).await;
    assert!(holder.end(SOON).await?);
    let history = bed.end().await?;
    assert_complete(&history, &[2]);
    assert!(history.iter().all(|record| record.process != 1));
    Ok(())
}

async fn broken() -> Result<(), Failed> {
    let bed = Bed::new().await?;
    let mut guarded = RedisServer::start_as(RedisOptions::default().with_password("open sesame"))?;
    // A stall would be another error.
    guarded.never_stall();
    let url = format!("redis://:secret@127.0.0.1:{}/?connect_timeout=20s", guarded.port());
    let told =
        Child::start(&bed.program, Role::Holder(Job { url, ..bed.job(1, 1) })).await.unwrap_err();
    let told = told.to_string();
    assert!(told.contains("process 1: ") && told.contains("password"), "{told}");
    assert!(!told.contains("secret"), "{told}");
    let nonsense = Job { url: "nonsense://".to_owned(), ..bed.job(2, 1) };
    let told = Child::start(&bed.program, Role::Observer(nonsense)).await.unwrap_err();
    assert!(told.to_string().contains("nonsense"), "{told}");
    let same_file = bed.holder(3, 1).await?;
    assert!(bed.holder(3, 1).await.is_err(), "two processes never write one history");
    assert!(same_file.end(SOON).await?);
    // Without a register a holder ends with an error.
    let mut holder = bed.holder(5, 2).await?;
    bed.until("a grant", |history| !grants(history, 5).is_empty()).await;
    let mut register = bed.register;
    register.kill().await?;
    let start = Instant::now();
    while !holder.has_ended() {
        assert!(start.elapsed() < SOON, "it continues without a register");
        sleep(Duration::from_millis(50)).await;
    }
    let error = holder.end(SOON).await.unwrap_err().to_string();
    assert!(error.contains("process 5 failed"), "{error}");
    Ok(())
}

/// Starts two children and stops one of them, prints their process ids, and waits to be killed.
async fn parent() -> Result<(), Failed> {
    let folder = tempdir()?;
    let program = Program::this_program([CHILD])?;
    let working = Child::start(&program, register(folder.path())).await?;
    let other = Role::Register { history: folder.path().join("other.jsonl") };
    let stopped = Child::start(&program, other).await?;
    stopped.stop()?;
    println!("{} {}", working.id().unwrap(), stopped.id().unwrap());
    std::future::pending().await
}

async fn orphans() -> Result<(), Failed> {
    let parent = Peer::start(PARENT)?;
    let line = parent.hear()?;
    let ids: Vec<u32> = line.split(' ').map(|id| id.parse().unwrap()).collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| is_alive(*id)), "{line}");
    parent.kill()?;
    let start = Instant::now();
    while ids.iter().any(|id| is_alive(*id)) {
        assert!(start.elapsed() < SOON, "of {ids:?} some live on");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn any(history: &[Record], is: impl Fn(&Event) -> bool) -> bool {
    count(history, is) > 0
}

fn count(history: &[Record], is: impl Fn(&Event) -> bool) -> usize {
    history.iter().filter(|record| is(&record.event)).count()
}

/// Whether the register refused the write, because another one with a larger token came first.
fn is_late_write(event: &Event) -> bool {
    matches!(event, Event::Compared { accepted: false, .. })
}

/// The locks that this process was granted.
fn grants(history: &[Record], process: u32) -> BTreeSet<String> {
    let mut asked = BTreeMap::new();
    let mut granted = BTreeSet::new();
    for record in history.iter().filter(|record| record.process == process) {
        match &record.event {
            Event::Asks { op, lock, .. } => drop(asked.insert(*op, format!("{lock:?}"))),
            Event::Granted { op, .. } => drop(granted.insert(asked[op].clone())),
            _ => {}
        }
    }
    granted
}

/// The locks that this process was granted, and did not begin to give back.
fn left_by(history: &[Record], process: u32) -> BTreeSet<String> {
    let mut held = BTreeMap::new();
    let mut asked = BTreeMap::new();
    for record in history.iter().filter(|record| record.process == process) {
        match &record.event {
            Event::Asks { op, lock, .. } => drop(asked.insert(*op, format!("{lock:?}"))),
            Event::Granted { op, .. } => drop(held.insert(*op, asked[op].clone())),
            Event::Releases { op } => drop(held.remove(op)),
            _ => {}
        }
    }
    held.into_values().collect()
}

/// Each request was answered once, each grant was given back once, and the beliefs are in order.
fn assert_complete(history: &[Record], processes: &[u32]) {
    #[derive(Debug, PartialEq)]
    enum At {
        Asked,
        Held,
        Lost,
        Releasing,
        Over,
    }
    let mut claims: BTreeMap<Op, At> = BTreeMap::new();
    for record in history.iter().filter(|record| processes.contains(&record.process)) {
        let mut go = |op: &Op, from: &[At], to: At| {
            let at = claims.remove(op);
            assert!(at.as_ref().is_some_and(|at| from.contains(at)), "{at:?} before {record:?}");
            claims.insert(*op, to);
        };
        match &record.event {
            Event::Asks { op, .. } => assert_eq!(claims.insert(*op, At::Asked), None, "{record:?}"),
            Event::Granted { op, .. } => go(op, &[At::Asked], At::Held),
            Event::Refused { op, .. } => go(op, &[At::Asked], At::Over),
            Event::Holds { op, until } => {
                assert!(*until > record.at, "{record:?}");
                go(op, &[At::Held], At::Held);
            }
            Event::Lost { op, .. } => go(op, &[At::Held], At::Lost),
            Event::Releases { op } => go(op, &[At::Held, At::Lost], At::Releasing),
            Event::Released { op, outcome } => {
                assert!(!matches!(outcome, Outcome::Failed(_)), "{record:?}");
                go(op, &[At::Releasing], At::Over);
            }
            _ => {}
        }
    }
    assert!(!claims.is_empty(), "no process sent a request");
    let open: Vec<_> = claims.iter().filter(|(_, at)| **at != At::Over).collect();
    assert!(open.is_empty(), "{open:?}");
}
