//! Tests the sites: faults strike, healed servers serve, and leaks are seen.

use std::{
    env, thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Failed, Trial};
use lockkit::{ErrorKind, FencingToken, LockGuard, LockOptions, Locker};
use lockkit_fixture::claims::persistently;
use lockkit_torture::site::{ServerFault, Site};
use tokio::runtime::{Builder, Runtime};

use super::{Start, all, zookeeper::SESSION};

/// If this is set, each fault of each site lasts its longest time. Otherwise a fault is healed at
/// once, and slow sites have only one fault.
const ALL_FAULTS: &str = "LOCKKIT_TORTURE_ALL_FAULTS";
/// On these sites, only the first fault runs by default.
const SLOW: [&str; 5] = [
    "redis-cluster",
    "redis-sentinel",
    "redis-sentinel-wait",
    "zookeeper-deposed",
    "zookeeper-ensemble",
];

/// Shorter than the step of `clock-forward`, which ends this lease, and longer than a server pauses
/// under stress.
const TTL: Duration = Duration::from_secs(8);
const OP_TIMEOUT: Duration = Duration::from_secs(4);
/// The rounds use short sessions, so that workers lose them. A trial must not lose a session, even
/// on a busy machine.
const LONG_SESSION: &str = "30s";
/// A server may pause for seconds.
const PATIENT: &str = "connect_timeout=8s";
/// A store in trouble pauses, and then looks for its servers again.
const BACK: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |(name, start): (&'static str, Start)| {
        Trial::test(
            format!("{name}::c4_c6_serves_after_each_fault_and_leaks_are_seen"),
            move || check(name, start),
        )
    };
    all().into_iter().map(trial).collect()
}

fn is_thorough() -> bool {
    env::var_os(ALL_FAULTS).is_some()
}

/// Whether a lock is available while the fault lasts, where that is certain.
fn serves(kind: &str) -> Option<bool> {
    match kind {
        "full" | "kill" | "kill-two" | "read-only" | "stop" | "stop-primary" | "stop-two" => {
            Some(false)
        }
        "connections-used-up"
        | "cut-follower"
        | "kill-follower"
        | "kill-one"
        | "kill-sentinel"
        | "stop-follower"
        | "stop-one" => Some(true),
        _ => None,
    }
}

fn check(name: &str, start: Start) -> Result<(), Failed> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let began = Instant::now();
    let mut site = start()?;
    println!("{name}: started in {:.1?}", began.elapsed());
    if site.name() != name {
        return Err(format!("{name} calls itself {}", site.name()).into());
    }
    let mut faults = site.faults();
    if SLOW.contains(&name) && !is_thorough() {
        faults.truncate(1);
    }

    let first = site.open()?;
    let url = site.open()?;
    if first == url {
        return Err(format!("two rounds have one namespace: {url}").into());
    }
    let locker = runtime.block_on(connect(&url))?;
    let mut scene = Scene { runtime, locker, site, token: None };
    let held = scene.lock()?;
    let leaks = scene.site.leaks()?;
    if leaks.is_empty() {
        return Err("the site does not list a held lock".into());
    }
    scene.release(held)?;
    scene.until_clean()?;
    for (chance, fault) in (1..).map(|number| number * 7_919).zip(&faults) {
        scene.suffer(fault, chance).map_err(|error| format!("{}: {}", fault.kind, text(&error)))?;
    }
    scene.runtime.block_on(scene.locker.shutdown())?;
    let leaks = scene.site.leaks()?;
    if leaks.is_empty() { Ok(()) } else { Err(format!("left at the end: {leaks:?}").into()) }
}

fn text(failed: &Failed) -> &str {
    failed.message().unwrap_or("failed")
}

/// The parameter of a ZooKeeper URL that asks for a session timeout.
fn in_url(session: &str) -> String {
    format!("session_timeout={session}")
}

async fn connect(url: &str) -> lockkit::Result<Locker> {
    let mut url = url.replace(&in_url(SESSION), &in_url(LONG_SESSION));
    if ["mysql://", "redis://"].iter().any(|scheme| url.starts_with(scheme)) {
        url.push_str(if url.contains('?') { "&" } else { "?" });
        url.push_str(PATIENT);
    }
    let locker = persistently(async || lockkit::connect(&url).await).await;
    let ttl = TTL.max(locker.descriptor().min_ttl);
    locker.with_defaults(LockOptions::new().with_ttl(ttl).with_op_timeout(OP_TIMEOUT))
}

/// A site with one user.
struct Scene {
    runtime: Runtime,
    locker: Locker,
    site: Box<dyn Site>,
    token: Option<FencingToken>,
}

impl Scene {
    fn suffer(&mut self, fault: &ServerFault, chance: u64) -> Result<(), Failed> {
        let held = if fault.kind == "clock-forward" { Some(self.lock()?) } else { None };
        let start = Instant::now();
        let target = self.site.strike(fault, chance)?;
        let struck = start.elapsed();
        if let Some(held) = held {
            // The lease has ended: the lock must be free even before another claim asks for it.
            let leaks = self.site.leaks()?;
            if !leaks.is_empty() {
                return Err(format!("the clock was stepped, and left: {leaks:?}").into());
            }
            drop(held);
        }
        match serves(fault.kind) {
            Some(true) => {
                let guard = self.lock()?;
                self.release(guard)?;
            }
            Some(false) => {
                let mutex = self.locker.mutex("x")?;
                if let Ok(answer) = self.runtime.block_on(mutex.try_lock()) {
                    return Err(format!("a request was answered: {answer:?}").into());
                }
            }
            None => {}
        }
        if is_thorough() {
            thread::sleep(*fault.lasts.end());
        }
        let start = Instant::now();
        self.site.heal()?;
        let healed = start.elapsed();
        let start = Instant::now();
        let guard = self.lock()?;
        println!(
            "{:<20} {:<22} strike {struck:>8.1?}  heal {healed:>8.1?}  granted after {:>8.1?}  \
             ({target})",
            self.site.name(),
            fault.kind,
            start.elapsed(),
        );
        self.release(guard)?;
        self.until_clean()
    }

    /// Asks until a lock is granted, and reports it if that takes too long.
    fn lock(&mut self) -> Result<LockGuard, Failed> {
        let mutex = self.locker.mutex("x")?;
        let start = Instant::now();
        let mut last = None;
        while let Some(left) = BACK.checked_sub(start.elapsed()) {
            match self.runtime.block_on(mutex.lock_timeout(left)) {
                Ok(guard) => {
                    let token = guard.fencing_token();
                    if self.token.replace(token) >= Some(token) {
                        return Err(format!("token {token} is not above the last one").into());
                    }
                    return Ok(guard);
                }
                Err(error) if error.kind() == ErrorKind::Timeout => break,
                Err(error) => last = Some(error),
            }
            thread::sleep(POLL);
        }
        Err(format!("no lock in {BACK:?}: {last:?}").into())
    }

    fn release(&self, guard: LockGuard) -> Result<(), Failed> {
        Ok(self.runtime.block_on(guard.release())?)
    }

    /// Waits until the effects of an attempt without an answer are gone, at the latest with its
    /// lease.
    fn until_clean(&mut self) -> Result<(), Failed> {
        let start = Instant::now();
        loop {
            let leaks = self.site.leaks()?;
            if leaks.is_empty() {
                return Ok(());
            }
            if start.elapsed() > BACK {
                return Err(format!("left after {BACK:?}: {leaks:?}").into());
            }
            thread::sleep(POLL);
        }
    }
}
