//! Which store, and which names in it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use lockkit::{Kind, LockName, Locker};

use crate::{
    cli::StoreArguments,
    error::{Error, Result},
};

/// A store that is connected, and the namespace that names stand in.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) locker: Locker,
    prefix: String,
}

impl Store {
    /// Connects to the store that the arguments or the environment name. There is no default: each of three hosts that
    /// forgot the URL would run the job.
    pub(crate) async fn connect(arguments: &StoreArguments) -> Result<Self> {
        let url = url(arguments)?;
        let locker = lockkit::connect(&url).await?;
        let prefix = match arguments.namespace.as_deref() {
            None | Some("") => String::new(),
            Some(namespace) => format!("{namespace}/"),
        };
        Ok(Self { locker, prefix })
    }

    /// A name as the store has it.
    pub(crate) fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A name as it was typed, if it is in the namespace.
    pub(crate) fn short<'a>(&self, name: &'a LockName) -> Option<&'a str> {
        name.as_str().strip_prefix(&self.prefix)
    }

    /// A lock's name in the store.
    pub(crate) fn name(&self, kind: Kind, name: &str) -> Result<LockName> {
        Ok(LockName::new(kind, &self.full(name))?)
    }
}

/// The URL that the arguments or the environment name.
pub(crate) fn url(arguments: &StoreArguments) -> Result<String> {
    match (arguments.local, &arguments.url, &arguments.url_file) {
        (true, ..) => local(),
        (false, Some(url), _) if !url.is_empty() => Ok(url.clone()),
        (false, _, Some(file)) => first_line(file),
        (false, ..) => Err(Error::new(
            "no store: give --url, LOCKKIT_URL, LOCKKIT_URL_FILE, or --local for locks of this host alone",
        )),
    }
}

fn first_line(file: &Path) -> Result<String> {
    let failed = |error| Error::of(format!("the file of the URL, {}, can't be read", file.display()), error);
    let text = fs::read_to_string(file).map_err(failed)?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() {
        return Err(Error::new(format!("the first line of {} is no URL", file.display())));
    }
    Ok(line.to_owned())
}

/// Where this host's locks are: root's for all users, another user's own. Neither ends with a boot, as tokens must not.
fn local() -> Result<String> {
    let folder = if rustix::process::geteuid().is_root() {
        PathBuf::from("/var/lib/lockkit/locks")
    } else {
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
        let state = state.filter(|path| path.is_absolute()).or_else(home);
        state
            .ok_or_else(|| Error::new("--local: neither XDG_STATE_HOME nor HOME is set"))?
            .join("lockkit/locks")
    };
    let path =
        folder.to_str().ok_or_else(|| Error::new("--local: the path of the home folder is no UTF-8"))?;
    Ok(format!("file://{}", path.replace('%', "%25").replace('?', "%3F").replace('#', "%23")))
}
