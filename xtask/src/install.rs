//! Installs the servers that the tests need, on Debian.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    policy::NoServices,
    run::{shown, step},
    server::{Server, find_program},
};

/// Makes sure that these servers can be started, and installs missing servers.
///
/// # Errors
/// A server is missing and can't be installed here. The message contains the command that installs
/// it.
pub(crate) fn servers(wanted: &[&Server]) -> Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    let missing: Vec<_> = wanted
        .iter()
        .copied()
        .filter(|server| server.is_for(is_root) && !server.is_there())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let Some(apt) = find_program("apt-get") else {
        bail!(
            "{}; this system is not Debian, so install them{}",
            not_installed(&missing),
            or_set_a_url(&missing)
        );
    };
    if !is_root {
        bail!(
            "{}. Run this{}:\n  sudo sh -c 'apt-get update && apt-get install -y \
             --no-install-recommends {}'",
            not_installed(&missing),
            or_set_a_url(&missing),
            packages(&missing).join(" ")
        );
    }
    println!("{}: installing {}", not_installed(&missing), packages(&missing).join(" "));
    Apt { command: vec![apt.into()], root: PathBuf::from("/") }.install(&packages(&missing))?;
    match missing.iter().find(|server| !server.is_there()) {
        Some(server) => {
            bail!(
                "{} is missing although {} is installed",
                server.name,
                server.packages.join(" and ")
            )
        }
        None => Ok(()),
    }
}

fn not_installed(missing: &[&Server]) -> String {
    let names: Vec<_> = missing.iter().map(|server| server.name).collect();
    format!("not installed: {}", names.join(", "))
}

/// A hint for users with their own servers. It is empty unless these could replace everything that
/// is missing.
fn or_set_a_url(missing: &[&Server]) -> String {
    let variables: Option<Vec<_>> = missing.iter().map(|server| server.url_variable).collect();
    variables.map_or_else(String::new, |variables| {
        format!(", or point {} at a server of your own", variables.join(", "))
    })
}

fn packages(missing: &[&Server]) -> Vec<&'static str> {
    missing.iter().flat_map(|server| server.packages).copied().collect()
}

/// Debian's package manager. Tests use a fake one and a temporary system.
#[derive(Debug)]
struct Apt {
    command: Vec<OsString>,
    root: PathBuf,
}

impl Apt {
    /// Installs packages without a question, and without starting any service.
    fn install(&self, packages: &[&str]) -> Result<()> {
        // Ctrl-C also ends apt-get. This program continues, to restore the policy.
        let interrupted = Arc::new(AtomicBool::new(false));
        let watches = [SIGHUP, SIGINT, SIGTERM]
            .map(|signal| signal_hook::flag::register(signal, Arc::clone(&interrupted)));
        let no_services = NoServices::enter(&self.root)?;
        let installed = self.update_and_install(packages, &interrupted);
        let left = no_services.leave();
        for watch in watches {
            signal_hook::low_level::unregister(watch.context("could not watch for Ctrl-C")?);
        }
        installed.and(left)
    }

    fn update_and_install(&self, packages: &[&str], interrupted: &AtomicBool) -> Result<()> {
        let mut install = self.apt(&["install", "-y", "--no-install-recommends"]);
        install.args(packages);
        for mut command in [self.apt(&["update"]), install] {
            let title = shown(&command);
            step(&title, &mut command)?;
            if interrupted.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
        }
        Ok(())
    }

    fn apt(&self, arguments: &[&str]) -> Command {
        let mut words = self.command.iter();
        let mut command =
            Command::new(words.next().map_or("apt-get".as_ref(), |word| word.as_os_str()));
        command.args(words).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::server;

    const THEIRS: &str = "#!/bin/sh\nexit 0\n";

    /// An apt-get that logs its arguments and the answer to invoke-rc.d, and then does `then`.
    fn apt(then: &str) -> (tempfile::TempDir, Apt) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/sbin")).unwrap();
        fs::write(root.path().join("usr/sbin/policy-rc.d"), THEIRS).unwrap();
        let script = root.path().join("apt-get");
        let here = root.path().display();
        let text = format!(
            "sh {here}/usr/sbin/policy-rc.d\necho \"$* | services $? | $DEBIAN_FRONTEND\" >> \
             {here}/log\n{then}\n"
        );
        fs::write(&script, text).unwrap();
        // sh runs it, because a process with other threads can't safely execute a file that it has
        // just written.
        let apt = Apt { command: vec!["sh".into(), script.into()], root: root.path().to_owned() };
        (root, apt)
    }

    fn log(root: &tempfile::TempDir) -> String {
        fs::read_to_string(root.path().join("log")).unwrap()
    }

    fn assert_put_back(root: &tempfile::TempDir) {
        let policy = root.path().join("usr/sbin/policy-rc.d");
        assert_eq!(fs::read_to_string(&policy).unwrap(), THEIRS);
        assert_eq!(fs::read_dir(policy.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn updates_and_installs_with_services_refused() {
        let (root, apt) = apt("exit 0");
        apt.install(&["redis-tools", "other"]).unwrap();
        assert_eq!(
            log(&root),
            "update | services 101 | noninteractive\n\
             install -y --no-install-recommends redis-tools other | services 101 | noninteractive\n"
        );
        assert_put_back(&root);
    }

    #[test]
    fn a_failed_update_stops_there_and_puts_the_policy_back() {
        let (root, apt) = apt("exit 100");
        let error = apt.install(&["redis-tools"]).unwrap_err().to_string();
        assert!(error.ends_with("update failed (exit status: 100)"), "{error}");
        assert_eq!(log(&root).lines().count(), 1);
        assert_put_back(&root);
    }

    #[test]
    fn a_failed_install_puts_the_policy_back() {
        let (root, apt) = apt("test \"$1\" = update");
        let error = apt.install(&["redis-tools"]).unwrap_err().to_string();
        assert!(error.contains("install -y --no-install-recommends redis-tools failed"), "{error}");
        assert_put_back(&root);
    }

    #[test]
    fn an_apt_that_can_not_start_puts_the_policy_back() {
        let (root, mut apt) = apt("");
        apt.command = vec!["lockkit-no-such-apt".into()];
        apt.install(&["redis-tools"]).unwrap_err();
        assert_put_back(&root);
    }

    #[test]
    fn an_interrupted_update_is_not_followed_by_an_install() {
        let (root, apt) = apt("exit 0");
        let error = apt
            .update_and_install(&["redis-tools"], &AtomicBool::new(true))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "interrupted");
        assert_eq!(log(&root).lines().count(), 1);
    }

    #[test]
    fn missing_programs_are_named_with_packages_and_variable() {
        let missing: Vec<_> = [server::FOR_REDIS, server::FOR_ZOOKEEPER].concat();
        assert_eq!(not_installed(&missing), "not installed: Redis, ZooKeeper");
        assert_eq!(
            packages(&missing),
            ["redis-tools", "libzookeeper-java", "default-jre-headless"]
        );
        assert_eq!(
            or_set_a_url(&missing),
            ", or point LOCKKIT_TEST_REDIS_URL, LOCKKIT_TEST_ZK_URL at a server of your own"
        );
    }

    #[test]
    fn a_url_is_no_way_out_where_something_has_none() {
        assert_eq!(or_set_a_url(server::ALL), "");
    }
}
