//! One server process.

use std::{
    ffi::OsString,
    fs,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Error, Result, bail};
use nix::{sys::signal::Signal, unistd::geteuid};
use tempfile::TempDir;

use super::{
    SqlFlavor,
    program::SqlProgram,
    readiness,
    template::{self, ADMIN, DATABASE, USER},
    tls::Tls,
};
use crate::{clock::WallClock, ports, process::ServerProcess};

/// A port that was free when this process looked may be taken when the server binds it.
const PORT_ATTEMPTS: usize = 10;
/// Allows for a machine that builds on every core, and for the recovery from a crash.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A MariaDB or MySQL on a free port of 127.0.0.1 and on a Unix socket, killed when this value is
/// dropped.
///
/// It has no binary log. Committed data is in the kernel's hands
/// (`innodb_flush_log_at_trx_commit=2`): a killed server loses none of it, but a machine that fails
/// would.
#[derive(Debug)]
pub struct SqlServer {
    // Dropped first, because the server must end before its folder is removed.
    process: ServerProcess,
    program: SqlProgram,
    port: u16,
    arguments: Vec<OsString>,
    tls: Option<Tls>,
    clock: Option<WallClock>,
    folder: TempDir,
}

/// How the start of a server failed.
#[derive(Debug)]
enum Failure {
    PortTaken,
    Other(Error),
}

impl SqlServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// When no such server is installed (the text says how to get one), or it does not come up.
    pub fn start(flavor: SqlFlavor) -> Result<Self> {
        Self::start_with::<&str>(flavor, [])
    }

    /// As [`start`](Self::start), with more options, such as `["--read-only=1"]`. They take
    /// precedence over all others.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with<A: Into<String>>(
        flavor: SqlFlavor,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Self> {
        let arguments = args.into_iter().map(|arg| arg.into().into()).collect();
        Self::start_in(folder()?, flavor, None, None, arguments)
    }

    /// As [`start_with`](Self::start_with), with its own wall clock: see [`clock`](Self::clock).
    /// The server's waits for locks don't follow that clock.
    ///
    /// # Errors
    /// As for [`start`](Self::start), and for [`WallClock::make`].
    pub fn start_with_clock<A: Into<String>>(
        flavor: SqlFlavor,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Self> {
        let folder = folder()?;
        let clock = WallClock::make(folder.path())?;
        let arguments = args.into_iter().map(|arg| arg.into().into()).collect();
        Self::start_in(folder, flavor, None, Some(clock), arguments)
    }

    /// As [`start`](Self::start), with a certificate for 127.0.0.1 and localhost.
    /// [`tls_ca`](Self::tls_ca) has issued the certificate. Clients can also connect without TLS.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with_tls(flavor: SqlFlavor) -> Result<Self> {
        let folder = folder()?;
        let tls = Tls::make(folder.path())?;
        let arguments = tls.arguments();
        Self::start_in(folder, flavor, Some(tls), None, arguments)
    }

    fn start_in(
        folder: TempDir,
        flavor: SqlFlavor,
        tls: Option<Tls>,
        clock: Option<WallClock>,
        arguments: Vec<OsString>,
    ) -> Result<Self> {
        let program = SqlProgram::find(flavor).map_err(Error::msg)?;
        template::copy_to(&program, &folder.path().join("data"))?;
        Self::start_on_data(program, folder, tls, clock, arguments)
    }

    /// Starts a server on the data in `folder/data`.
    pub(super) fn start_on_data(
        program: SqlProgram,
        folder: TempDir,
        tls: Option<Tls>,
        clock: Option<WallClock>,
        arguments: Vec<OsString>,
    ) -> Result<Self> {
        let flavor = program.flavor;
        let program = match &clock {
            Some(clock) => program.wrapped(clock.wrapper()),
            None => program,
        };
        for _ in 0..PORT_ATTEMPTS {
            let port = ports::free()?;
            match listen(&program, folder.path(), port, &arguments) {
                Ok(process) => {
                    return Ok(Self { process, program, port, arguments, tls, clock, folder });
                }
                Err(Failure::PortTaken) => {}
                Err(Failure::Other(error)) => return Err(error),
            }
        }
        bail!("{flavor} found no free port in {PORT_ATTEMPTS} attempts")
    }

    /// Which server it is.
    #[must_use]
    pub fn flavor(&self) -> SqlFlavor {
        self.program.flavor
    }

    /// The server's version, as the server reports it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.program.version
    }

    /// The URL of the database `lockkit`, for a user with every privilege on that database and no
    /// global privilege. The user's password holds characters that a URL must escape.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(USER)
    }

    /// As [`url`](Self::url), for a user who may do everything.
    #[must_use]
    pub fn admin_url(&self) -> String {
        self.url_of(ADMIN)
    }

    fn url_of(&self, (user, password): (&str, &str)) -> String {
        let password = password.replace('@', "%40").replace('/', "%2F");
        format!("mysql://{user}:{password}@127.0.0.1:{}/{DATABASE}", self.port)
    }

    /// The port of the server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path of the server's Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket(self.folder.path())
    }

    /// The file of the certificate (PEM) that a client must trust.
    ///
    /// # Panics
    /// The server was not started by [`start_with_tls`](Self::start_with_tls).
    #[must_use]
    pub fn tls_ca(&self) -> PathBuf {
        self.tls.as_ref().expect("the server was not started with TLS").ca()
    }

    /// The server's own clock, if it has one.
    #[must_use]
    pub fn clock(&self) -> Option<&WallClock> {
        self.clock.as_ref()
    }

    /// Asks the server to end (SIGTERM), and waits until it has ended. The server closes its
    /// connections and rolls back open transactions. Its data stays for [`restart`](Self::restart).
    ///
    /// # Errors
    /// When the server has already ended, or does not end: a paused server can't.
    pub fn stop(&mut self) -> Result<()> {
        stop(&mut self.process)
    }

    /// Kills the server if it still runs, and starts it again on the same port with the same data.
    /// The server recovers as from a crash, and rolls back open transactions.
    ///
    /// # Errors
    /// When the port was taken meanwhile, or the server does not come up.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.process = listen(&self.program, self.folder.path(), self.port, &self.arguments)
            .map_err(|failure| match failure {
                Failure::PortTaken => Error::msg(format!("port {} was taken meanwhile", self.port)),
                Failure::Other(error) => error,
            })?;
        Ok(())
    }
}

/// A killed server keeps its data for [`restart`](Self::restart).
impl Deref for SqlServer {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}

impl DerefMut for SqlServer {
    fn deref_mut(&mut self) -> &mut ServerProcess {
        &mut self.process
    }
}

/// The arguments of every server. Later ones may override them, and some of them shape the data
/// folder.
pub(super) fn fixed_arguments(flavor: SqlFlavor) -> Vec<OsString> {
    let mut arguments = vec![
        "--character-set-server=utf8mb4",
        "--collation-server=utf8mb4_general_ci",
        "--skip-log-bin",
        "--skip-name-resolve",
        "--max-connections=500",
        // A killed process loses nothing by this, because the kernel has its writes.
        "--innodb-flush-log-at-trx-commit=2",
        // Small, because each server has its own copy.
        "--innodb-buffer-pool-size=32M",
        "--innodb-autoextend-increment=1",
    ];
    arguments.extend_from_slice(match flavor {
        SqlFlavor::MariaDb => &["--innodb-log-file-size=8M"],
        SqlFlavor::MySql => &[
            "--innodb-redo-log-capacity=8M",
            // The default is 64 MB, which the server touches at its start.
            "--innodb-log-buffer-size=1M",
            "--mysqlx=OFF",
            "--secure-file-priv=NULL",
        ],
    });
    let mut arguments: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
    // Servers refuse to run as root without this.
    arguments.extend(geteuid().is_root().then(|| "--user=root".into()));
    arguments
}

pub(super) fn option(name: &str, value: &Path) -> OsString {
    format!("--{name}={}", value.display()).into()
}

pub(super) fn folder() -> Result<TempDir> {
    Ok(TempDir::with_prefix("lockkit-sql-")?)
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("sql.sock")
}

fn listen(
    program: &SqlProgram,
    folder: &Path,
    port: u16,
    arguments: &[OsString],
) -> Result<ServerProcess, Failure> {
    let place = ["--bind-address=127.0.0.1".into(), format!("--port={port}").into()];
    let arguments: Vec<_> = place.into_iter().chain(arguments.iter().cloned()).collect();
    launch(program, folder, &arguments).map_err(|error| {
        if ports::is_taken(&error) { Failure::PortTaken } else { Failure::Other(error) }
    })
}

/// Starts a server on the data in `folder/data`, and waits until it answers.
pub(super) fn launch(
    program: &SqlProgram,
    folder: &Path,
    arguments: &[OsString],
) -> Result<ServerProcess> {
    let socket = socket(folder);
    let pid = folder.join("sql.pid");
    // A killed server leaves these files. The process id in them may belong to another process now.
    for left in [&socket, &folder.join("sql.sock.lock"), &pid] {
        let _ = fs::remove_file(left);
    }
    let mut all = program.arguments();
    all.extend(fixed_arguments(program.flavor));
    all.extend([
        option("datadir", &folder.join("data")),
        option("socket", &socket),
        option("pid-file", &pid),
        option("tmpdir", folder),
    ]);
    all.extend_from_slice(arguments);
    let log = folder.join("sql.log");
    ServerProcess::start((&program.path, &all), &log, START_TIMEOUT, || readiness::answers(&socket))
}

/// Ends a server in order.
pub(super) fn stop(process: &mut ServerProcess) -> Result<()> {
    process.signal(Signal::SIGTERM)?;
    let deadline = Instant::now() + STOP_TIMEOUT;
    while process.is_running()? {
        if Instant::now() > deadline {
            bail!("the server did not end within {STOP_TIMEOUT:?}");
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_noticed() {
        let server = SqlServer::start(SqlFlavor::MariaDb).unwrap();
        let folder = folder().unwrap();
        template::copy_to(&server.program, &folder.path().join("data")).unwrap();
        let refused = listen(&server.program, folder.path(), server.port(), &[]);
        assert!(matches!(refused, Err(Failure::PortTaken)), "{refused:?}");
    }
}
