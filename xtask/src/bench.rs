//! Starts servers, and measures all stores that are available on this machine.

use std::{
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    thread,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use lockkit_fixture::{RedisServer, SqlFlavor, SqlServer, ZooKeeperOptions, ZooKeeperServer};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    install, mysql,
    run::{cargo, shown, step, target},
    server,
};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measures fewer stores, and fewer and shorter cases, to check that everything works
    #[arg(long)]
    quick: bool,
    /// Measures only these stores. A name includes its variants: `redis` includes `redis-durable`
    #[arg(long = "store", value_name = "NAME")]
    stores: Vec<String>,
    /// Arguments for lockkit-bench: `cargo xtask bench -- --only hot-name`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Installs missing servers, starts empty ones, and runs lockkit-bench on all of them, built in
/// release mode.
///
/// # Errors
/// A server can't be started, the build fails, or lockkit-bench fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    // This comes first, because a signal must also end a server that is still starting.
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM]).context("could not watch for Ctrl-C")?;
    for servers in [server::FOR_REDIS, server::FOR_ZOOKEEPER, server::FOR_MARIADB] {
        install::servers(servers)?;
    }
    let mut build = cargo(&["build", "--release", "-p", "lockkit-bench"]);
    if options.arguments.iter().any(|word| word == "--peer" || word.starts_with("--peer=")) {
        build.args(["--features", "rslock"]);
    }
    step("build", &mut build)?;
    let mut stores = Stores::start(options.quick)?;
    stores.urls = chosen(stores.urls, &options.stores)?;
    if signals.pending().next().is_some() {
        bail!("interrupted");
    }
    let mut command = Command::new(target().join("release/lockkit-bench"));
    for (label, url) in &stores.urls {
        command.arg("--url").arg(format!("{label}={url}"));
    }
    if options.quick {
        command.arg("--quick");
    }
    if !options.arguments.iter().any(|word| word == "--out" || word.starts_with("--out=")) {
        command.arg("--out").arg(folder());
    }
    command.args(&options.arguments);
    // The program has its own process group, so it gets a Ctrl-C only once, from this program.
    let child = command.process_group(0).spawn();
    let status = until_ended(
        child.with_context(|| format!("could not start {}", shown(&command)))?,
        signals,
    )?;
    if !status.success() {
        bail!("lockkit-bench failed ({status})");
    }
    Ok(())
}

/// The stores that the user named, or all stores if the user named none.
fn chosen(stores: Vec<(String, String)>, names: &[String]) -> Result<Vec<(String, String)>> {
    let is_meant = |name: &str, label: &str| {
        label.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let labels: Vec<_> = stores.iter().map(|(label, _)| label.clone()).collect();
    for name in names {
        if !labels.iter().any(|label| is_meant(name, label)) {
            bail!("this run has no store {name}; it has {}", labels.join(", "));
        }
    }
    let is_wanted =
        |label: &str| names.is_empty() || names.iter().any(|name| is_meant(name, label));
    Ok(stores.into_iter().filter(|(label, _)| is_wanted(label)).collect())
}

fn folder() -> PathBuf {
    target().join("bench")
}

/// Waits for the program, and forwards signals to it.
fn until_ended(mut child: Child, mut signals: Signals) -> Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    let handle = signals.handle();
    let passing = thread::spawn(move || {
        for signal in &mut signals {
            let signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
            // The program may have ended by itself just now.
            let _ = kill_process(pid, signal);
        }
    });
    let status = child.wait().context("lockkit-bench");
    handle.close();
    let _ = passing.join();
    status
}

/// Servers that run as long as this value lives, and the stores on them.
struct Stores {
    urls: Vec<(String, String)>,
    _redis: Vec<RedisServer>,
    _zookeeper: ZooKeeperServer,
    _sql: Vec<SqlServer>,
}

impl Stores {
    /// Starts the servers. All except the first Redis wait for the disk, as users of locks need.
    fn start(is_quick: bool) -> Result<Self> {
        let mut urls = Vec::new();
        let mut redis = vec![RedisServer::start()?];
        urls.push(("redis".to_owned(), redis[0].url()));
        if !is_quick {
            let durable =
                RedisServer::start_with(["--appendonly", "yes", "--appendfsync", "always"])?;
            urls.push(("redis-durable".to_owned(), durable.url()));
            redis.push(durable);
        }
        let zookeeper = ZooKeeperServer::start_with(ZooKeeperOptions::default().with_durable())?;
        urls.push(("zookeeper".to_owned(), zookeeper.url()));
        if !is_quick {
            // One folder cannot contain fair and unfair locks.
            urls.push((
                "zookeeper-unfair".to_owned(),
                format!("{}?fair=false&prefix=lockkit-unfair", zookeeper.url()),
            ));
        }
        let mut flavors = vec![SqlFlavor::MariaDb];
        if !is_quick {
            let mysql = mysql::offer()?;
            mysql.warn();
            if matches!(mysql, mysql::Availability::There) {
                flavors.push(SqlFlavor::MySql);
            }
        }
        let mut sql = Vec::new();
        for flavor in flavors {
            let server = SqlServer::start_with(flavor, ["--innodb-flush-log-at-trx-commit=1"])?;
            let name = flavor.to_string().to_ascii_lowercase();
            for strategy in ["optimistic", "pessimistic"] {
                // Two strategies cannot share a set of tables.
                let url =
                    format!("{}?strategy={strategy}&table_prefix=lockkit_{strategy}", server.url());
                urls.push((format!("{name}-{strategy}"), url));
            }
            sql.push(server);
        }
        Ok(Self { urls, _redis: redis, _zookeeper: zookeeper, _sql: sql })
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::{SIGUSR1, SIGUSR2};

    use super::*;

    #[test]
    fn a_name_selects_all_names_that_begin_with_it() {
        let stores = ["redis", "redis-durable", "mysql-optimistic"]
            .map(|label| (label.to_owned(), String::new()));
        let labels = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            chosen(stores.to_vec(), &names)
                .map(|stores| stores.into_iter().map(|(label, _)| label).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(labels(&[]).unwrap().len(), 3);
        assert_eq!(labels(&["redis"]).unwrap(), ["redis", "redis-durable"]);
        assert_eq!(
            labels(&["mysql", "redis-durable"]).unwrap(),
            ["redis-durable", "mysql-optimistic"]
        );
        let error = labels(&["redi"]).unwrap_err();
        assert_eq!(
            error,
            "this run has no store redi; it has redis, redis-durable, mysql-optimistic"
        );
    }

    #[test]
    fn the_status_of_the_command_is_reported_and_the_watch_ends_with_it() {
        // All tests run in this process and receive its signals. So this test uses a signal that no
        // other test sends or waits for.
        let signals = Signals::new([SIGUSR1]).unwrap();
        let child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        assert_eq!(until_ended(child, signals).unwrap().code(), Some(3));
    }

    #[test]
    fn a_signal_is_passed_on() {
        let signals = Signals::new([SIGUSR2]).unwrap();
        let script = "trap 'exit 7' USR2; kill -USR2 $PPID; while :; do sleep 0.05; done";
        let child = Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap();
        assert_eq!(until_ended(child, signals).unwrap().code(), Some(7));
    }
}
