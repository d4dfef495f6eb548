//! Lists the servers and tools that the tests need: how to find each, and which Debian packages
//! contain it.

use std::{
    env,
    ffi::OsStr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A server that the tests start, or another need of the tests.
#[derive(Debug)]
pub(crate) struct Server {
    /// The common name.
    pub(crate) name: &'static str,
    /// All of these parts must exist.
    pub(crate) parts: &'static [Part],
    /// The smallest Debian packages that contain the parts and set up no service.
    pub(crate) packages: &'static [&'static str],
    /// If this variable is set, the tests use the user's own server, and xtask starts and installs
    /// none.
    pub(crate) url_variable: Option<&'static str>,
    /// Only root can use it, and only on Linux.
    pub(crate) only_for_root: bool,
}

/// A part that is installed or missing.
#[derive(Debug)]
pub(crate) enum Part {
    /// Any one of these programs is enough.
    Program(&'static [&'static str]),
    /// A Java library, in Debian's folder or on the class path in the variable.
    Jar { name: &'static str, class_path_variable: &'static str },
    /// Any one of these files is enough.
    File(&'static [&'static str]),
}

const REDIS: Server = Server {
    name: "Redis",
    // Debian has one binary under both names. Under the name `redis-server` it is the server. The
    // package `redis-server` only adds a service that starts at boot.
    parts: &[Part::Program(&["redis-server", "redis-check-rdb"])],
    packages: &["redis-tools"],
    url_variable: Some("LOCKKIT_TEST_REDIS_URL"),
    only_for_root: false,
};

const ZOOKEEPER: Server = Server {
    name: "ZooKeeper",
    // The library is the server. The packages with the name zookeeper only add scripts, and one of
    // them adds a service.
    parts: &[
        Part::Jar { name: "zookeeper.jar", class_path_variable: "LOCKKIT_TEST_ZK_CLASSPATH" },
        Part::Program(&["java"]),
    ],
    packages: &["libzookeeper-java", "default-jre-headless"],
    url_variable: Some("LOCKKIT_TEST_ZK_URL"),
    only_for_root: false,
};

const MARIADB: Server = Server {
    name: "MariaDB",
    // These are the server, the program that makes its data folder, and a program that this one
    // calls. The package mariadb-server adds a service.
    parts: &[
        Part::Program(&["mariadbd"]),
        Part::Program(&["mariadb-install-db"]),
        Part::Program(&["my_print_defaults"]),
    ],
    packages: &["mariadb-server-core", "mariadb-client-core"],
    url_variable: Some("LOCKKIT_TEST_MYSQL_URL"),
    only_for_root: false,
};

const GALERA: Server = Server {
    name: "Galera (tests of clusters with several primaries)",
    parts: &[Part::File(&lockkit_fixture::GALERA_LIBRARIES)],
    packages: &["galera-4"],
    url_variable: None,
    only_for_root: false,
};

const CURATOR: Server = Server {
    name: "Apache Curator (interoperation tests)",
    parts: &[
        Part::Jar {
            name: "curator-recipes.jar",
            class_path_variable: "LOCKKIT_TEST_CURATOR_CLASSPATH",
        },
        Part::Program(&["javac"]),
    ],
    packages: &["libcurator-recipes-java", "default-jdk-headless"],
    url_variable: None,
    only_for_root: false,
};

const NETWORKS: Server = Server {
    name: "iproute2 (tests that cut the network)",
    parts: &[Part::Program(&["ip"])],
    packages: &["iproute2"],
    url_variable: None,
    only_for_root: true,
};

/// A tool that checks the compose file.
pub(crate) const COMPOSE: Server = Server {
    name: "docker compose",
    parts: &[Part::Program(&["docker-compose"])],
    packages: &["docker-compose"],
    url_variable: None,
    only_for_root: false,
};

/// A tool that checks shell scripts.
pub(crate) const SHELLCHECK: Server = Server {
    name: "shellcheck",
    parts: &[Part::Program(&["shellcheck"])],
    packages: &["shellcheck"],
    url_variable: None,
    only_for_root: false,
};

/// The needs of the everyday tests.
pub(crate) const EVERYDAY: &[&Server] = &[&REDIS, &ZOOKEEPER, &MARIADB, &NETWORKS];
/// The needs of all tests.
pub(crate) const ALL: &[&Server] = &[&REDIS, &ZOOKEEPER, &MARIADB, &NETWORKS, &GALERA, &CURATOR];
/// The needs of a Redis server.
pub(crate) const FOR_REDIS: &[&Server] = &[&REDIS];
/// The needs of a MariaDB server.
pub(crate) const FOR_MARIADB: &[&Server] = &[&MARIADB];
/// The needs of a ZooKeeper server.
pub(crate) const FOR_ZOOKEEPER: &[&Server] = &[&ZOOKEEPER];

/// The servers of native.sh that Debian's packages contain.
pub(crate) const FOR_NATIVE: &[&Server] = &[&REDIS, &ZOOKEEPER, &MARIADB];

/// Debian has daemons in folders that are not in an ordinary user's PATH.
const DAEMON_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// Debian's folder for Java libraries.
const JARS: &str = "/usr/share/java";

impl Server {
    /// Whether the tests can use it now.
    pub(crate) fn is_there(&self) -> bool {
        self.url_variable.is_some_and(is_set)
            || self.parts.iter().all(|part| part.is_in(&search_path(), Path::new(JARS)))
    }

    /// Whether the tests of this user need it.
    pub(crate) fn is_for(&self, is_root: bool) -> bool {
        !self.only_for_root || (is_root && cfg!(target_os = "linux"))
    }
}

impl Part {
    fn is_in(&self, folders: &[PathBuf], jars: &Path) -> bool {
        match self {
            Self::Program(names) => {
                names.iter().any(|name| find(OsStr::new(name), folders).is_some())
            }
            Self::Jar { name, class_path_variable } => {
                is_set(class_path_variable) || jars.join(name).is_file()
            }
            Self::File(paths) => paths.iter().any(|path| Path::new(path).is_file()),
        }
    }
}

fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// The path of a program, if it is installed.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    find(OsStr::new(name), &search_path())
}

fn search_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Java may be installed outside of PATH.
    let java = env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin"));
    env::split_paths(&path).chain(java).chain(DAEMON_FOLDERS.map(PathBuf::from)).collect()
}

fn find(name: &OsStr, folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ANY: Part = Part::Program(&["one", "other"]);

    #[test]
    fn any_one_of_the_programs_is_enough() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        assert!(!ANY.is_in(&folders, folder.path()));
        let file = folder.path().join("other");
        fs::write(&file, "").unwrap();
        assert!(
            !ANY.is_in(&folders, folder.path()),
            "a file that is not executable is not a program"
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(ANY.is_in(&folders, folder.path()));
    }

    #[test]
    fn a_folder_is_no_program() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("one")).unwrap();
        assert!(!ANY.is_in(&[folder.path().to_owned()], folder.path()));
    }

    #[test]
    fn a_jar_is_a_file_in_the_folder_of_jars() {
        let jar = Part::Jar { name: "a.jar", class_path_variable: "LOCKKIT_TEST_NO_SUCH_VARIABLE" };
        let folder = tempfile::tempdir().unwrap();
        assert!(!jar.is_in(&[folder.path().to_owned()], folder.path()));
        fs::write(folder.path().join("a.jar"), "").unwrap();
        assert!(jar.is_in(&[], folder.path()));
    }

    #[test]
    fn only_root_needs_what_only_root_can_use() {
        assert!(!NETWORKS.is_for(false));
        assert_eq!(NETWORKS.is_for(true), cfg!(target_os = "linux"));
        assert!(ALL.iter().filter(|server| server.is_for(false)).count() >= 4);
    }
}
