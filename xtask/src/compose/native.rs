//! Tries every URL of native.sh as a user would.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::run::{built, cargo, output, root, step};

/// With these offsets, every port is below the ports of outgoing connections.
const OFFSETS: std::ops::Range<u16> = 1000..6000;
/// Cleans up when its standard input closes, so it also works if this program is killed.
const WATCHDOG: &str = r#"
read -r _
timeout 120 sh -c 'until "$0" down --volumes; do sleep 1; done' "$1" >/dev/null 2>&1
rm -rf -- "$LOCKKIT_NATIVE_HOME"
"#;
const LOCK: &str = "compose/probe";
static NEXT: AtomicU16 = AtomicU16::new(0);

/// Starts all servers, runs the quickstart on each URL, and checks that a restart keeps the data.
///
/// # Errors
/// A URL does not work, or a server does not end.
pub(super) fn check() -> Result<()> {
    // With this profile and these features, `cargo test` builds the same programs.
    let build = [
        "build",
        "--locked",
        "--profile",
        "test",
        "--workspace",
        "--all-features",
        "--example",
        "quickstart",
        "--bin",
        "lockkit",
    ];
    step("quickstart and lockkit, with all stores", &mut cargo(&build))?;
    let start = Instant::now();
    println!("\n==> native.sh up all, each URL, down, and up again");
    let mut native = Native::new()?;
    let urls = native.up_all()?;
    let first = on_each(&urls, |url| {
        output(built("examples/quickstart").arg(url))?;
        token(url)
    })?;
    ensure!(!native.processes()?.is_empty(), "no process works in {}", native.home().display());
    native.down(&[])?;
    ensure!(native.up_all()? == urls, "native.sh started other servers the second time");
    on_each(&urls, |url| {
        let before = first.get(url).context("the first run printed no token")?;
        let history = output(lockkit(url).args(["--format", "json", "history", LOCK]))?;
        ensure!(
            history.contains(&format!("\"token\":{before}")),
            "the history lacks the run with token {before}: {history}"
        );
        let next = token(url)?;
        ensure!(next > *before, "token {next} comes after {before}");
        Ok(next)
    })?;
    native.down(&["--volumes"])?;
    let names = urls.iter().map(|(profile, _)| profile.as_str()).collect::<Vec<_>>().join(", ");
    println!("    {names}: ok, {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Takes the lock once, as a user would.
fn token(url: &str) -> Result<u64> {
    let said = output(lockkit(url).args(["run", LOCK, "--", "printenv", "LOCKKIT_TOKEN"]))?;
    said.trim().parse().with_context(|| format!("the output has no token: {said:?}"))
}

fn lockkit(url: &str) -> Command {
    let mut command = built("lockkit");
    command.args(["--url", url]).stdin(Stdio::null());
    command
}

/// Works on all URLs at once, because most of the time is waiting.
fn on_each(
    urls: &[(String, String)],
    work: impl Fn(&str) -> Result<u64> + Sync,
) -> Result<BTreeMap<String, u64>> {
    thread::scope(|scope| {
        let all: Vec<_> =
            urls.iter().map(|(profile, url)| (profile, url, scope.spawn(|| work(url)))).collect();
        let done = all.into_iter().map(|(profile, url, thread)| {
            let result = thread.join().unwrap_or_else(|_| Err(anyhow!("the thread panicked")));
            Ok((url.clone(), result.with_context(|| format!("{profile}, {url}"))?))
        });
        done.collect()
    })
}

/// native.sh with its own home and ports. Its servers end when this value is dropped.
#[derive(Debug)]
pub(super) struct Native {
    watchdog: Child,
    /// Closing this ends the servers. It must be the first field.
    hold: Option<ChildStdin>,
    offset: u16,
    home: tempfile::TempDir,
}

impl Native {
    pub(super) fn new() -> Result<Self> {
        let home = tempfile::TempDir::with_prefix("lockkit-native-")?;
        let offset = free_offset()?;
        // The watchdog must not get the terminal's Ctrl-C.
        let mut watchdog = Command::new("setsid");
        watchdog
            .args(["sh", "-c", WATCHDOG, "watchdog"])
            .arg(script())
            .env("LOCKKIT_NATIVE_HOME", home.path());
        let mut watchdog =
            watchdog.stdin(Stdio::piped()).spawn().context("could not start setsid")?;
        Ok(Self { hold: watchdog.stdin.take(), watchdog, offset, home })
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = with_offset(self.offset, arguments);
        command.env("LOCKKIT_NATIVE_HOME", self.home.path());
        command
    }

    /// Starts all servers. Returns the profiles and URLs of the running servers.
    fn up_all(&mut self) -> Result<Vec<(String, String)>> {
        let mut command = self.command(&["up", "all"]);
        // The standard error names skipped and failed servers, and the user reads it.
        let done =
            command.stderr(Stdio::inherit()).output().context("could not start native.sh")?;
        ensure!(done.status.success(), "native.sh up all failed ({})", done.status);
        let up = pairs(&String::from_utf8_lossy(&done.stdout));
        let mut wanted = pairs(&output(&mut self.command(&["urls"]))?);
        wanted.retain(|(profile, _)| match profile.as_str() {
            "mysql" => lockkit_fixture::mysql_is_there().is_ok(),
            "valkey" => lockkit_fixture::valkey_server().is_some(),
            _ => true,
        });
        ensure!(up == wanted, "native.sh up all started {up:?}, not {wanted:?}");
        Ok(up)
    }

    /// Ends all servers, and checks that they have ended.
    fn down(&mut self, arguments: &[&str]) -> Result<()> {
        let mut command = self.command(&["down"]);
        output(command.args(arguments))?;
        let left = self.processes()?;
        ensure!(left.is_empty(), "these processes are still alive after native.sh down: {left:?}");
        Ok(())
    }

    /// The processes whose working folder is in our home. This includes servers that native.sh has
    /// not recorded.
    fn processes(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir("/proc")?.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(entries
            .filter(|process| {
                fs::read_link(process.join("cwd"))
                    .is_ok_and(|cwd| cwd.starts_with(self.home.path()))
            })
            .collect())
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        self.hold = None;
        if let Err(error) = self.watchdog.wait() {
            eprintln!("warning: {} may still be in use: {error}", self.home.path().display());
        }
    }
}

/// A call of native.sh without a home.
pub(super) fn with_offset(offset: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(script());
    command.args(arguments).env("LOCKKIT_PORT_OFFSET", offset.to_string()).stdin(Stdio::null());
    command
}

fn script() -> PathBuf {
    root().join("compose/native.sh")
}

/// Lines of two words.
pub(super) fn pairs(text: &str) -> Vec<(String, String)> {
    let words = text.lines().filter_map(|line| line.split_once(' '));
    words.map(|(first, second)| (first.to_owned(), second.to_owned())).collect()
}

/// An offset with which all ports are free.
fn free_offset() -> Result<u16> {
    let ports: Vec<u16> = pairs(&output(&mut with_offset(0, &["ports"]))?)
        .iter()
        .flat_map(|(_, ports)| ports.split(' '))
        .map(|port| port.parse().with_context(|| format!("native.sh ports printed {port:?}")))
        .collect::<Result<_>>()?;
    // Two runs at the same time, in this process or in others, begin with different offsets.
    let first =
        u16::try_from(std::process::id() % 50)? * 80 + NEXT.fetch_add(16, Ordering::Relaxed);
    let all = OFFSETS.skip(usize::from(first)).chain(OFFSETS).step_by(37);
    for offset in all {
        if ports.iter().all(|port| TcpListener::bind(("127.0.0.1", port + offset)).is_ok()) {
            return Ok(offset);
        }
    }
    bail!("found no offset with which all ports of native.sh are free")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn failure(command: &mut Command) -> String {
        output(command).unwrap_err().to_string()
    }

    #[test]
    fn a_process_that_only_has_a_servers_number_is_left_alone() {
        let native = Native::new().unwrap();
        let folder = native.home().join(format!("redis-{}", 6379 + native.offset));
        fs::create_dir_all(folder.join("data")).unwrap();
        let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        fs::write(folder.join("pid"), format!("{} 1 {boot}", stranger.id())).unwrap();
        output(&mut native.command(&["down"])).unwrap();
        let lives = stranger.try_wait().unwrap().is_none();
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert!(lives, "native.sh ended a process that it had not started");
        assert!(!folder.join("pid").exists());
    }

    #[test]
    fn a_server_ends_and_its_data_stays_unless_it_is_to_go() {
        let mut native = Native::new().unwrap();
        output(&mut native.command(&["up", "redis"])).unwrap();
        let status = output(&mut native.command(&["status"])).unwrap();
        assert!(status.contains(" runs "), "{status}");
        assert_eq!(native.processes().unwrap().len(), 1);
        // A second `up` starts nothing.
        output(&mut native.command(&["up", "redis"])).unwrap();
        assert_eq!(native.processes().unwrap().len(), 1);
        native.down(&["redis"]).unwrap();
        let folder = native.home().join(format!("redis-{}", 6379 + native.offset));
        assert!(folder.join("data/appendonlydir").is_dir());
        native.down(&["--volumes"]).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn a_port_that_is_taken_is_named_and_nothing_is_started() {
        let native = Native::new().unwrap();
        let port = 6379 + native.offset;
        let _taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let said = failure(&mut native.command(&["up", "redis"]));
        assert!(
            said.contains(&format!("listens on port {port}"))
                && said.contains("LOCKKIT_PORT_OFFSET"),
            "{said}"
        );
        assert!(native.processes().unwrap().is_empty());
    }

    #[test]
    fn impossible_arguments_are_refused() {
        let said = failure(&mut with_offset(0, &["up", "postgres"]));
        assert!(
            said.contains("no profile is called postgres") && said.contains("mariadb"),
            "{said}"
        );
        assert!(failure(&mut with_offset(0, &["start"])).contains("no command is called start"));
        assert!(failure(&mut with_offset(60_000, &["urls"])).contains("too large"));
    }
}
