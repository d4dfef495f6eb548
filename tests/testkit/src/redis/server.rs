//! One Redis server process.

use std::{
    ffi::OsString,
    fs, io,
    net::Ipv4Addr,
    ops::{Deref, DerefMut},
    os::unix::{fs::symlink, net::UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use super::{
    options::RedisOptions,
    program,
    resp::{Connection, RedisReply},
    tls::RedisTls,
};
use crate::{clock::WallClock, ports, process::ServerProcess};

/// A port that was free when this process looked may be taken when the server binds it.
pub(super) const PORT_ATTEMPTS: usize = 10;
/// The time for a start, and for an agreement of several servers after it.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(60);
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// For questions to several servers, of which one may be paused. A busy server may stall for
/// seconds.
const PEEK_TIMEOUT: Duration = Duration::from_secs(5);

/// A redis-server on a free port of 127.0.0.1, without persistence, killed when this value is
/// dropped.
#[derive(Debug)]
pub struct RedisServer {
    // Dropped first, because the server must end before its folder is removed.
    process: ServerProcess,
    port: u16,
    options: RedisOptions,
    home: Home,
}

/// A server's folder, which outlives its process.
#[derive(Debug)]
struct Home {
    dir: TempDir,
    clock: Option<WallClock>,
    tls: Option<RedisTls>,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// When no redis-server is installed (the text says how to get one), or it does not come up.
    pub fn start() -> Result<Self> {
        Self::start_as(RedisOptions::default())
    }

    /// As [`start`](Self::start), with more arguments, such as `["--requirepass", "secret"]`.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with<A: Into<String>>(args: impl IntoIterator<Item = A>) -> Result<Self> {
        Self::start_as(RedisOptions::default().with_args(args))
    }

    /// As [`start`](Self::start), with its own wall clock: see [`clock`](Self::clock).
    ///
    /// # Errors
    /// As for [`start`](Self::start), and for [`WallClock::make`].
    pub fn start_with_clock() -> Result<Self> {
        Self::start_as(RedisOptions::default().with_clock())
    }

    /// Starts a valkey-server, if there is one: see [`valkey_server`](super::valkey_server).
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_valkey() -> Result<Option<Self>> {
        let program = program::valkey_server();
        program
            .map(|program| Self::start_as(RedisOptions::default().with_program(program)))
            .transpose()
    }

    /// Starts a server with these options, and waits until it answers.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_as(options: RedisOptions) -> Result<Self> {
        Self::start_on(ports::free, options)
    }

    /// Starts a server on a port from `choose`, or on the next one if that port is taken meanwhile.
    pub(super) fn start_on(
        choose: impl Fn() -> Result<u16>,
        options: RedisOptions,
    ) -> Result<Self> {
        for _ in 0..PORT_ATTEMPTS {
            if let Some(server) = Self::start_at(choose()?, options.clone())? {
                return Ok(server);
            }
        }
        bail!("redis-server found no free port in {PORT_ATTEMPTS} attempts")
    }

    /// Starts a server; `None` if the port was taken.
    pub(super) fn start_at(port: u16, options: RedisOptions) -> Result<Option<Self>> {
        let home = Home::make(&options)?;
        let process = home.launch(port, &options)?;
        Ok(process.map(|process| Self { process, port, options, home }))
    }

    /// The URL of the server. The caller adds a password.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.home.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{}/", self.addr())
    }

    /// The port of the server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn addr(&self) -> String {
        format!("{}:{}", self.ip(), self.port)
    }

    pub(super) fn ip(&self) -> Ipv4Addr {
        self.options.place.ip
    }

    /// The path of the server's Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.home.socket()
    }

    /// The server's own clock, if it has one.
    #[must_use]
    pub fn clock(&self) -> Option<&WallClock> {
        self.home.clock.as_ref()
    }

    /// The files of the server's TLS side, if it speaks TLS.
    #[must_use]
    pub fn tls(&self) -> Option<&RedisTls> {
        self.home.tls.as_ref()
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.options.password()
    }

    /// Sends one command, such as `["GET", "key"]`, over a new connection. Returns the reply or the
    /// refusal.
    ///
    /// # Errors
    /// When the server is down, or does not reply within a minute.
    pub fn command<W: AsRef<[u8]>>(
        &self,
        words: impl IntoIterator<Item = W>,
    ) -> Result<RedisReply> {
        self.send(words, REPLY_TIMEOUT)
    }

    /// As [`command`](Self::command); a refusal is an error.
    ///
    /// # Errors
    /// As for [`command`](Self::command), or the server refuses.
    pub fn ask<W: AsRef<[u8]>>(&self, words: impl IntoIterator<Item = W>) -> Result<RedisReply> {
        self.accepted(self.command(words)?)
    }

    /// As [`ask`](Self::ask), with a shorter timeout.
    pub(super) fn peek<W: AsRef<[u8]>>(
        &self,
        words: impl IntoIterator<Item = W>,
    ) -> Result<RedisReply> {
        self.accepted(self.send(words, PEEK_TIMEOUT)?)
    }

    fn accepted(&self, reply: RedisReply) -> Result<RedisReply> {
        reply.into_result().with_context(|| format!("refused by {}", self.addr()))
    }

    fn send<W: AsRef<[u8]>>(
        &self,
        words: impl IntoIterator<Item = W>,
        timeout: Duration,
    ) -> Result<RedisReply> {
        let words: Vec<_> = words.into_iter().collect();
        let exchange = || -> io::Result<RedisReply> {
            let stream = UnixStream::connect(self.socket())?;
            stream.set_read_timeout(Some(timeout))?;
            let mut connection = Connection::new(stream);
            if let Some(password) = self.password() {
                connection.command(&["AUTH", password])?;
            }
            connection.command(&words)
        };
        exchange().with_context(|| {
            let name = words
                .first()
                .map_or_else(Default::default, |word| String::from_utf8_lossy(word.as_ref()));
            format!("{name} on {}", self.addr())
        })
    }

    /// Kills the server if it still runs, and starts an empty one on the same port with the same
    /// arguments.
    ///
    /// # Errors
    /// When the port was taken meanwhile, or the server does not come up.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        let process = self.home.launch(self.port, &self.options)?;
        self.process =
            process.with_context(|| format!("port {} was taken meanwhile", self.port))?;
        Ok(())
    }
}

/// A killed server has lost its data, unless it keeps its data on disk.
impl Deref for RedisServer {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}

impl DerefMut for RedisServer {
    fn deref_mut(&mut self) -> &mut ServerProcess {
        &mut self.process
    }
}

impl Home {
    fn make(options: &RedisOptions) -> Result<Self> {
        let dir = TempDir::with_prefix("lockkit-redis-")?;
        let program = options.program.clone().map_or_else(program::redis_server, Ok)?;
        // A link with this name, because the binary may be Debian's redis-check-rdb. That is the
        // same program, which chooses its job by its name.
        symlink(program, dir.path().join("redis-server"))?;
        if let Some(config) = &options.sentinel {
            fs::write(dir.path().join("sentinel.conf"), config)?;
        }
        let clock = options.clock.then(|| WallClock::make(dir.path())).transpose()?;
        let tls = options.tls.map(|clients| RedisTls::make(dir.path(), clients)).transpose()?;
        Ok(Self { dir, clock, tls })
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// Starts the server and waits until it answers; `None` if the port was taken.
    fn launch(&self, port: u16, options: &RedisOptions) -> Result<Option<ServerProcess>> {
        let log = self.dir.path().join("redis.log");
        let socket = self.socket();
        let _ = fs::remove_file(&socket);
        let command = self.command(port, options)?;
        let (program, arguments) = command.split_first().context("no program")?;
        match ServerProcess::start((Path::new(program), arguments), &log, START_TIMEOUT, || {
            answers(&socket)
        }) {
            Err(error) if ports::is_taken(&error) => Ok(None),
            answer => answer.map(Some),
        }
    }

    fn command(&self, port: u16, options: &RedisOptions) -> Result<Vec<OsString>> {
        let dir = self.dir.path().to_str().context("the temporary folder's name is not UTF-8")?;
        let mut command = options.place.wrapper.clone();
        command.extend(self.clock.iter().flat_map(WallClock::wrapper));
        command.push(format!("{dir}/redis-server").into());
        if options.sentinel.is_some() {
            command.extend([format!("{dir}/sentinel.conf").into(), "--sentinel".into()]);
        }
        let socket = format!("{dir}/redis.sock");
        let port = port.to_string();
        let ports = match &self.tls {
            None => vec!["--port", &port],
            Some(_) => vec!["--port", "0", "--tls-port", &port],
        };
        let ip = options.place.ip.to_string();
        // Off the loopback, a server without a password would accept no client in protected mode.
        let open = if options.place.ip.is_loopback() { "yes" } else { "no" };
        let bind = ["--bind", &ip, "--protected-mode", open];
        let fixed = ["--unixsocket", &socket, "--dir", dir, "--daemonize", "no"];
        let volatile = ["--save", "", "--appendonly", "no"];
        // A full synchronization starts at once, and a silent peer is given up after 5 s.
        let quick = [
            "--repl-diskless-sync-delay",
            "0",
            "--repl-ping-replica-period",
            "1",
            "--repl-timeout",
            "5",
        ];
        command.extend(
            ports
                .into_iter()
                .chain(bind)
                .chain(fixed)
                .chain(volatile)
                .chain(quick)
                .map(OsString::from),
        );
        command.extend(self.tls.iter().flat_map(RedisTls::arguments).map(OsString::from));
        command.extend(options.args.iter().map(OsString::from));
        Ok(command)
    }
}

/// Asks through the socket in the server's own folder, because another program might answer on the
/// port. The server opens its port before its socket.
fn answers(socket: &Path) -> bool {
    let ping = || -> io::Result<bool> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        // If a password is set, a refusal is also an answer.
        Ok(match Connection::new(stream).command(&["PING"])? {
            RedisReply::Status(pong) => pong == "PONG",
            RedisReply::Error(refusal) => refusal.starts_with("NOAUTH"),
            _ => false,
        })
    };
    ping().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
        process::Command,
        thread,
        time::Instant,
    };

    use super::*;
    use crate::{clock::ClockDirection, redis::ClientCertificates};

    fn say(server: &RedisServer, text: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut reply = [0; 64];
        let length = stream.read(&mut reply).unwrap();
        String::from_utf8_lossy(&reply[..length]).into_owned()
    }

    #[test]
    fn a_server_answers_pauses_continues_and_restarts_on_its_port() {
        let mut server = RedisServer::start().unwrap();
        assert_eq!(say(&server, "SET a b\r\n"), "+OK\r\n");
        server.pause().unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(b"GET a\r\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(stream.read(&mut [0; 8]).is_err(), "a paused server answers");
        server.resume().unwrap();
        assert_eq!(say(&server, "GET a\r\n"), "$1\r\nb\r\n");
        let port = server.port();
        let pid = server.pid();
        server.restart().unwrap();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);
        assert_eq!(say(&server, "GET a\r\n"), "$-1\r\n");
    }

    #[test]
    fn a_taken_port_is_noticed() {
        let server = RedisServer::start().unwrap();
        assert!(RedisServer::start_at(server.port(), RedisOptions::default()).unwrap().is_none());
    }

    #[test]
    fn a_password_works_and_a_bad_argument_shows_the_log() {
        let server = RedisServer::start_with(["--requirepass", "secret"]).unwrap();
        assert_eq!(say(&server, "AUTH secret\r\n"), "+OK\r\n");
        let error = RedisServer::start_with(["--no-such-thing", "1"]).unwrap_err();
        assert!(error.to_string().contains("no-such-thing"), "{error}");
    }

    #[test]
    fn two_servers_share_nothing() {
        let a = RedisServer::start().unwrap();
        let b = RedisServer::start().unwrap();
        assert_ne!(a.port(), b.port());
        assert_eq!(say(&a, "SET a b\r\n"), "+OK\r\n");
        assert_eq!(say(&b, "GET a\r\n"), "$-1\r\n");
    }

    /// The reply of a server with TLS to redis-cli, which is in the same package.
    fn ping_by_tls(server: &RedisServer, with_certificate: bool) -> String {
        let tls = server.tls().unwrap();
        let mut command = Command::new("redis-cli");
        command.args(["--tls", "-h", "127.0.0.1", "-p", &server.port().to_string()]);
        command.arg("--cacert").arg(tls.ca());
        if with_certificate {
            command.arg("--cert").arg(tls.client_certificate()).arg("--key").arg(tls.client_key());
        }
        String::from_utf8(command.arg("PING").output().unwrap().stdout).unwrap()
    }

    #[test]
    fn a_tls_port_speaks_tls_and_requires_a_certificate_only_on_request() {
        let start =
            |clients| RedisServer::start_as(RedisOptions::default().with_tls(clients)).unwrap();
        let server = start(ClientCertificates::Ignored);
        assert_eq!(server.url(), format!("rediss://127.0.0.1:{}/", server.port()));
        assert_eq!(ping_by_tls(&server, false), "PONG\n");
        let server = start(ClientCertificates::Demanded);
        assert_ne!(ping_by_tls(&server, false), "PONG\n");
        assert_eq!(ping_by_tls(&server, true), "PONG\n");
    }

    #[test]
    fn time_and_expiry_follow_the_servers_own_clock_but_timers_do_not() {
        let mut server = RedisServer::start_with_clock().unwrap();
        let time = |server: &RedisServer| -> i64 {
            server.ask(["TIME"]).unwrap().elements()[0].text().parse().unwrap()
        };
        let hour = Duration::from_secs(3600);
        let before = time(&server);
        server.ask(["SET", "short", "x", "PX", "60000"]).unwrap();
        server.ask(["SET", "long", "x", "PX", "7200000"]).unwrap();
        server.clock().unwrap().step(hour, ClockDirection::Forward).unwrap();
        assert!((3600..3660).contains(&(time(&server) - before)));
        assert_eq!(server.ask(["GET", "short"]).unwrap(), RedisReply::Nil);
        assert_eq!(server.ask(["GET", "long"]).unwrap().text(), "x");

        server.clock().unwrap().step(2 * hour, ClockDirection::Back).unwrap();
        assert!((-3600..-3540).contains(&(time(&server) - before)));
        let left: i64 = server.ask(["PTTL", "long"]).unwrap().text().parse().unwrap();
        assert!((10_740_000..=10_800_000).contains(&left), "{left}");
        // No request reads the key again: the server's timer removes it, and the step back must not
        // have stopped that timer.
        server.ask(["SET", "brief", "x", "PX", "20"]).unwrap();
        let deadline = Instant::now() + START_TIMEOUT;
        while server.ask(["DBSIZE"]).unwrap() != RedisReply::Integer(1) {
            assert!(Instant::now() < deadline, "the timer does not advance");
            thread::sleep(Duration::from_millis(5));
        }

        server.restart().unwrap();
        assert!((-3600..-3540).contains(&(time(&server) - before)), "a restart sets the clock");
    }

    #[test]
    fn a_valkey_server_is_used_if_it_is_installed() {
        let server = RedisServer::start_valkey().unwrap();
        assert_eq!(server.is_some(), program::valkey_server().is_some());
        if let Some(server) = server {
            assert!(server.ask(["INFO", "server"]).unwrap().text().contains("valkey_version"));
        }
    }
}
