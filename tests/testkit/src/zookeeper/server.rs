//! One ZooKeeper process.

use std::{
    ffi::OsString,
    fs,
    net::{Ipv4Addr, SocketAddr},
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Error, Result, bail};
use tempfile::TempDir;

use super::{four_letter, java, options::ZooKeeperOptions, tls::Tls};
use crate::{ports, process::ServerProcess};

/// A port that was free when this process looked may be taken when the server binds it.
pub(super) const PORT_ATTEMPTS: usize = 10;
/// A JVM on a machine that builds on every core takes seconds.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(200);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// A server that is starting may never answer a question. Then it is asked again.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// The last lines of the log that go into an error.
const TAIL_LINES: usize = 40;
/// Small and quick to start: no second compiler, and one thread for garbage collection.
const JAVA: [&str; 3] = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
/// A member that lost the others asks for them again at least once a second. The default makes the
/// questions ever rarer.
const MEMBER: &str = "-Dzookeeper.fastleader.maxNotificationInterval=1000";
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// A ZooKeeper server, killed when this value is dropped.
#[derive(Debug)]
pub struct ZooKeeperServer {
    // Dropped first, because the server must end before its folder is removed.
    process: ServerProcess,
    command: Vec<OsString>,
    addr: SocketAddr,
    tls: Option<Tls>,
    /// The id of a member of an ensemble. A member answers, but serves no client, until there is a
    /// quorum.
    member: Option<u8>,
    folder: TempDir,
}

/// The settings that make a server a member of an ensemble.
#[derive(Debug)]
pub(super) struct Member {
    /// The number of the member, from 1.
    pub(super) id: u8,
    /// The member's lines of the configuration.
    pub(super) config: Vec<String>,
    /// The command that runs Java, such as a program that enters a network namespace.
    pub(super) wrapper: Vec<OsString>,
}

/// The progress of a server that is starting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Starting,
    PortTaken,
    /// The server answers. A member of an ensemble may not serve yet.
    Up,
}

impl ZooKeeperServer {
    /// Starts a single server on a free port of 127.0.0.1 and waits until it serves.
    ///
    /// # Errors
    /// When Java or ZooKeeper is not installed (the text says how to get it), or the server does
    /// not come up.
    pub fn start() -> Result<Self> {
        Self::start_with(ZooKeeperOptions::default())
    }

    /// As [`start`](Self::start), with options.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with(options: ZooKeeperOptions) -> Result<Self> {
        for _ in 0..PORT_ATTEMPTS {
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
            let mut server = Self::spawn(&options, options.tick_or(TICK), addr, None)?;
            if server.wait()? == Progress::Up {
                return Ok(server);
            }
        }
        bail!("ZooKeeper found no free port in {PORT_ATTEMPTS} attempts")
    }

    /// Starts the process and does not wait.
    pub(super) fn spawn(
        options: &ZooKeeperOptions,
        tick: Duration,
        addr: SocketAddr,
        member: Option<Member>,
    ) -> Result<Self> {
        let folder = options.folder()?;
        let tls = options
            .tls()
            .then(|| Tls::make(folder.path(), (addr.ip(), ports::free()?).into()))
            .transpose()?;
        let path = folder.path().to_str().context("the temporary folder's name is not UTF-8")?;

        let mut config = vec![
            format!("tickTime={}", tick.as_millis()),
            format!("dataDir={path}/data"),
            format!("clientPort={}", addr.port()),
            format!("clientPortAddress={}", addr.ip()),
            "maxClientCnxns=0".to_owned(),
            "admin.enableServer=false".to_owned(),
            "4lw.commands.whitelist=*".to_owned(),
        ];
        config.extend(tls.iter().flat_map(Tls::config));
        config.extend(member.iter().flat_map(|member| member.config.iter().cloned()));
        config.extend_from_slice(options.config());
        fs::write(folder.path().join("zoo.cfg"), config.join("\n") + "\n")?;

        let mut command: Vec<OsString> =
            member.iter().flat_map(|member| member.wrapper.iter().cloned()).collect();
        command.push(java::java_runtime().map_err(Error::msg)?.into());
        command.extend(JAVA.map(OsString::from));
        command.extend([
            // This marks the server as ours in its answers.
            format!("-Djava.io.tmpdir={path}").into(),
            format!("-Dzookeeper.forceSync={}", if options.durable() { "yes" } else { "no" })
                .into(),
            "-Dorg.slf4j.simpleLogger.showShortLogName=true".into(),
            "-Dorg.slf4j.simpleLogger.showDateTime=true".into(),
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS".into(),
        ]);
        command.extend(member.iter().map(|_| OsString::from(MEMBER)));
        command.extend(tls.iter().flat_map(Tls::java).map(OsString::from));
        command.extend(options.java().iter().map(OsString::from));
        command.extend(["-cp".into(), java::zookeeper_classpath()?.into(), MAIN.into()]);
        command.push(format!("{path}/zoo.cfg").into());

        let member = member.map(|member| member.id);
        prepare_data(folder.path(), member)?;
        let process = run(&command, folder.path())?;
        Ok(Self { process, command, addr, tls, member, folder })
    }

    /// The address of the server.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zk://{}/", self.addr)
    }

    /// The address where the server speaks TLS.
    ///
    /// # Panics
    /// The server was not started [`with_tls`](ZooKeeperOptions::with_tls).
    #[must_use]
    pub fn tls_addr(&self) -> SocketAddr {
        self.tls().addr
    }

    /// The file of the certificate (PEM) that a client of the TLS port must trust. It names the
    /// server's address (127.0.0.1 for a single server) and localhost.
    ///
    /// # Panics
    /// The server was not started [`with_tls`](ZooKeeperOptions::with_tls).
    #[must_use]
    pub fn tls_certificate(&self) -> PathBuf {
        self.tls().certificate.clone()
    }

    fn tls(&self) -> &Tls {
        self.tls.as_ref().expect("the server was not started with_tls")
    }

    /// Kills the server if it still runs, and starts it again on the same port with the same data.
    /// Nodes and sessions are still there. Waits until the server serves. For a member of an
    /// ensemble, waits until the server answers.
    ///
    /// # Errors
    /// When the port was taken meanwhile, or the server does not come up.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        remove_empty_logs(&data(self.folder.path()))?;
        self.process = run(&self.command, self.folder.path())?;
        match self.wait()? {
            Progress::PortTaken => bail!("{} was taken meanwhile", self.addr),
            Progress::Starting | Progress::Up => Ok(()),
        }
    }

    /// As [`restart`](Self::restart), without any data.
    ///
    /// # Errors
    /// As for [`restart`](Self::restart).
    pub fn restart_empty(&mut self) -> Result<()> {
        self.kill()?;
        prepare_data(self.folder.path(), self.member)?;
        self.restart()
    }

    /// The answer to one of ZooKeeper's four-letter words, such as `srvr`, `mntr`, `wchs`, `cons`,
    /// `dump`.
    ///
    /// # Errors
    /// When the server does not answer within a minute, because it is paused, killed or out of
    /// reach.
    pub fn four_letter(&self, word: &str) -> Result<String> {
        four_letter::ask(self.addr, word, ANSWER_TIMEOUT)
    }

    /// A figure of `mntr`, such as `zk_packets_received`, `zk_watch_count`, `zk_ephemerals_count`.
    ///
    /// # Errors
    /// When the server does not answer, serves no client, or knows no such figure.
    pub fn metric(&self, name: &str) -> Result<u64> {
        four_letter::metric(&self.four_letter("mntr")?, name)
    }

    /// The mode of the server: `standalone`, `leader` or `follower`. `None` while the server serves
    /// no client, because there is no quorum.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn mode(&self) -> Result<Option<String>> {
        Ok(four_letter::mode(&self.four_letter("srvr")?).map(str::to_owned))
    }

    /// The last lines that the running server wrote to its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Waits until the server is up, or has failed because its port was taken.
    fn wait(&mut self) -> Result<Progress> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.progress()? {
                Progress::Starting if Instant::now() > deadline => {
                    bail!(
                        "ZooKeeper did not answer within {START_TIMEOUT:?}; its log:\n{}",
                        self.log_tail()
                    )
                }
                Progress::Starting => thread::sleep(Duration::from_millis(5)),
                done => return Ok(done),
            }
        }
    }

    /// The present progress of the start.
    pub(super) fn progress(&mut self) -> Result<Progress> {
        if !self.process.is_running()? {
            if self.was_refused_a_port() {
                return Ok(Progress::PortTaken);
            }
            bail!("ZooKeeper ended at its start; its log:\n{}", self.log_tail());
        }
        let serves = || self.probe_mode().is_ok_and(|mode| mode.is_some());
        let up = self.is_ours() && (self.member.is_some() || serves());
        Ok(if up { Progress::Up } else { Progress::Starting })
    }

    pub(super) fn was_refused_a_port(&self) -> bool {
        ports::is_told(&self.log())
    }

    /// As [`mode`](Self::mode), for a server that may be unable to answer.
    pub(super) fn probe_mode(&self) -> Result<Option<String>> {
        Ok(four_letter::mode(&four_letter::ask(self.addr, "srvr", PROBE_TIMEOUT)?)
            .map(str::to_owned))
    }

    /// Whether the answer comes from this server, because another program might answer on the port.
    fn is_ours(&self) -> bool {
        let own = format!("java.io.tmpdir={}\n", self.folder.path().display());
        four_letter::ask(self.addr, "envi", PROBE_TIMEOUT).is_ok_and(|reply| reply.contains(&own))
    }
}

/// A killed server keeps its data for [`restart`](Self::restart).
impl Deref for ZooKeeperServer {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}

impl DerefMut for ZooKeeperServer {
    fn deref_mut(&mut self) -> &mut ServerProcess {
        &mut self.process
    }
}

fn run(command: &[OsString], folder: &Path) -> Result<ServerProcess> {
    let (program, args) = command.split_first().context("no program")?;
    ServerProcess::spawn(Path::new(program), args, &folder.join("zookeeper.log"))
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Removes empty transaction logs. A server that is killed before it has written the first bytes of
/// a new transaction log would not start again (ZOOKEEPER-2332).
fn remove_empty_logs(data: &Path) -> Result<()> {
    let Ok(files) = fs::read_dir(data.join("version-2")) else { return Ok(()) };
    for file in files {
        let file = file?;
        if file.file_name().to_string_lossy().starts_with("log.") && file.metadata()?.len() == 0 {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

/// Makes an empty data folder, with the number of the member in it.
fn prepare_data(folder: &Path, member: Option<u8>) -> Result<()> {
    let data = data(folder);
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    fs::create_dir(&data)?;
    if let Some(id) = member {
        fs::write(data.join("myid"), id.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::{super::test_client::create, *};

    fn nodes(server: &ZooKeeperServer) -> u64 {
        server.metric("zk_znode_count").unwrap()
    }

    #[test]
    fn a_server_answers_pauses_continues_and_restarts_with_its_data() {
        let mut server = ZooKeeperServer::start().unwrap();
        assert_eq!(server.mode().unwrap().as_deref(), Some("standalone"));
        let empty = nodes(&server);
        create(server.addr(), "/a");
        assert_eq!(nodes(&server), empty + 1);

        server.pause().unwrap();
        let paused = four_letter::ask(server.addr(), "ruok", Duration::from_millis(100));
        assert!(paused.is_err(), "a paused server answers");
        server.resume().unwrap();
        assert_eq!(server.four_letter("ruok").unwrap(), "imok");

        let addr = server.addr();
        let pid = server.pid();
        server.restart().unwrap();
        assert_eq!(server.addr(), addr);
        assert_ne!(server.pid(), pid);
        assert_eq!(nodes(&server), empty + 1);
        server.restart_empty().unwrap();
        assert_eq!(nodes(&server), empty);
        server.kill().unwrap();
        assert!(TcpStream::connect(addr).is_err(), "a killed server listens");
    }

    #[test]
    fn a_taken_port_is_noticed_even_if_a_zookeeper_answers_there() {
        let server = ZooKeeperServer::start().unwrap();
        let mut second =
            ZooKeeperServer::spawn(&ZooKeeperOptions::default(), TICK, server.addr(), None)
                .unwrap();
        assert_eq!(second.wait().unwrap(), Progress::PortTaken);
    }

    #[test]
    fn a_bad_configuration_shows_the_log() {
        let error =
            ZooKeeperServer::start_with(ZooKeeperOptions::default().with_config("clientPort=none"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("NumberFormatException"), "{error}");
    }

    #[test]
    fn two_servers_share_nothing() {
        let a = ZooKeeperServer::start().unwrap();
        let b = ZooKeeperServer::start().unwrap();
        assert_ne!(a.addr(), b.addr());
        let empty = nodes(&b);
        create(a.addr(), "/a");
        assert_eq!(nodes(&b), empty);
    }

    #[test]
    fn options_reach_the_server() {
        let options = ZooKeeperOptions::default()
            .with_tick(Duration::from_millis(300))
            .with_config("maxSessionTimeout=12345")
            .with_java("-Duser.name=lockkit");
        let server = ZooKeeperServer::start_with(options).unwrap();
        let config = server.four_letter("conf").unwrap();
        assert!(
            config.contains("tickTime=300\n") && config.contains("maxSessionTimeout=12345\n"),
            "{config}"
        );
        assert!(server.four_letter("envi").unwrap().contains("user.name=lockkit\n"));
    }

    #[test]
    fn the_tls_port_uses_the_named_certificate() {
        let server = ZooKeeperServer::start_with(ZooKeeperOptions::default().with_tls()).unwrap();
        assert_eq!(server.four_letter("ruok").unwrap(), "imok");
        let addr = server.tls_addr().to_string();
        let shown = std::process::Command::new(java::keytool().unwrap())
            .args(["-printcert", "-rfc", "-sslserver", &addr])
            .output()
            .unwrap();
        let named = fs::read_to_string(server.tls_certificate()).unwrap();
        let body = |text: &str| -> Option<String> {
            let (_, rest) = text.split_once("-----BEGIN CERTIFICATE-----")?;
            let (body, _) = rest.split_once("-----END CERTIFICATE-----")?;
            Some(body.split_whitespace().collect())
        };
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(body(&named).is_some(), "{named}");
        assert_eq!(body(&shown), body(&named), "{shown}");
    }

    #[test]
    fn a_server_that_was_killed_before_it_wrote_a_log_starts_again() {
        let mut server = ZooKeeperServer::start().unwrap();
        create(server.addr(), "/kept");
        let before = nodes(&server);
        server.kill().unwrap();
        let empty = data(server.folder.path()).join("version-2/log.fffffff");
        fs::write(&empty, "").unwrap();
        server.restart().unwrap();
        assert!(!empty.exists());
        assert_eq!(nodes(&server), before, "what it had is there");
    }
}
