//! Tests locks among real processes. This program starts itself again as such a process, and an
//! environment variable selects its role.

use std::{
    env,
    error::Error,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_core::{FencingToken, LockOptions, Locker, Registry};
use tempfile::TempDir;

const ROLE: &str = "LOCKKIT_EXAMPLE_ROLE";
const FOLDER: &str = "LOCKKIT_EXAMPLE_FOLDER";
/// `LEASE` is the lease of a holder that dies, and `SOON` bounds the time for its takeover.
const LEASE: Duration = Duration::from_secs(6);
const SOON: Duration = Duration::from_secs(60);
const TURNS: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Some(role) = env::var_os(ROLE) else {
        let trials = vec![
            Trial::test("c9_a_killed_holders_lock_is_free_after_its_lease", killed),
            Trial::test("c1_c4_increments_of_three_processes_are_not_lost", increments),
        ];
        return Ok(libtest_mimic::run(&Arguments::from_args(), trials).exit_code());
    };
    thread::spawn(end_with_the_parent);
    let folder = env::var(FOLDER)?;
    let locker = connect(Path::new(&folder)).await?;
    match role.to_str() {
        Some("hold") => hold(&locker).await?,
        _ => increment(&locker, &Path::new(&folder).join("counter")).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn end_with_the_parent() {
    let _ = io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(1);
}

async fn connect(folder: &Path) -> lockkit_core::Result<Locker> {
    let mut registry = Registry::new();
    lockkit_example_sqlite::register(&mut registry);
    // These bounds are long, so that a slow disk does not fail the test.
    let options = LockOptions::new().with_ttl(SOON * 4).with_op_timeout(SOON);
    registry
        .connect(&format!("sqlite://{}/locks.db", folder.display()))
        .await?
        .with_defaults(options)
}

async fn hold(locker: &Locker) -> Result<(), Box<dyn Error>> {
    let guard = locker.mutex("x")?.with_options(LockOptions::new().with_ttl(LEASE))?.lock().await?;
    println!("{}", guard.fencing_token());
    io::stdout().flush()?;
    std::future::pending().await
}

/// Reads and writes a file that only the lock protects.
async fn increment(locker: &Locker, counter: &Path) -> Result<(), Box<dyn Error>> {
    let mutex = locker.mutex("x")?;
    for _ in 0..TURNS {
        let guard = mutex.lock().await?;
        let text = fs::read_to_string(counter).unwrap_or_default();
        tokio::task::yield_now().await;
        fs::write(counter, format!("{text}{}\n", guard.fencing_token()))?;
        guard.release().await?;
    }
    Ok(locker.shutdown().await?)
}

fn start(role: &str, folder: &TempDir) -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command
        .env(ROLE, role)
        .env(FOLDER, folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

fn killed() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let mut holder = start("hold", &folder)?;
    let token: FencingToken = first_line(&mut holder)?.trim().parse()?;
    holder.kill()?;
    holder.wait()?;
    let next =
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            let guard = connect(folder.path()).await?.mutex("x")?.lock_timeout(SOON).await?;
            Ok::<_, lockkit_core::Error>(guard.fencing_token())
        })?;
    if next <= token {
        return Err(format!("token {next} follows {token}").into());
    }
    Ok(())
}

fn increments() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let mut processes =
        (0..3).map(|_| start("increment", &folder)).collect::<io::Result<Vec<_>>>()?;
    for process in &mut processes {
        // `wait` would close the input, which would end the process.
        let _open = process.stdin.take();
        let status = process.wait()?;
        if !status.success() {
            return Err(format!("a process failed: {status}").into());
        }
    }
    let written = fs::read_to_string(folder.path().join("counter"))?;
    let tokens = written.lines().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    if tokens.len() != 3 * TURNS || !tokens.is_sorted_by(|a, b| a < b) {
        return Err(
            format!("{} of {} turns, with the tokens {tokens:?}", tokens.len(), 3 * TURNS).into()
        );
    }
    Ok(())
}

fn first_line(child: &mut Child) -> io::Result<String> {
    let output: ChildStdout = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    Ok(line)
}
