//! The folder of a store, and the paths of a lock's files in it.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use lockkit_core::{Kind, LockName, Result};
use sha2::{Digest as _, Sha256};

use crate::error::from_io;

/// The kinds that have a folder of their own.
pub(crate) const KINDS: [Kind; 4] = [Kind::Election, Kind::Mutex, Kind::RwLock, Kind::Semaphore];
/// The end of a record's file name.
pub(crate) const RECORD: &str = ".json";
const FOLDER_MODE: u32 = 0o770;
/// This leaves room for the hash and the longest ending in the 255 bytes of a file name.
const LONGEST_SLUG: usize = 64;
/// With 128 bits no two names collide by chance. If a user makes two names collide on purpose,
/// lockkit reports an error, because a record contains its name.
const HASH_BYTES: usize = 16;

/// The folder of a store.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    root: PathBuf,
}

/// The paths of a lock's files.
#[derive(Clone, Debug)]
pub(crate) struct LockPaths {
    pub(crate) name: LockName,
    /// `<kind>/<file name without its ending>`.
    pub(crate) key: String,
    pub(crate) gate: PathBuf,
    pub(crate) record: PathBuf,
    pub(crate) note: PathBuf,
}

impl LockPaths {
    /// The path of a new record that is written inside this gate. A process that is stopped inside
    /// a removed gate uses another path for its draft.
    pub(crate) fn draft(&self, gate: u64) -> PathBuf {
        with_ending(&self.record, &format!(".{gate:x}.new"))
    }

    pub(crate) fn note_draft(&self) -> PathBuf {
        with_ending(&self.note, ".new")
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    PathBuf::from(path)
}

impl Folder {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    pub(crate) fn names(&self, kind: Kind) -> PathBuf {
        self.root.join("names").join(kind.as_str())
    }

    /// All folders in which lockkit makes files.
    pub(crate) fn parts(&self) -> impl Iterator<Item = PathBuf> {
        KINDS.map(|kind| self.names(kind)).into_iter().chain([self.sessions()])
    }

    /// Makes the folders that are missing.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn make(&self) -> Result<()> {
        for part in self.parts() {
            let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&part);
            made.map_err(|error| from_io(error, "making the folder", &part))?;
        }
        Ok(())
    }

    pub(crate) fn paths(&self, name: &LockName) -> LockPaths {
        let kind = name.kind();
        let stem = stem(name.as_str());
        let file = |ending| self.names(kind).join(format!("{stem}{ending}"));
        LockPaths {
            name: name.clone(),
            key: format!("{kind}/{stem}"),
            gate: file(".lock"),
            record: file(RECORD),
            note: file(".note"),
        }
    }

    /// The file names of all records of a kind, without their endings.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn stems(&self, kind: Kind) -> Result<Vec<String>> {
        let folder = self.names(kind);
        let listed = list(&folder).map_err(|error| from_io(error, "listing", &folder))?;
        Ok(listed.iter().filter_map(|file| file.strip_suffix(RECORD)).map(str::to_owned).collect())
    }
}

/// The names in a folder; none if the folder does not exist.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    // A name that is not UTF-8 is not lockkit's.
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()));
    names.filter_map(io::Result::transpose).collect()
}

/// A file name of a readable part and a part that distinguishes names.
pub(crate) fn stem(name: &str) -> String {
    let plain =
        |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let slug: String = name.chars().map(plain).take(LONGEST_SLUG).collect();
    let hash = Sha256::digest(name.as_bytes());
    let hash =
        hash.iter().take(HASH_BYTES).fold(0_u128, |hash, byte| hash << 8 | u128::from(*byte));
    // `ls` does not show a file whose name begins with a dot.
    let slug = slug.strip_prefix('.').map_or_else(|| slug.clone(), |rest| format!("_{rest}"));
    format!("{slug}-{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c11_a_file_name_is_readable_and_fits() {
        // `printf a | sha256sum` prints the same.
        assert_eq!(stem("a"), "a-ca978112ca1bbdcafac231b39a23dc4d");
        assert_eq!(stem("orders/42"), "orders_42-c4dd165f06c35f87f80d9c755d8703ef");
        assert!(stem(&"🔒".repeat(63)).len() <= 255 - ".json.0123456789abcdef.new".len());
        assert!(stem("../../etc/passwd").starts_with("_._.._etc_passwd-"));
        assert!(!stem("a/b\\c:d*e?\"<>|").contains(['/', '\\', ':', '*', '?', '"', '<', '>', '|']));
    }

    #[test]
    fn c11_names_with_the_same_readable_part_have_different_files() {
        let names = ["a/b", "a_b", "a b", "A_b", "a:b", "a_b "];
        let stems: std::collections::HashSet<_> =
            names.iter().map(|name| stem(name).to_lowercase()).collect();
        assert_eq!(stems.len(), names.len());
    }
}
