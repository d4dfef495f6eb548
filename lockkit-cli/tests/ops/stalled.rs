//! Tests a store that stops answering, at each moment in turn.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::process::ExitStatusExt as _,
    process::{Command, Output},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    Test, good, json,
    procfs::children,
    support::{PATIENT, Place, Running, run, said, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("stalled::c6_a_signal_ends_once_at_any_moment", once_ends),
        ("stalled::c6_what_a_signal_interrupts_is_given_back", gives_back),
        ("stalled::a_signal_cuts_the_end_of_run_short", run_ends),
        ("stalled::a_lease_that_ends_after_the_command_is_no_loss", late),
    ]
}

/// The side whose messages stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Clients,
    Server,
}

/// Passes on the messages of one side up to a given one, and all messages of the other side.
struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    said: AtomicUsize,
    stalls_at: AtomicUsize,
    is_stalled: AtomicBool,
    opened: Mutex<bool>,
    opens: Condvar,
}

impl Proxy {
    /// A proxy that stalls at message number `stalls_at` of the clients.
    fn start(place: &Place, stalls_at: usize) -> Self {
        Self::of(Side::Clients, place, stalls_at)
    }

    /// A proxy that stalls at message number `stalls_at` of this side.
    fn of(side: Side, place: &Place, stalls_at: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State { stalls_at: stalls_at.into(), ..State::default() });
        let port = place.redis.port();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let to_server = server.try_clone().unwrap();
                let to_client = client.try_clone().unwrap();
                for (from, to, says) in
                    [(client, to_server, Side::Clients), (server, to_client, Side::Server)]
                {
                    let state = Arc::clone(&shared);
                    thread::spawn(move || {
                        pass(from, to, || {
                            if says == side {
                                state.wait()
                            }
                        })
                    });
                }
            }
        });
        Self { address, state }
    }

    fn lockkit(&self, place: &Place, arguments: &[&str]) -> Command {
        let mut command = place.lockkit(arguments);
        command.env("LOCKKIT_URL", format!("redis://{}/{PATIENT}", self.address));
        command
    }

    fn is_stalled(&self) -> bool {
        self.state.is_stalled.load(Ordering::SeqCst)
    }

    /// The next message stalls.
    fn stall_now(&self) {
        self.state.stalls_at.store(self.state.said.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
    }

    fn open(&self) {
        *self.state.opened.lock().unwrap() = true;
        self.state.opens.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.open();
    }
}

impl State {
    fn wait(&self) {
        if self.said.fetch_add(1, Ordering::SeqCst) + 1 < self.stalls_at.load(Ordering::SeqCst) {
            return;
        }
        self.is_stalled.store(true, Ordering::SeqCst);
        let opened = self.opened.lock().unwrap();
        drop(self.opens.wait_while(opened, |opened| !*opened).unwrap());
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, before: impl Fn()) {
    let mut bytes = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        before();
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn line(place: &Place) -> String {
    format!("echo \"$LOCKKIT_SLOT\" >> {}", place.path("runs").display())
}

fn runs(place: &Place) -> usize {
    fs::read_to_string(place.path("runs")).unwrap_or_default().lines().count()
}

/// Waits until lockkit stalls or ends; returns true if it stalls.
fn stalls(proxy: &Proxy, lockkit: &mut Running) -> bool {
    until("a stall, or the end", || match (proxy.is_stalled(), lockkit.0.try_wait().unwrap()) {
        (true, None) => Some(true),
        (_, Some(_)) => Some(false),
        (false, None) => None,
    })
}

/// The time in which a signal ends lockkit. Without a signal, lockkit would wait for three seconds.
const HURRY: Duration = Duration::from_secs(2);
/// How many attempts a test has. A lockkit that waits too long does so each time, but a busy
/// machine does not.
const TRIES: usize = 6;

/// Tries until a signal has ended lockkit in time.
fn in_a_hurry<T>(
    what: &str,
    mut signaled: impl FnMut(usize) -> Option<(T, Duration)>,
) -> Option<T> {
    let mut all = Vec::new();
    while all.len() < TRIES {
        let (answer, took) = signaled(all.len())?;
        if took < HURRY {
            return Some(answer);
        }
        all.push(took);
    }
    panic!("{what}: it ended after {all:?}");
}

/// Ends lockkit by a signal.
fn end(mut lockkit: Running, signal: Signal) -> (Output, Duration) {
    let began = Instant::now();
    lockkit.signal(signal);
    until("the end", || lockkit.0.try_wait().unwrap());
    let took = began.elapsed();
    (lockkit.output(), took)
}

/// A moment in a `once`: a message at which its connection stalls.
struct Moment<'a> {
    place: &'a Place,
    line: &'a str,
    on_fail: &'a str,
    side: Side,
    /// The name of the lock begins with this.
    name: &'a str,
    stalls_at: usize,
}

impl Moment<'_> {
    /// Ends `once` by a signal at this moment, and checks what it says. Returns how long that took,
    /// or `None` if `once` ended without such a moment.
    fn signaled(&self, attempt: usize) -> Option<((), Duration)> {
        let Self { place, line, on_fail, side, name, stalls_at } = *self;
        let proxy = Proxy::of(side, place, stalls_at);
        // No attempt waits for a lock that an earlier one left held.
        let name = format!("{name}{stalls_at}-{attempt}");
        let before = runs(place);
        let report = place.path(&format!("{name}.json"));
        let status_file = format!("--status-file={}", report.display());
        let mut job = vec!["once", &name, "--slot=v1", "--grace=200ms", &status_file];
        job.extend(["--on-fail", on_fail, "-c", line]);
        let mut once = Running::start(proxy.lockkit(place, &job));
        if !stalls(&proxy, &mut once) {
            return None;
        }
        let signal = [Signal::TERM, Signal::INT, Signal::HUP][stalls_at % 3];
        let (output, took) = end(once, signal);
        let status = output.status;
        let by_signal = status.signal() == Some(signal.as_raw());
        assert!(by_signal || runs(place) > before, "{stalls_at}: {status}, {}", said(&output));
        assert!(by_signal || matches!(status.code(), Some(0 | 125)), "{status}, {}", said(&output));
        // A signal may end the command before it has written its line.
        let was_begun = fs::read_to_string(report).is_ok_and(|report| report.contains("signaled"));
        self.check_slot(&name, before, was_begun, &output);
        Some(((), took))
    }

    /// Checks that the next `once` of this name agrees with what the ended one says of the slot.
    /// Before the ended one, `before` commands had run.
    fn check_slot(&self, name: &str, before: usize, was_begun: bool, ended: &Output) {
        let Self { place, line, on_fail, stalls_at, .. } = *self;
        let status = ended.status;
        let after = runs(place);
        let next = run(place.lockkit(["once", name, "--slot=v1", "-n", "-c", line]));
        let is_done = next.status.success() && runs(place) == after;
        assert!(
            is_done || status.code() != Some(0),
            "{stalls_at}: its slot is not done: {}",
            said(&next)
        );
        let is_failed = was_begun && on_fail == "done";
        let is_told = after > before || is_failed || said(ended).contains("may count as done");
        assert!(is_told || !is_done, "{stalls_at}: nothing was run: {status}, {}", said(ended));
    }
}

/// Before the command was started, the signal ends lockkit. After that, lockkit ends by the signal,
/// or as the command, or with a message about the slot. Catches a once that succeeds without a done
/// slot. Catches a once that reports nothing about a slot that counts as done but was not run.
fn once_ends() -> Result<(), Failed> {
    let place = Place::new();
    let line = line(&place);
    for (on_fail, side, name) in [
        ("retry", Side::Clients, "a"),
        ("done", Side::Clients, "b"),
        ("retry", Side::Server, "c"),
        ("done", Side::Server, "d"),
    ] {
        let mut stalled = 0;
        for stalls_at in 1.. {
            let moment = Moment { place: &place, line: &line, on_fail, side, name, stalls_at };
            let what = format!("{on_fail}, {side:?} stalled at {stalls_at}");
            if in_a_hurry(&what, |attempt| moment.signaled(attempt)).is_none() {
                break;
            }
            stalled += 1;
        }
        assert!(stalled > 5, "{stalled}");
    }
    Ok(())
}

/// The store answers again as soon as the signal is sent.
fn gives_back() -> Result<(), Failed> {
    // lockkit tries to release only for a moment, so the store must answer in that time.
    let place = Place::steady();
    let line = line(&place);
    let mut stalled = 0;
    let mut tries = 0;
    for stalls_at in 1.. {
        loop {
            tries += 1;
            let proxy = Proxy::start(&place, stalls_at);
            let name = format!("job{tries}");
            let job = ["once", &name, "--slot=v1", "--on-fail=done", "-c", &line];
            let before = runs(&place);
            let mut once = Running::start(proxy.lockkit(&place, &job));
            if !stalls(&proxy, &mut once) {
                assert!(stalled > 5, "{stalled}");
                return Ok(());
            }
            once.signal(Signal::TERM);
            thread::sleep(Duration::from_millis(50));
            proxy.open();
            let output = once.output();
            let status = output.status;
            assert!(
                status.signal() == Some(15) || status.code() == Some(0),
                "{status}, {}",
                said(&output)
            );
            let is_free = json(&good(place.lockkit(["--format=json", "ls", &name]))).is_empty();
            if is_free {
                good(place.lockkit(job));
            }
            if is_free && runs(&place) == before + 1 {
                stalled += 1;
                break;
            }
            // lockkit has 150 ms for that, which is not always enough on a busy machine.
            assert!(
                tries < 20 * stalls_at,
                "stalled at {stalls_at}, free: {is_free}: {}",
                said(&output)
            );
        }
    }
    Ok(())
}

/// The command has ended, and the store does not answer any more.
fn run_ends() -> Result<(), Failed> {
    in_a_hurry("run", |_| Some(((), run_is_cut_short())));
    Ok(())
}

/// Returns how long lockkit took to end.
fn run_is_cut_short() -> Duration {
    let place = Place::new();
    let proxy = Proxy::start(&place, usize::MAX);
    let go = place.path("go");
    let up = place.path("up");
    let line = format!(
        "echo > {}; until [ -e {} ]; do sleep 0.01; done; exit 7",
        up.display(),
        go.display()
    );
    let mut lockkit = Running::start(proxy.lockkit(&place, &["run", "job", "-c", &line]));
    // The command starts before its run is in the history.
    until("the run", || {
        let history = good(place.lockkit(["history", "job"]));
        (up.exists() && crate::told(&history).contains("running")).then_some(())
    });
    proxy.stall_now();
    fs::write(go, "").unwrap();
    assert!(stalls(&proxy, &mut lockkit));
    let pid = lockkit.pid().as_raw_nonzero().get();
    until("the end of the command", || children(pid).is_empty().then_some(()));
    let (output, took) = end(lockkit, Signal::TERM);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    took
}

/// How many processes run at once. They sleep for most of the time.
const AT_ONCE: usize = 6;

/// Returns true if there was a message at which to stall.
fn outlasts_its_lease(place: &Place, stalls_at: usize) -> bool {
    for tries in 0..6 {
        let proxy = Proxy::start(place, stalls_at);
        // No name is a prefix of another one.
        let name = format!("{stalls_at:03}-{tries}");
        let status = format!("--status-file={}", place.path(&name).display());
        let job = ["run", &name, &status, "--ttl=9s", "--grace=200ms", "-c", "exit 7"];
        let mut lockkit = Running::start(proxy.lockkit(place, &job));
        if !stalls(&proxy, &mut lockkit) {
            return false;
        }
        until("the end of the lease", || {
            json(&good(place.lockkit(["--format=json", "ls", &name]))).is_empty().then_some(())
        });
        proxy.open();
        let output = lockkit.output();
        let status = fs::read_to_string(place.path(&name)).unwrap();
        let status: Value = serde_json::from_str(&status).unwrap();
        // On a busy machine the store may be silent for so long that the request for the lock
        // fails.
        if output.status.code() == Some(125) && status["token"].is_null() {
            continue;
        }
        assert_eq!(output.status.code(), Some(7), "stalled at {stalls_at}: {}", said(&output));
        return true;
    }
    panic!("stalled at {stalls_at}, it got no lock");
}

/// The store is unreachable for longer than the lease, at each moment in turn. The command has
/// ended long before.
fn late() -> Result<(), Failed> {
    let place = Place::new();
    let mut begun = 0;
    let mut stalled = 0;
    while stalled == begun {
        let next = begun + 1..=begun + AT_ONCE;
        begun += AT_ONCE;
        stalled += thread::scope(|scope| {
            let place = &place;
            let all: Vec<_> = next
                .map(|stalls_at| scope.spawn(move || outlasts_its_lease(place, stalls_at)))
                .collect();
            all.into_iter().map(|one| usize::from(one.join().unwrap())).sum::<usize>()
        });
    }
    assert!(stalled > 5, "{stalled}");
    // A lock that an operator took away while the command ran still counts as lost.
    let line = format!(
        "LOCKKIT_URL='{}' {} unlock job --force --now --reason=x",
        place.url(),
        env!("CARGO_BIN_EXE_lockkit")
    );
    assert_eq!(run(place.lockkit(["run", "job", "-c", &line])).status.code(), Some(123));
    Ok(())
}
