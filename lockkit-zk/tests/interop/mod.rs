//! A Java process with Curator's locks, and a locker on the same server.

use std::{
    collections::HashMap,
    fs,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use lockkit_core::{Locker, spi::Inspection, url::StoreUrl};
use lockkit_fixture::{
    TestZooKeeper, ZooKeeperOptions, curator_classpath, java_compiler, java_runtime,
    zookeeper_from_env_or_start,
};
use lockkit_zk::{Config, ZooKeeper, zookeeper_client::Client};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin},
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

/// Required events happen within this time, or a test fails. No test waits for it to pass.
pub(crate) const SOON: Duration = Duration::from_secs(30);
const PROGRAM: &str = include_str!("CuratorLocks.java");
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

/// A server and the compiled program, for all tests that run at the same time.
struct Shared {
    classes: TempDir,
    class_path: String,
    server: TestZooKeeper,
}

impl Shared {
    fn get() -> Arc<Self> {
        static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Self::new());
            *shared = Arc::downgrade(&new);
            new
        })
    }

    fn new() -> Self {
        let jars = curator_classpath().unwrap_or_else(|how| panic!("{how}"));
        let compiler = java_compiler().unwrap_or_else(|how| panic!("{how}"));
        let classes = tempfile::tempdir().unwrap();
        fs::write(classes.path().join("CuratorLocks.java"), PROGRAM).unwrap();
        let compiled = Command::new(compiler)
            .args([
                "-Xlint:all",
                "-Werror",
                "-Xlint:-classfile,-path",
                "-cp",
                &jars,
                "CuratorLocks.java",
            ])
            .current_dir(classes.path())
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let class_path = format!("{}:{jars}", classes.path().display());
        let server = zookeeper_from_env_or_start(ZooKeeperOptions::default()).unwrap();
        Self { classes, class_path, server }
    }
}

/// lockkit and Java on one server, in a folder of their own.
pub(crate) struct Both {
    pub(crate) locker: Locker,
    pub(crate) java: Arc<Java>,
    /// A client that reads the tree directly.
    pub(crate) admin: Client,
    prefix: String,
    shared: Arc<Shared>,
}

impl Both {
    pub(crate) async fn start() -> Self {
        let shared = tokio::task::spawn_blocking(Shared::get).await.unwrap();
        let prefix = format!("interop-{:032x}", rand::random::<u128>());
        let url = StoreUrl::parse(&shared.server.url).unwrap();
        let hosts = hosts(&url);
        let chroot = url.path().trim_end_matches('/').to_owned();
        let admin = Client::connect(&format!("{hosts}{chroot}")).await.unwrap();
        let java =
            Arc::new(Java::start(&shared, &format!("{hosts}{chroot}"), SESSION_TIMEOUT).await);
        let locker = locker(&shared, &prefix).await;
        Self { locker, java, admin, prefix, shared }
    }

    /// A locker that the servers see as another process.
    pub(crate) async fn another_locker(&self) -> Locker {
        locker(&self.shared, &self.prefix).await
    }

    /// The path of a lock, for Java.
    pub(crate) fn path(&self, kind: &str, escaped_name: &str) -> String {
        format!("/{}/{kind}/{escaped_name}", self.prefix)
    }

    /// An empty folder on this machine.
    pub(crate) fn folder(&self) -> TempDir {
        tempfile::tempdir_in(self.shared.classes.path()).unwrap()
    }

    /// Waits until exactly this many claims wait for the lock.
    pub(crate) async fn until_waiters<F>(&self, inspect: impl Fn() -> F, waiters: u64)
    where
        F: Future<Output = lockkit_core::Result<Inspection>>,
    {
        let seen = async {
            while inspect().await.unwrap().waiters != Some(waiters) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(SOON, seen).await.unwrap();
    }

    /// Waits until the folder of a lock is empty.
    pub(crate) async fn until_empty(&self, path: &str) {
        let empty = async {
            while self.admin.list_children(path).await.is_ok_and(|children| !children.is_empty()) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, empty).await.unwrap();
    }
}

async fn locker(shared: &Shared, prefix: &str) -> Locker {
    let config = Config::from_url(StoreUrl::parse(&shared.server.url).unwrap()).unwrap();
    let config = config.with_prefix(prefix).unwrap().with_session_timeout(SESSION_TIMEOUT).unwrap();
    // The test is about the store's own queue.
    Locker::new(ZooKeeper::connect(config).await.unwrap()).with_process_gate(false)
}

fn hosts(url: &StoreUrl) -> String {
    let hosts =
        url.hosts().iter().map(|host| format!("{}:{}", host.name, host.port.unwrap_or(2181)));
    hosts.collect::<Vec<_>>().join(",")
}

type Answers = Arc<Mutex<HashMap<u64, oneshot::Sender<String>>>>;

/// The Java process. It ends with its standard input, so it ends with this process.
pub(crate) struct Java {
    child: tokio::sync::Mutex<Child>,
    commands: mpsc::UnboundedSender<String>,
    answers: Answers,
    next: AtomicU64,
}

impl Java {
    async fn start(shared: &Shared, servers: &str, session_timeout: Duration) -> Self {
        let mut child = tokio::process::Command::new(java_runtime().unwrap())
            .args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
            .args(["-cp", &shared.class_path, "CuratorLocks", servers])
            .arg(session_timeout.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(
            timeout(SOON, lines.next_line()).await.unwrap().unwrap().as_deref(),
            Some("ready")
        );
        let answers = Answers::default();
        let (commands, queue) = mpsc::unbounded_channel();
        tokio::spawn(write(child.stdin.take().unwrap(), queue));
        let waiting = Arc::clone(&answers);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let (number, answer) = line.split_once(' ').unwrap();
                let asked = waiting.lock().unwrap().remove(&number.parse().unwrap());
                // The test may not wait for the answer any more.
                let _ = asked.unwrap().send(answer.to_owned());
            }
            // A caller that waits for an answer of a dead process fails.
            waiting.lock().unwrap().clear();
        });
        Self { child: child.into(), commands, answers, next: AtomicU64::new(0) }
    }

    /// Gives one owner a command at once. The future is the answer.
    pub(crate) fn tell(
        &self,
        owner: &str,
        command: &str,
    ) -> impl Future<Output = String> + Send + use<> {
        let number = self.next.fetch_add(1, Relaxed);
        let (sender, answer) = oneshot::channel();
        self.answers.lock().unwrap().insert(number, sender);
        self.commands.send(format!("{number} {owner} {command}\n")).unwrap();
        async move { timeout(SOON * 2, answer).await.expect("no answer").expect("Java has ended") }
    }

    /// Asks for a lock, and waits for it for a long time.
    pub(crate) fn acquire(
        &self,
        owner: &str,
        kind: &str,
        path: &str,
    ) -> impl Future<Output = String> + Send + use<> {
        self.tell(owner, &format!("acquire {kind} {} {path}", SOON.as_millis()))
    }

    /// # Panics
    /// The owner held nothing.
    pub(crate) async fn release(&self, owner: &str) {
        assert_eq!(self.tell(owner, "release").await, "released");
    }

    /// Kills the process with SIGKILL.
    pub(crate) async fn kill(&self) {
        self.child.lock().await.kill().await.unwrap();
    }
}

async fn write(mut stdin: ChildStdin, mut commands: mpsc::UnboundedReceiver<String>) {
    while let Some(line) = commands.recv().await {
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}
