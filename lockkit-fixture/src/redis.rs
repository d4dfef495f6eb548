//! A redis-server of our own.

use std::{
    env,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener},
    os::unix::{fs::symlink, net::UnixStream},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::process::Leashed;

/// The variable that points the tests at a Redis server of the user's own.
pub const REDIS_URL_VARIABLE: &str = "LOCKKIT_TEST_REDIS_URL";

/// A port that was free when we looked may be taken when the server binds it.
const PORT_ATTEMPTS: usize = 10;
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A redis-server on a free port of 127.0.0.1, without persistence, killed when this value is dropped.
#[derive(Debug)]
pub struct RedisServer {
    // Dropped first: the server must be gone before its folder is.
    process: Leashed,
    port: u16,
    args: Vec<String>,
    dir: TempDir,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// When no redis-server is installed (the text says how to get one), or it does not come up.
    pub fn start() -> Result<Self> {
        Self::start_with::<&str>([])
    }

    /// As [`start`](Self::start), with more arguments, such as `["--requirepass", "secret"]`.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with<A: Into<String>>(args: impl IntoIterator<Item = A>) -> Result<Self> {
        let args: Vec<_> = args.into_iter().map(Into::into).collect();
        let dir = TempDir::with_prefix("lockkit-redis-")?;
        // A name of its own: the binary may be Debian's redis-check-rdb, which is the same program and decides by
        // its name what to be.
        symlink(find_binary()?, dir.path().join("redis-server"))?;
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port()?;
            if let Some(process) = launch(dir.path(), port, &args)? {
                return Ok(Self { process, port, args, dir });
            }
        }
        bail!("redis-server found no free port in {PORT_ATTEMPTS} attempts")
    }

    /// The URL of the server. A password is for the caller to add.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port of the server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path of the server's Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// The server's process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Stops the server in its tracks (SIGSTOP): connections stay open and nothing is answered.
    ///
    /// # Errors
    /// When the server has ended, or does not stop.
    pub fn pause(&self) -> Result<()> {
        self.process.pause()
    }

    /// Lets a paused server go on.
    ///
    /// # Errors
    /// When the server has ended.
    pub fn resume(&self) -> Result<()> {
        self.process.resume()
    }

    /// Kills the server (SIGKILL), paused or not. All data is lost.
    ///
    /// # Errors
    /// When the child can't be waited for.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Kills the server if it still runs, and starts an empty one on the same port.
    ///
    /// # Errors
    /// When the port was taken meanwhile, or the server does not come up.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        let process = launch(self.dir.path(), self.port, &self.args)?;
        self.process = process.with_context(|| format!("port {} was taken meanwhile", self.port))?;
        Ok(())
    }
}

/// The Redis that the tests are to use.
#[derive(Debug)]
pub struct TestRedis {
    /// Where it is.
    pub url: String,
    /// The server, if it is ours to pause and kill.
    pub server: Option<RedisServer>,
}

/// Takes the server that `LOCKKIT_TEST_REDIS_URL` names, or starts one.
///
/// # Errors
/// As for [`RedisServer::start`].
pub fn redis_from_env_or_start() -> Result<TestRedis> {
    if let Ok(url) = env::var(REDIS_URL_VARIABLE) {
        return Ok(TestRedis { url, server: None });
    }
    let server = RedisServer::start()?;
    Ok(TestRedis { url: server.url(), server: Some(server) })
}

fn find_binary() -> Result<PathBuf> {
    // Debian's smallest package with the server in it is redis-tools: it installs no service.
    let names = ["redis-server", "redis-check-rdb"];
    let path = env::var_os("PATH").unwrap_or_default();
    let found = names.iter().find_map(|name| {
        env::split_paths(&path).map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
    });
    found.with_context(|| {
        format!(
            "no redis-server is installed. This command installs one, without a service: \
             apt-get install --no-install-recommends redis-tools\n\
             Or set {REDIS_URL_VARIABLE} to the URL of a server of your own"
        )
    })
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Starts a server and waits until it answers; `None` if the port was taken.
fn launch(dir: &Path, port: u16, args: &[String]) -> Result<Option<Leashed>> {
    let log = dir.join("redis.log");
    let socket = dir.join("redis.sock");
    let port = port.to_string();
    let socket_text = socket.to_str().context("the temporary folder's name is not UTF-8")?;
    let dir_text = dir.to_str().context("the temporary folder's name is not UTF-8")?;
    let fixed = ["--port", &port, "--bind", "127.0.0.1", "--unixsocket", socket_text, "--dir", dir_text];
    let fixed = fixed.into_iter().chain(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
    let args = fixed.chain(args.iter().map(String::as_str));
    let _ = std::fs::remove_file(&socket);
    let mut server = Leashed::spawn(&dir.join("redis-server"), args, &log)?;

    let deadline = Instant::now() + START_TIMEOUT;
    while !answers(&socket) {
        let text = || std::fs::read_to_string(&log).unwrap_or_default();
        if !server.is_running()? {
            let text = text();
            if text.contains("Address already in use") {
                return Ok(None);
            }
            bail!("redis-server ended at its start; its log:\n{text}");
        }
        if Instant::now() > deadline {
            bail!("redis-server did not answer within {START_TIMEOUT:?}; its log:\n{}", text());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(Some(server))
}

/// Asks through the socket in our own folder: on the port, somebody else might answer. The server opens its port
/// before its socket.
fn answers(socket: &Path) -> bool {
    let ping = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 7];
        stream.read_exact(&mut reply)?;
        // With a password set, a refusal is an answer too.
        Ok(&reply == b"+PONG\r\n" || &reply == b"-NOAUTH")
    };
    ping().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn say(server: &RedisServer, text: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut reply = [0; 64];
        let length = stream.read(&mut reply).unwrap();
        String::from_utf8_lossy(&reply[..length]).into_owned()
    }

    #[test]
    fn a_server_answers_pauses_goes_on_and_restarts_on_its_port() {
        let mut server = RedisServer::start().unwrap();
        assert_eq!(say(&server, "SET a b\r\n"), "+OK\r\n");
        server.pause().unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(b"GET a\r\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(stream.read(&mut [0; 8]).is_err(), "a paused server answers");
        server.resume().unwrap();
        assert_eq!(say(&server, "GET a\r\n"), "$1\r\nb\r\n");
        let (port, pid) = (server.port(), server.pid());
        server.restart().unwrap();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);
        assert_eq!(say(&server, "GET a\r\n"), "$-1\r\n");
    }

    #[test]
    fn a_taken_port_is_noticed() {
        let server = RedisServer::start().unwrap();
        let dir = tempfile::tempdir().unwrap();
        symlink(find_binary().unwrap(), dir.path().join("redis-server")).unwrap();
        assert!(launch(dir.path(), server.port(), &[]).unwrap().is_none());
    }

    #[test]
    fn a_password_is_no_obstacle_and_a_bad_argument_shows_the_log() {
        let server = RedisServer::start_with(["--requirepass", "secret"]).unwrap();
        assert_eq!(say(&server, "AUTH secret\r\n"), "+OK\r\n");
        let error = RedisServer::start_with(["--no-such-thing", "1"]).unwrap_err();
        assert!(error.to_string().contains("no-such-thing"), "{error}");
    }

    #[test]
    fn two_servers_do_not_meet() {
        let (a, b) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
        assert_ne!(a.port(), b.port());
        assert_eq!(say(&a, "SET a b\r\n"), "+OK\r\n");
        assert_eq!(say(&b, "GET a\r\n"), "$-1\r\n");
    }
}
