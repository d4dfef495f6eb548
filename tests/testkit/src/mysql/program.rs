//! Finds the installed servers, and how to call each of them.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use anyhow::{Context as _, Error, Result, bail};

use super::{MYSQL_URL_VARIABLE, SqlFlavor};
use crate::cache;

/// The variable that names the folder of an unpacked MySQL. The default is a folder in the user's
/// cache folder.
pub const MYSQL_HOME_VARIABLE: &str = "LOCKKIT_TEST_MYSQL_HOME";

/// Debian keeps daemons where the PATH of an ordinary user doesn't look.
const DAEMON_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// The path of the server in a Debian package, under the folder that it is unpacked to.
const UNPACKED_SERVER: &str = "usr/sbin/mysqld";

const NO_MARIADB: &str = "MariaDB is not installed. This command installs it, without a service: \
                          apt-get install --no-install-recommends mariadb-server-core mariadb-client-core";

/// A server's program with the arguments that its location needs.
#[derive(Clone, Debug)]
pub(super) struct SqlProgram {
    pub(super) flavor: SqlFlavor,
    pub(super) path: PathBuf,
    /// Come before the server's own arguments: with them a loader loads the server.
    loader: Vec<OsString>,
    /// Say where the server's files are.
    places: Vec<OsString>,
    /// For example `10.11.19-MariaDB-0+deb12u1`.
    pub(super) version: String,
}

impl SqlProgram {
    /// Looks for the server, until this process has found it once.
    pub(super) fn find(flavor: SqlFlavor) -> Result<Self, String> {
        static MARIADB: OnceLock<SqlProgram> = OnceLock::new();
        static MYSQL: OnceLock<SqlProgram> = OnceLock::new();
        let (found, find): (_, fn() -> _) = match flavor {
            SqlFlavor::MariaDb => (&MARIADB, find_mariadb),
            SqlFlavor::MySql => (&MYSQL, find_mysql),
        };
        if let Some(program) = found.get() {
            return Ok(program.clone());
        }
        let program = find()?;
        Ok(found.get_or_init(|| program).clone())
    }

    /// The arguments that run the server without the configuration of any user.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let first = self.loader.iter().cloned().chain(["--no-defaults".into()]);
        first.chain(self.places.iter().cloned()).collect()
    }

    /// The same program, run by the command `wrapper`.
    pub(super) fn wrapped(self, mut wrapper: Vec<OsString>) -> Self {
        if wrapper.is_empty() {
            return self;
        }
        let path = wrapper.remove(0).into();
        let loader = wrapper.into_iter().chain([self.path.into()]).chain(self.loader).collect();
        Self { path, loader, ..self }
    }

    /// The program that makes a data folder. MariaDB has a separate one.
    pub(super) fn installer(&self) -> Result<Command> {
        match self.flavor {
            SqlFlavor::MariaDb => {
                let mut command = Command::new(find("mariadb-install-db").context(NO_MARIADB)?);
                command.args(["--no-defaults", "--skip-test-db"]);
                Ok(command)
            }
            SqlFlavor::MySql => {
                let mut command = Command::new(&self.path);
                command.args(self.arguments()).arg("--initialize-insecure");
                Ok(command)
            }
        }
    }

    fn installed(flavor: SqlFlavor, path: PathBuf) -> Result<Self> {
        Self { flavor, path, loader: Vec::new(), places: Vec::new(), version: String::new() }
            .with_version()
    }

    /// A MySQL that was built for another release of the system than this one. It comes with its
    /// own libraries, even the loader, and looks for its files in the wrong places.
    fn unpacked(home: &Path) -> Result<Self> {
        let server = home.join(UNPACKED_SERVER);
        let libraries = child(&home.join("usr/lib"), |name| name.ends_with("-linux-gnu"))?;
        let loader = child(&libraries, |name| name.starts_with("ld-linux"))?;
        let place = |name: &str, folder: &str| -> OsString {
            format!("--{name}={}", home.join(folder).display()).into()
        };
        let program = Self {
            flavor: SqlFlavor::MySql,
            path: loader,
            loader: vec!["--library-path".into(), libraries.into(), server.into()],
            places: vec![
                place("basedir", "usr"),
                place("lc-messages-dir", "usr/share/mysql"),
                place("character-sets-dir", "usr/share/mysql/charsets"),
                place("plugin-dir", "usr/lib/mysql/plugin"),
            ],
            version: String::new(),
        };
        program.with_version()
    }

    /// Asks the program for its version: a program that is called mysqld may be a MariaDB.
    fn with_version(mut self) -> Result<Self> {
        let mut command = Command::new(&self.path);
        let output = command.args(self.arguments()).arg("--version").output();
        let output = output.with_context(|| format!("{} can't be started", self.path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))
        let version = text.split_once("Ver ").and_then(|(_, rest)| rest.split_whitespace().next());
        let Some(version) = version.filter(|_| output.status.success()) else {
            bail!(
                "{} --version: {text}{}",
                self.path.display(),
                String::from_utf8_lossy(&output.stderr)
            );
        };
        if text.contains("MariaDB") != (self.flavor == SqlFlavor::MariaDb) {
            bail!("{} is no {}: {}", self.path.display(), self.flavor, text.trim());
        }
        version.clone_into(&mut self.version);
        Ok(self)
    }
}

/// Checks whether a MySQL (not a MariaDB) can be started.
///
/// # Errors
/// No MySQL can be started. The text says why, and how to get one.
pub fn mysql_is_there() -> Result<(), String> {
    SqlProgram::find(SqlFlavor::MySql).map(drop)
}

/// The version of the MySQL that was unpacked to a folder.
///
/// # Errors
/// There is no MySQL, or it does not run here.
pub fn unpacked_mysql(home: &Path) -> Result<String> {
    SqlProgram::unpacked(home).map(|program| program.version)
}

/// The folder that a MySQL is unpacked to where none is installed: `LOCKKIT_TEST_MYSQL_HOME`, or
/// `lockkit/mysql` in the user's cache folder.
///
/// # Errors
/// `LOCKKIT_TEST_MYSQL_HOME`, `XDG_CACHE_HOME` and `HOME` are all unset.
pub fn mysql_home() -> Result<PathBuf> {
    match cache::variable(MYSQL_HOME_VARIABLE) {
        Some(home) => Ok(home),
        None => Ok(cache::folder()?.join("mysql")),
    }
}

fn find_mariadb() -> Result<SqlProgram, String> {
    let server = find("mariadbd").ok_or_else(|| {
        format!("{NO_MARIADB}\nOr set {MYSQL_URL_VARIABLE} to the URL of a server of your own")
    })?;
    SqlProgram::installed(SqlFlavor::MariaDb, server).map_err(shown)
}

fn find_mysql() -> Result<SqlProgram, String> {
    // A MariaDB under this name is no error.
    if let Some(program) =
        find("mysqld").and_then(|path| SqlProgram::installed(SqlFlavor::MySql, path).ok())
    {
        return Ok(program);
    }
    let home = mysql_home().map_err(shown)?;
    if !home.join(UNPACKED_SERVER).is_file() {
        return Err(format!(
            "No MySQL is installed, and none is in {}. `cargo xtask test` fetches one from Debian; any mysqld on the PATH \
             will do, too. Or set {MYSQL_URL_VARIABLE} to the URL of a server of your own",
            home.display()
        ));
    }
    SqlProgram::unpacked(&home).map_err(shown)
}

fn shown(error: Error) -> String {
    format!("{error:#}")
}

fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(DAEMON_FOLDERS.map(PathBuf::from));
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

/// The first entry of a folder whose name fits.
fn child(folder: &Path, is_it: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("can't read {}", folder.display()))?;
    let mut found = entries
        .filter_map(|entry| entry.ok())
        .filter(|entry| entry.file_name().to_str().is_some_and(&is_it));
    let entry = found
        .next()
        .with_context(|| format!("{} is not what was unpacked there", folder.display()))?;
    Ok(entry.path())
}
