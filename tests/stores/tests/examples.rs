//! Runs each example on each store that has the needed abilities. An example ends with an error if
//! a promise was broken.
//!
//! The examples run as the programs that `cargo test --workspace` built beside this one, with the
//! same features.

use std::{
    any::Any,
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs,
    io::{Read as _, Seek as _},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, LazyLock},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_fixture::{
    MYSQL_URL_VARIABLE, SqlFlavor, SqlServer, ZooKeeperOptions, redis_from_env_or_start,
    zookeeper_from_env_or_start,
};

/// The examples that take the URL of any store.
const EXAMPLES: [&str; 14] = [
    "blocking",
    "cache_refresh",
    "hold_limits",
    "inventory",
    "leader",
    "let_go",
    "lock_all",
    "once",
    "process_gate",
    "quickstart",
    "rate_limit",
    "reentrant",
    "telemetry",
    "ticket",
];
/// Two examples take several URLs, one has its own store, and one reads its URL from a variable.
const OTHERS: [&str; 4] = ["custom_backend", "quorum", "settings", "swap_backend"];

/// The examples that a store can't run, and the text of its refusal.
const LEFT_OUT: [(&str, &str, &str); 5] = [
    ("file", "ticket", NO_TICKETS),
    ("mariadb-pessimistic", "cache_refresh", "does not support read/write locks"),
    ("mariadb-pessimistic", "rate_limit", "does not support semaphores"),
    ("mariadb-pessimistic", "ticket", NO_TICKETS),
    ("zookeeper", "ticket", NO_TICKETS),
];
const NO_TICKETS: &str = "does not support tickets for another process";

/// The bound for an example, which takes a few seconds.
const LONGEST: Duration = Duration::from_secs(60);

fn main() {
    let stores = stores();
    let mut trials = vec![Trial::test("every_example_is_run_here", every_example_is_run_here)];
    for (store, place) in &stores {
        for example in EXAMPLES {
            let place = Arc::clone(place);
            let store = *store;
            let case = move || on(store, example, url(&place)?);
            trials.push(Trial::test(format!("{store}::{example}"), case));
        }
    }
    let places: Vec<_> = stores.into_iter().map(|(_, place)| place).collect();
    let mariadb = Arc::clone(&places[1]);
    trials.push(Trial::test("own_transaction_on_mariadb", move || {
        // This example is in the package of its backend. It takes the URL of the driver.
        let url = url(&mariadb)?;
        let plain = url.split('?').next().unwrap_or_default().to_owned();
        succeeds("own_transaction", &[plain])
    }));
    let members = places.clone();
    trials.push(Trial::test("swap_backend_on_all_stores", move || {
        succeeds("swap_backend", &urls(&places)?)
    }));
    trials.push(Trial::test("quorum_of_three_kinds_of_stores", move || {
        let plain = |c: char| c.is_ascii_alphanumeric();
        let encode =
            |c: char| if plain(c) { c.to_string() } else { format!("%{:02x}", u32::from(c)) };
        let member =
            |url: &String| format!("member={}", url.chars().map(encode).collect::<String>());
        let members: Vec<_> = urls(&members[..3])?.iter().map(member).collect();
        succeeds("quorum", &[format!("quorum://?{}", members.join("&"))])
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn on(store: &str, example: &str, url: String) -> Result<(), Failed> {
    let Some((_, _, words)) = LEFT_OUT.iter().find(|(s, e, _)| (*s, *e) == (store, example)) else {
        return succeeds(example, &[url]);
    };
    let (success, said) = run(example, &[url])?;
    if success || !said.contains(words) {
        return Err(format!("{example} should have said that {store} {words}:\n{said}").into());
    }
    Ok(())
}

fn every_example_is_run_here() -> Result<(), Failed> {
    let mut found = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["examples", "examples/service/examples"].map(|folder| root.join(folder));
    let entries = folders.iter().map(fs::read_dir).collect::<Result<Vec<_>, _>>()?;
    for entry in entries.into_iter().flatten() {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("rs")) || path.join("main.rs").exists() {
            found.insert(
                path.file_stem()
                    .and_then(OsStr::to_str)
                    .ok_or("a name that is no text")?
                    .to_owned(),
            );
        }
    }
    let known: BTreeSet<_> =
        EXAMPLES.iter().chain(&OTHERS).map(|name| (*name).to_owned()).collect();
    assert_eq!(found, known, "EXAMPLES or OTHERS is out of date");
    Ok(())
}

/// A store for all examples. The first example that needs it starts it, and it stops after the
/// last.
type Shared = Arc<LazyLock<Result<Place, Failed>>>;

struct Place {
    url: String,
    _server: Box<dyn Any + Send + Sync>,
}

fn stores() -> [(&'static str, Shared); 5] {
    let shared = |start: fn() -> Result<Place, Failed>| Arc::new(LazyLock::new(start));
    [
        ("redis", shared(redis)),
        ("mariadb", shared(|| mariadb("optimistic"))),
        ("file", shared(folder)),
        ("mariadb-pessimistic", shared(|| mariadb("pessimistic"))),
        ("zookeeper", shared(zookeeper)),
    ]
}

fn redis() -> Result<Place, Failed> {
    let redis = redis_from_env_or_start()?;
    Ok(Place { url: with(&redis.url, "prefix=lockkit-examples"), _server: Box::new(redis) })
}

fn zookeeper() -> Result<Place, Failed> {
    let zookeeper = zookeeper_from_env_or_start(ZooKeeperOptions::default())?;
    let url = with(&zookeeper.url, "prefix=lockkit-examples&session_timeout=1500ms");
    Ok(Place { url, _server: Box::new(zookeeper) })
}

/// The two strategies never share a table.
fn mariadb(strategy: &str) -> Result<Place, Failed> {
    let (url, server) = match env::var(MYSQL_URL_VARIABLE) {
        Ok(url) => (url, None),
        Err(_) => {
            let server = SqlServer::start(SqlFlavor::MariaDb)?;
            (server.url(), Some(server))
        }
    };
    let url = with(&url, &format!("strategy={strategy}&table_prefix=lockkit_examples_{strategy}"));
    Ok(Place { url, _server: Box::new(server) })
}

fn folder() -> Result<Place, Failed> {
    let folder = tempfile::tempdir()?;
    Ok(Place { url: format!("file://{}", folder.path().display()), _server: Box::new(folder) })
}

fn with(url: &str, parameters: &str) -> String {
    format!("{url}{}{parameters}", if url.contains('?') { '&' } else { '?' })
}

fn url(place: &Shared) -> Result<String, Failed> {
    (***place).as_ref().map(|place| place.url.clone()).map_err(Failed::clone)
}

fn urls(places: &[Shared]) -> Result<Vec<String>, Failed> {
    places.iter().map(url).collect()
}

fn succeeds(example: &str, arguments: &[String]) -> Result<(), Failed> {
    let (success, said) = run(example, arguments)?;
    if success { Ok(()) } else { Err(format!("{example} failed:\n{said}").into()) }
}

/// Runs an example to its end. Returns whether it succeeded, and all its output.
fn run(example: &str, arguments: &[String]) -> Result<(bool, String), Failed> {
    let program = program(example)?;
    let mut output = tempfile::tempfile()?;
    let mut command = Command::new(program);
    let mut process =
        command.args(arguments).stdout(output.try_clone()?).stderr(output.try_clone()?).spawn()?;
    let end = Instant::now() + LONGEST;
    let status = loop {
        match process.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < end => thread::sleep(Duration::from_millis(10)),
            None => {
                process.kill()?;
                break process.wait()?;
            }
        }
    };
    let mut said = String::new();
    output.rewind()?;
    output.read_to_string(&mut said)?;
    Ok((status.success(), format!("{said}{status}")))
}

fn program(example: &str) -> Result<PathBuf, Failed> {
    let this = env::current_exe()?;
    let folder = this.ancestors().nth(2).ok_or("this program is in no folder")?.join("examples");
    let program = folder.join(example).with_extension(env::consts::EXE_EXTENSION);
    if program.exists() {
        return Ok(program);
    }
    let missing = program.display();
    Err(format!(
        "{missing} is missing; build it: cargo build --workspace --all-features --examples"
    )
    .into())
}
