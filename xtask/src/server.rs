//! The servers that the tests need: how to tell that one is there, and which Debian package holds it.

use std::{
    env,
    ffi::OsStr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A server that the tests start for themselves.
#[derive(Debug)]
pub(crate) struct Server {
    /// What people call it.
    pub(crate) name: &'static str,
    /// Any one of these programs is enough.
    pub(crate) programs: &'static [&'static str],
    /// The smallest Debian package that holds one of the programs and sets up no service.
    pub(crate) package: &'static str,
    /// Set: the tests use the user's own server, and nothing is started or installed.
    pub(crate) url_variable: &'static str,
}

/// Every server of the test suite.
pub(crate) const SERVERS: &[Server] = &[Server {
    name: "Redis",
    // One binary in Debian, under either name: it is the server when it is called `redis-server`. The package of
    // that name adds nothing but a service that starts at boot.
    programs: &["redis-server", "redis-check-rdb"],
    package: "redis-tools",
    url_variable: "LOCKKIT_TEST_REDIS_URL",
}];

/// Debian keeps daemons where an ordinary user's PATH doesn't look.
const DAEMON_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

impl Server {
    /// Whether the tests could run now.
    pub(crate) fn is_there(&self) -> bool {
        env::var_os(self.url_variable).is_some_and(|url| !url.is_empty()) || self.is_in(&search_path())
    }

    fn is_in(&self, folders: &[PathBuf]) -> bool {
        self.programs.iter().any(|program| find(OsStr::new(program), folders).is_some())
    }
}

/// Where a program is, if it is installed.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    find(OsStr::new(name), &search_path())
}

fn search_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(DAEMON_FOLDERS.map(PathBuf::from)).collect()
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

    const ANY: Server = Server {
        name: "Any",
        programs: &["one", "other"],
        package: "any",
        url_variable: "LOCKKIT_TEST_ANY_URL",
    };

    #[test]
    fn any_one_of_the_programs_is_enough() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        assert!(!ANY.is_in(&folders));
        let file = folder.path().join("other");
        fs::write(&file, "").unwrap();
        assert!(!ANY.is_in(&folders), "a file that can't be run is no program");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(ANY.is_in(&folders));
    }

    #[test]
    fn a_folder_is_no_program() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("one")).unwrap();
        assert!(!ANY.is_in(&[folder.path().to_owned()]));
    }
}
