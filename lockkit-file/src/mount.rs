//! Checks whether a folder is fit for locks.

use std::path::Path;

use lockkit_core::{ErrorKind, Result};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::error::{from_io, ours};

/// File systems whose files may be in use on other hosts, or whose locks a program in user space
/// implements. The numbers are those of statfs(2).
const REMOTE: [(u64, &str); 20] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x4750_4653, "GPFS"),
    (0x786f_4256, "VirtualBox"),
    (0xbacb_acbc, "VMware"),
    (0x1983_0326, "BeeGFS"),
    (0xaad7_aaea, "PanFS"),
    (0x013111a8, "IBRIX"),
];

/// File systems in memory, by the numbers of statfs(2).
const VOLATILE: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// The kind of file system of a folder, as far as locks depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Local,
    Remote(&'static str),
    /// The folder is empty after a boot.
    Volatile(&'static str),
}

/// The kind of file system that a folder is on.
///
/// # Errors
/// An error of the system.
pub(crate) fn file_system_of(folder: &Path) -> Result<FileSystem> {
    number_of(folder).map(file_system)
}

fn file_system(number: u64) -> FileSystem {
    let name_in = |list: &[(u64, &'static str)]| {
        list.iter().find(|(listed, _)| *listed == number).map(|(_, name)| *name)
    };
    match (name_in(&REMOTE), name_in(&VOLATILE)) {
        (Some(name), _) => FileSystem::Remote(name),
        (None, Some(name)) => FileSystem::Volatile(name),
        (None, None) => FileSystem::Local,
    }
}

/// The folder, or its nearest ancestor that exists.
pub(crate) fn nearest(folder: &Path) -> &Path {
    let above = folder.ancestors().filter(|folder| !folder.as_os_str().is_empty());
    above.into_iter().find(|folder| folder.exists()).unwrap_or(Path::new("."))
}

/// Whether a folder is on a network file system.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a network file system that is not allowed; an error of the
/// system.
pub(crate) fn check(folder: &Path, allowed: bool) -> Result<bool> {
    check_number(folder, number_of(folder)?, allowed)
}

fn check_number(folder: &Path, number: u64, allowed: bool) -> Result<bool> {
    match file_system(number) {
        FileSystem::Local | FileSystem::Volatile(_) => Ok(false),
        FileSystem::Remote(_) if allowed => Ok(true),
        FileSystem::Remote(name) => {
            let reason = format!(
                "{folder:?} is on {name}, where two hosts may not see each other's locks; use a \
                 folder on a disk of this host, or another store. If only one host ever uses the \
                 folder, and file locks work there, add allow_network_fs=true"
            );
            Err(ours(ErrorKind::Unsupported, reason))
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn number_of(folder: &Path) -> Result<u64> {
    let seen =
        rustix::fs::statfs(folder).map_err(|error| from_io(error.into(), "looking at", folder))?;
    // The number has 32 bits, and is signed on some machines.
    let number = i128::from(seen.f_type) & 0xffff_ffff;
    Ok(u64::try_from(number).unwrap_or_default())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn number_of(_: &Path) -> Result<u64> {
    Ok(0)
}

/// Whether this process may make files in a folder.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`], or another error of the system.
pub(crate) fn check_access(folder: &Path) -> Result<()> {
    let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    let seen = accessat(CWD, folder, wanted, AtFlags::EACCESS);
    seen.map_err(|error| from_io(error.into(), "using the folder", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c1_a_network_file_system_is_refused_unless_it_is_allowed() {
        let folder = Path::new("/mnt/locks");
        for (number, name) in REMOTE {
            let error = check_number(folder, number, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let text = error.to_string();
            assert!(
                text.contains(name)
                    && text.contains("/mnt/locks")
                    && text.contains("allow_network_fs"),
                "{text}"
            );
            assert!(check_number(folder, number, true).unwrap());
        }
        // ext4, tmpfs, btrfs, xfs, overlayfs.
        for local in [0xef53, 0x0102_1994, 0x9123_683e, 0x5846_5342, 0x794c_7630] {
            assert!(!check_number(folder, local, false).unwrap());
        }
        assert!(!check(&std::env::temp_dir(), false).unwrap());
    }
}
