//! Finds the store, and the names in it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use lockkit::{Kind, LockName, LockOptions, Locker};

use crate::{
    cli::StoreArguments,
    error::{Error, Result},
    renewals::Renewals,
    variables,
};

/// A connected store, and the namespace of the names in it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) locker: Locker,
    /// How the renewals of the locks of `locker` went.
    pub(crate) renewals: Arc<Renewals>,
    prefix: String,
}

impl Store {
    /// Connects to the store that the arguments or the environment name.
    pub(crate) async fn connect(arguments: &StoreArguments) -> Result<Self> {
        Ok(Address::new(arguments)?.connect().await?)
    }

    /// The name as it is in the store.
    pub(crate) fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The name as the user typed it, if it is in the namespace.
    pub(crate) fn short<'a>(&self, name: &'a LockName) -> Option<&'a str> {
        name.as_str().strip_prefix(&self.prefix)
    }

    /// A lock's name in the store.
    pub(crate) fn name(&self, kind: Kind, name: &str) -> Result<LockName> {
        Ok(LockName::new(kind, &self.full(name))?)
    }
}

/// The place of a store. It has no `Debug`, because it may contain a password.
pub(crate) struct Address {
    url: String,
    prefix: String,
}

impl Address {
    /// The store that the arguments or the environment name. There is no default: if three hosts
    /// lacked the URL, each of them would run the job.
    pub(crate) fn new(arguments: &StoreArguments) -> Result<Self> {
        let url = url(arguments)?.ok_or_else(|| {
            let wanted = "no store: give --url, LOCKKIT_URL, LOCKKIT_URL_FILE, or --local for locks of this host alone";
            match env::var_os(variables::MARK) {
                None => Error::new(wanted),
                Some(_) => Error::new(format!(
                    "{wanted}; the lockkit that runs this command does not pass on its URL, \
                     because that may contain a password; set LOCKKIT_URL_FILE, which lockkit \
                     passes on"
                )),
            }
        })?;
        if url.starts_with("memory:") {
            return Err(Error::new(
                "a memory:// store belongs to one process, so every host would run the job; use \
                 another store",
            ));
        }
        let prefix = match arguments.namespace.as_deref() {
            None | Some("") => String::new(),
            Some(namespace) => format!("{namespace}/"),
        };
        Ok(Self { url, prefix })
    }

    /// Connects; it tries once.
    pub(crate) async fn connect(&self) -> lockkit::Result<Store> {
        let renewals = Arc::new(Renewals::default());
        let locker = lockkit::builder(&self.url).await?.observer(renewals.clone()).build();
        Ok(Store { locker, renewals, prefix: self.prefix.clone() })
    }

    /// For how long a wait without a bound outlasts an unreachable store. The library's waits have
    /// the same limit, but the library checks its options only when it has a store. `ttl` has
    /// precedence over the URL's.
    pub(crate) fn patience(&self, ttl: Option<Duration>) -> Duration {
        let mut url = lockkit::url::StoreUrl::parse(&self.url).ok();
        let mut of_url = |name| url.as_mut()?.params.duration(name).ok()?;
        let ttl = ttl.or_else(|| of_url("ttl")).unwrap_or(LockOptions::new().ttl());
        // Without an `op_timeout` in the URL, the library's is at most a third of the ttl.
        let op_timeout = of_url("op_timeout").unwrap_or_default();
        ttl.max(op_timeout.saturating_mul(3))
    }
}

/// The URL that the arguments name, or else the environment; `None` if neither does.
///
/// # Errors
/// The arguments name two stores, or the named file can't be read.
pub(crate) fn url(arguments: &StoreArguments) -> Result<Option<String>> {
    match (arguments.local, &arguments.url, &arguments.url_file) {
        (true, None, None) => local().map(Some),
        (false, Some(url), None) => Ok(Some(url.clone()).filter(|url| !url.is_empty())),
        (false, None, Some(file)) => first_line(file).map(Some),
        (false, None, None) => of_environment(),
        _ => Err(Error::new(
            "the command line names two stores; give one of --url, --url-file and --local",
        )),
    }
}

fn of_environment() -> Result<Option<String>> {
    match env::var_os(variables::URL).filter(|url| !url.is_empty()) {
        Some(url) => match url.into_string() {
            Ok(url) => Ok(Some(url)),
            Err(_) => Err(Error::new("LOCKKIT_URL is not UTF-8")),
        },
        None => {
            env::var_os(variables::URL_FILE).map(|file| first_line(Path::new(&file))).transpose()
        }
    }
}

fn first_line(file: &Path) -> Result<String> {
    let failed = |error| {
        Error::of(format!("could not read the URL from the file {}", file.display()), error)
    };
    let text = fs::read_to_string(file).map_err(failed)?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() {
        return Err(Error::new(format!("the first line of {} is not a URL", file.display())));
    }
    Ok(line.to_owned())
}

/// The URL of this host's locks. Those of root are for all users; another user has its own. Both
/// folders outlast a reboot, because tokens must outlast it.
fn local() -> Result<String> {
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let is_root = rustix::process::geteuid().is_root();
    let folder = local_folder(is_root, variable("XDG_STATE_HOME"), variable("HOME"))?;
    url_of(&folder)
}

fn local_folder(is_root: bool, state: Option<PathBuf>, home: Option<PathBuf>) -> Result<PathBuf> {
    if is_root {
        return Ok(PathBuf::from("/var/lib/lockkit/locks"));
    }
    let state =
        state.filter(|path| path.is_absolute()).or_else(|| Some(home?.join(".local/state")));
    let state =
        state.ok_or_else(|| Error::new("--local: neither XDG_STATE_HOME nor HOME is set"))?;
    Ok(state.join("lockkit/locks"))
}

fn url_of(folder: &Path) -> Result<String> {
    let path = folder
        .to_str()
        .ok_or_else(|| Error::new("--local: the path of the home folder is not UTF-8"))?;
    Ok(format!("file://{}", path.replace('%', "%25").replace('?', "%3F").replace('#', "%23")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_locks_last_over_a_boot_and_are_a_users_own() {
        let path = |text: &str| Some(PathBuf::from(text));
        let folder = |is_root, state, home| {
            local_folder(is_root, state, home).map_err(|error| error.to_string())
        };
        assert_eq!(folder(true, path("/s"), path("/h")), Ok("/var/lib/lockkit/locks".into()));
        assert_eq!(folder(false, path("/s"), path("/h")), Ok("/s/lockkit/locks".into()));
        assert_eq!(
            folder(false, path("s"), path("/h")),
            Ok("/h/.local/state/lockkit/locks".into())
        );
        assert_eq!(folder(false, None, path("/h")), Ok("/h/.local/state/lockkit/locks".into()));
        folder(false, None, None).unwrap_err();
    }

    #[test]
    fn c11_a_folder_of_any_name_is_found_by_its_url() {
        let url = url_of(Path::new("/h/50% ?#/é")).unwrap();
        let parsed = lockkit::url::StoreUrl::parse(&url).unwrap();
        assert_eq!((parsed.scheme(), parsed.path()), ("file", "/h/50% ?#/é"));
    }

    #[test]
    fn a_wait_outlasts_an_outage_of_the_store_like_the_librarys_waits() {
        let patience = |parameters: &str, ttl: Option<u64>| {
            let arguments = StoreArguments {
                url: Some(format!("redis://h/?{parameters}")),
                ..Default::default()
            };
            Address::new(&arguments).unwrap().patience(ttl.map(Duration::from_secs)).as_secs()
        };
        assert_eq!(patience("", None), 30);
        assert_eq!(patience("ttl=10s&keys=raw", None), 10);
        assert_eq!(patience("ttl=10s&op_timeout=4s", None), 12);
        assert_eq!(patience("ttl=10s&op_timeout=4s", Some(60)), 60);
    }
}
