//! Keeps Debian packages from starting services while they are installed.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// Exit code 101 forbids `invoke-rc.d` to start a service.
const REFUSE: &str = "#!/bin/sh\n# lockkit: no service starts while packages are installed for its tests.\nexit 101\n";

/// While this lives, `/usr/sbin/policy-rc.d` refuses to start any service. A drop restores the
/// former file.
#[must_use = "services may start again as soon as this is dropped"]
#[derive(Debug)]
pub(crate) struct NoServices {
    policy: PathBuf,
    saved: PathBuf,
}

impl NoServices {
    /// Refuses services under `root` (`/` except in tests).
    ///
    /// # Errors
    /// The policy file can't be moved or written. Then it is unchanged.
    pub(crate) fn enter(root: &Path) -> Result<Self> {
        let folder = root.join("usr/sbin");
        let this = Self {
            policy: folder.join("policy-rc.d"),
            saved: folder.join("policy-rc.d.lockkit-saved"),
        };
        // An earlier run may have been killed before it could restore the file.
        this.put_back()?;
        match fs::rename(&this.policy, &this.saved) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => {
                moved.with_context(|| format!("could not rename {}", this.policy.display()))?
            }
        }
        // From here on the drop of `this` restores the file after any failure.
        let written = fs::write(&this.policy, REFUSE)
            .and_then(|()| fs::set_permissions(&this.policy, fs::Permissions::from_mode(0o755)));
        if let Err(error) = written {
            let _half_written = fs::remove_file(&this.policy);
            return Err(error)
                .with_context(|| format!("could not write {}", this.policy.display()));
        }
        Ok(this)
    }

    /// Restores the system's own policy.
    ///
    /// # Errors
    /// The file can't be removed or moved. The message explains the manual repair.
    pub(crate) fn leave(self) -> Result<()> {
        self.put_back()
    }

    /// Does nothing if there is no file of ours.
    fn put_back(&self) -> Result<()> {
        let done = if self.saved.symlink_metadata().is_ok() {
            fs::rename(&self.saved, &self.policy)
        } else if fs::read(&self.policy).is_ok_and(|text| text == REFUSE.as_bytes()) {
            fs::remove_file(&self.policy)
        } else {
            Ok(())
        };
        done.with_context(|| {
            let policy = self.policy.display();
            let saved = self.saved.display();
            format!("could not restore {policy}: if {saved} exists, move it to {policy}, or else remove {policy}")
        })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Err(error) = self.put_back() {
            eprintln!("warning: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const THEIRS: &str = "#!/bin/sh\nexit 0\n";

    fn system() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/sbin")).unwrap();
        let policy = root.path().join("usr/sbin/policy-rc.d");
        (root, policy)
    }

    fn files(policy: &Path) -> Vec<String> {
        let entries = fs::read_dir(policy.parent().unwrap()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn services_are_refused_and_then_nothing_is_left() {
        let (root, policy) = system();
        let guard = NoServices::enter(root.path()).unwrap();
        let status = std::process::Command::new("sh").arg(&policy).status().unwrap();
        assert_eq!(status.code(), Some(101));
        assert_eq!(policy.metadata().unwrap().mode() & 0o777, 0o755);
        guard.leave().unwrap();
        assert!(files(&policy).is_empty());
    }

    #[test]
    fn the_systems_own_policy_comes_back_as_it_was() {
        let (root, policy) = system();
        fs::write(&policy, THEIRS).unwrap();
        fs::set_permissions(&policy, fs::Permissions::from_mode(0o750)).unwrap();
        let before = policy.metadata().unwrap();
        let guard = NoServices::enter(root.path()).unwrap();
        assert_eq!(fs::read_to_string(&policy).unwrap(), REFUSE);
        drop(guard);
        let after = policy.metadata().unwrap();
        assert_eq!(fs::read_to_string(&policy).unwrap(), THEIRS);
        assert_eq!(
            (before.ino(), before.mode(), before.mtime_nsec()),
            (after.ino(), after.mode(), after.mtime_nsec())
        );
        assert_eq!(files(&policy), ["policy-rc.d"]);
    }

    #[test]
    fn a_run_that_was_killed_is_tidied_up_by_the_next_one() {
        let (root, policy) = system();
        fs::write(&policy, THEIRS).unwrap();
        std::mem::forget(NoServices::enter(root.path()).unwrap());
        NoServices::enter(root.path()).unwrap().leave().unwrap();
        assert_eq!(fs::read_to_string(&policy).unwrap(), THEIRS);
        assert_eq!(files(&policy), ["policy-rc.d"]);

        fs::remove_file(&policy).unwrap();
        std::mem::forget(NoServices::enter(root.path()).unwrap());
        NoServices::enter(root.path()).unwrap().leave().unwrap();
        assert!(files(&policy).is_empty());
    }

    #[test]
    fn a_policy_that_changed_during_the_test_stays() {
        let (root, policy) = system();
        let guard = NoServices::enter(root.path()).unwrap();
        fs::write(&policy, THEIRS).unwrap();
        guard.leave().unwrap();
        assert_eq!(fs::read_to_string(&policy).unwrap(), THEIRS);
    }

    #[test]
    fn a_folder_that_is_missing_is_an_error_and_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        NoServices::enter(root.path()).unwrap_err();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
