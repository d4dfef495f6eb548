//! Fetches MySQL. Debian's releases have only MariaDB. MySQL is in Debian's unstable suite, whose
//! packages can't be installed on a release. They run from a folder, with their own libraries.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    folder::{beside, remove},
    run::output,
    server::find_program,
};

const PACKAGE: &str = "mysql-server-core";
/// Prefixes of dependencies that a server does not need, such as the needs of Perl scripts.
const NOT_NEEDED: [&str; 5] = ["perl", "libperl", "libgdbm", "libdb5", "gcc-"];
/// Debian's own keys, on a system that has them.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// This file marks a folder as ours, and names the version in it.
const VERSION_FILE: &str = "lockkit-version";

/// Whether MySQL is available for the tests.
#[must_use]
#[derive(Debug)]
pub(crate) enum Availability {
    There,
    /// MySQL is missing, for this reason.
    Missing(String),
}

impl Availability {
    /// Warns that some tests are skipped.
    pub(crate) fn warn(&self) {
        if let Self::Missing(reason) = self {
            let line = "=".repeat(80);
            eprintln!(
                "\n{line}\nWARNING: MySQL is missing; tests for MySQL and MariaDB run only on \
                 MariaDB.\n{reason}\n{line}"
            );
        }
    }
}

/// Whether the tests already have MySQL: a program to start, or the user's own server.
pub(crate) fn look() -> Availability {
    if env::var_os(lockkit_fixture::MYSQL_URL_VARIABLE).is_some() {
        return Availability::There;
    }
    match lockkit_fixture::mysql_is_there() {
        Ok(()) => Availability::There,
        Err(_) => Availability::Missing("`cargo xtask test --all` fetches one.".to_owned()),
    }
}

/// As [`offer`], but does nothing if the tests use the user's own server.
///
/// # Errors
/// As for [`offer`].
pub(crate) fn offer_to_tests() -> Result<Availability> {
    match look() {
        Availability::There => Ok(Availability::There),
        Availability::Missing(_) => offer(),
    }
}

/// Makes sure that MySQL can be started, and fetches it if it is missing. If it can't be fetched,
/// the tests run without it.
///
/// # Errors
/// The user pressed Ctrl-C, which must end the whole run.
pub(crate) fn offer() -> Result<Availability> {
    if lockkit_fixture::mysql_is_there().is_ok() {
        return Ok(Availability::There);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    // Ctrl-C also ends the programs that this one runs. This program continues, to clean up.
    let watches = [SIGHUP, SIGINT, SIGTERM]
        .map(|signal| signal_hook::flag::register(signal, Arc::clone(&interrupted)));
    let start = Instant::now();
    let fetched = fetch();
    for watch in watches {
        signal_hook::low_level::unregister(watch.context("could not watch for Ctrl-C")?);
    }
    if interrupted.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(match fetched {
        Ok(version) => {
            println!("    MySQL {version}: ok, {:.1} s", start.elapsed().as_secs_f64());
            Availability::There
        }
        Err(error) => Availability::Missing(format!("{error:#}")),
    })
}

fn fetch() -> Result<String> {
    let home = lockkit_fixture::mysql_home()?;
    let Some(apt) = find_program("apt-get") else {
        bail!("this system is not Debian; install MySQL's server, so that mysqld is on the PATH");
    };
    println!("\n==> fetching MySQL from Debian (50 MB, once) to {}", home.display());
    let fetch = Fetch { apt: vec![apt.into()], check: lockkit_fixture::unpacked_mysql, home };
    fetch.run()
}

/// Fetches MySQL. Tests replace its parts.
#[derive(Debug)]
struct Fetch {
    apt: Vec<OsString>,
    /// Returns the version of the MySQL in a folder, if it runs.
    check: fn(&Path) -> Result<String>,
    home: PathBuf,
}

impl Fetch {
    /// Fills the folder, or leaves it as it was.
    fn run(&self) -> Result<String> {
        let home = &self.home;
        let is_ours = home.join(VERSION_FILE).exists();
        let is_empty = fs::read_dir(home).map_or(true, |mut entries| entries.next().is_none());
        if !is_ours && !is_empty {
            bail!("{} contains other files", home.display());
        }
        let parent = home.parent().context("the folder for MySQL has no parent")?;
        fs::create_dir_all(parent)
            .with_context(|| format!("could not create {}", parent.display()))?;
        // Only one process does this at a time. The lock ends when its file is closed, for any
        // reason.
        let lock = File::create(beside(home, "lock"))?;
        lock.lock()?;
        if let Ok(version) = (self.check)(home) {
            return Ok(version);
        }
        let unfinished = beside(home, "unfinished");
        remove(&unfinished)?;
        let done = self.fill(&unfinished).and_then(|version| {
            remove(home)?;
            fs::rename(unfinished.join("root"), home)?;
            Ok(version)
        });
        remove(&unfinished)?;
        done
    }

    fn fill(&self, work: &Path) -> Result<String> {
        let parts = work.join("sources");
        let archives = work.join("archives");
        let root = work.join("root");
        for folder in
            [&parts, &archives, &root, &work.join("lists/partial"), &work.join("archives/partial")]
        {
            fs::create_dir_all(folder)
                .with_context(|| format!("could not create {}", folder.display()))?;
        }
        // This apt must assume that no package is installed.
        fs::write(work.join("status"), "")?;
        fs::write(work.join("apt.conf"), configuration(work))?;
        fs::write(parts.join("unstable.sources"), self.source()?)?;
        output(self.apt_in(work).args(["-qq", "update"]))?;
        let plan = output(
            self.apt_in(work)
                .args(["-qq", "-y", "--no-install-recommends", "--print-uris"])
                .args(["install", PACKAGE]),
        )?;
        let packages = needed(&plan);
        if packages.is_empty() {
            bail!("apt-get names no package for {PACKAGE}");
        }
        output(self.apt_in(work).args(["-qq", "download"]).args(packages).current_dir(&archives))?;
        for archive in fs::read_dir(&archives)? {
            let archive = archive?.path();
            if archive.extension() == Some(OsStr::new("deb")) {
                output(Command::new("dpkg-deb").arg("--extract").args([&archive, &root]))?;
            }
        }
        let version = (self.check)(&root)?;
        fs::write(root.join(VERSION_FILE), format!("{version}\n"))?;
        Ok(version)
    }

    /// The unstable suite of the mirror that this machine uses.
    fn source(&self) -> Result<String> {
        let mut query = self.apt();
        query.args([
            "indextargets",
            "--format",
            "$(ORIGIN) $(LABEL) $(REPO_URI)",
            "Created-By: Packages",
        ]);
        let targets = output(&mut query)?;
        let mirror = targets.lines().find_map(|line| line.strip_prefix("Debian Debian "));
        let Some(mirror) = mirror else {
            bail!("apt knows no mirror of Debian; run `apt-get update` as root first");
        };
        // Without this file, apt's own trusted keys apply.
        let key =
            if Path::new(KEYS).is_file() { format!("Signed-By: {KEYS}\n") } else { String::new() };
        Ok(format!(
            "Types: deb\nURIs: {mirror}\nSuites: unstable\nComponents: main\nTargets: \
             Packages\n{key}"
        ))
    }

    fn apt(&self) -> Command {
        let mut words = self.apt.iter();
        let mut command =
            Command::new(words.next().map_or("apt-get".as_ref(), |word| word.as_os_str()));
        command.args(words);
        command
    }

    /// An apt that neither reads nor changes the system's data, except for its proxies and keys.
    fn apt_in(&self, work: &Path) -> Command {
        let mut command = self.apt();
        command.arg("-c").arg(work.join("apt.conf"));
        command
    }
}

/// The configuration of such an apt. apt reads it last.
fn configuration(work: &Path) -> String {
    let place = |path: &str| work.join(path).display().to_string();
    let options = [
        ("Dir::Etc::SourceList", "/dev/null".to_owned()),
        ("Dir::Etc::SourceParts", place("sources")),
        ("Dir::Etc::Preferences", "/dev/null".to_owned()),
        ("Dir::Etc::PreferencesParts", place("empty")),
        ("Dir::State", place("")),
        ("Dir::State::Lists", place("lists")),
        ("Dir::State::Status", place("status")),
        ("Dir::Cache", place("")),
        ("Dir::Cache::Archives", place("archives")),
        ("APT::Default-Release", String::new()),
        ("APT::Sandbox::User", "root".to_owned()),
        // By default an update that reached no server is a success.
        ("APT::Update::Error-Mode", "any".to_owned()),
        ("Acquire::Languages", "none".to_owned()),
        ("Acquire::Retries", "2".to_owned()),
        ("Acquire::http::Timeout", "20".to_owned()),
        ("Acquire::https::Timeout", "20".to_owned()),
    ];
    options.map(|(name, value)| format!("{name} \"{value}\";\n")).concat()
}

/// The packages to fetch. The lines of `apt-get --print-uris` are: 'URI'
/// name_version_architecture.deb size hash
fn needed(plan: &str) -> Vec<&str> {
    let archives = plan.lines().filter_map(|line| line.split_whitespace().nth(1));
    let names = archives.filter_map(|archive| archive.split_once('_').map(|(name, _)| name));
    names.filter(|name| !NOT_NEEDED.iter().any(|start| name.starts_with(start))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An apt-get that knows a mirror, one needed package and one that is not needed. It
    /// "downloads" by `download`.
    fn fetch(download: &str) -> (tempfile::TempDir, Fetch) {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("apt-get");
        let log = folder.path().join("log");
        let text = format!(
            r#"echo "$*" >> {}
            case "$*" in
            *indextargets*) printf 'Debian Debian-Security s:/\nOther Debian o:/\nDebian Debian m:/\n' ;;
            *print-uris*) echo "'m:/a' perl-base_5_all.deb 1 M"; echo "'m:/b' mysql-server-core_9_amd64.deb 2 M" ;;
            *download*) {download} ;;
            esac"#,
            log.display()
        );
        fs::write(&script, text).unwrap();
        let home = folder.path().join("cache/mysql");
        (folder, Fetch { apt: vec!["sh".into(), script.into()], check: version, home })
    }

    /// Accepts any file as a MySQL.
    fn version(folder: &Path) -> Result<String> {
        Ok(fs::read_to_string(folder.join("mysqld"))?)
    }

    /// Makes a package that contains a file with this text, in the working folder.
    fn package(text: &str) -> String {
        format!(
            "mkdir -p p/DEBIAN; printf 'Package: p\\nVersion: 1\\nArchitecture: all\\nMaintainer: \
             m\\nDescription: d\\n' > p/DEBIAN/control; printf {text} > p/mysqld; dpkg-deb --build \
             p p.deb"
        )
    }

    /// Only the lock is left beside the folder.
    fn assert_tidy(fetch: &Fetch) {
        let beside = fs::read_dir(fetch.home.parent().unwrap()).unwrap();
        let mut names: Vec<_> = beside.map(|entry| entry.unwrap().file_name()).collect();
        names.retain(|name| name != "mysql");
        assert_eq!(names, ["mysql.lock"]);
    }

    #[test]
    fn needed_packages_are_fetched_from_the_mirror_and_unpacked() {
        let (folder, fetch) = fetch(&package("9.9"));
        assert_eq!(fetch.run().unwrap(), "9.9");
        assert_eq!(version(&fetch.home).unwrap(), "9.9");
        assert_eq!(fs::read_to_string(fetch.home.join(VERSION_FILE)).unwrap(), "9.9\n");
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        assert!(log.contains("download mysql-server-core\n"), "{log}");
        assert!(fetch.source().unwrap().contains("URIs: m:/\nSuites: unstable\n"));
        assert_tidy(&fetch);
    }

    #[test]
    fn a_failed_download_leaves_nothing() {
        let (_folder, fetch) = fetch("echo no network >&2; exit 100");
        let error = fetch.run().unwrap_err().to_string();
        assert!(
            error.contains("download mysql-server-core failed") && error.contains("no network"),
            "{error}"
        );
        assert!(!fetch.home.exists());
        assert_tidy(&fetch);
    }

    #[test]
    fn a_server_that_does_not_run_is_not_kept() {
        let (_folder, mut fetch) = fetch(&package("9.9"));
        fetch.check = |_| bail!("it does not run here");
        assert_eq!(fetch.run().unwrap_err().to_string(), "it does not run here");
        assert!(!fetch.home.exists());
        assert_tidy(&fetch);
    }

    #[test]
    fn unfinished_downloads_restart_and_finished_ones_are_kept() {
        let (folder, fetch) = fetch(&package("9.9"));
        let unfinished = beside(&fetch.home, "unfinished");
        fs::create_dir_all(unfinished.join("root")).unwrap();
        fs::write(unfinished.join("root/mysqld"), "8.8").unwrap();
        assert_eq!(fetch.run().unwrap(), "9.9");
        fs::remove_file(folder.path().join("apt-get")).unwrap();
        assert_eq!(fetch.run().unwrap(), "9.9");
        assert_tidy(&fetch);
    }

    #[test]
    fn a_foreign_folder_is_left_alone() {
        let (_folder, fetch) = fetch(&package("9.9"));
        fs::create_dir_all(&fetch.home).unwrap();
        fs::write(fetch.home.join("precious"), "").unwrap();
        let error = fetch.run().unwrap_err().to_string();
        assert!(error.contains("contains other files"), "{error}");
        assert!(fetch.home.join("precious").exists());
    }
}
