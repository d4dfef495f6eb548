//! A site that runs the user's commands to cause faults of the servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::process::CommandExt as _,
    process::{Child, Command},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::{
    error::{Error, Result},
    site::{BoxError, ServerFault, Site},
};

/// The longest time of a command.
const BOUND: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// A store with shell commands that cause faults of its servers.
#[derive(Debug)]
pub(crate) struct Commands {
    url: String,
    faults: Vec<(ServerFault, Lines)>,
    /// The position of the latest fault.
    last: Option<usize>,
}

/// The commands that cause a fault and undo it.
#[derive(Debug)]
struct Lines {
    strike: String,
    heal: Option<String>,
}

impl Commands {
    /// Each text has the form `kind=…`.
    pub(crate) fn new(
        url: String,
        strikes: &[String],
        heals: &[String],
        weakens: &[String],
    ) -> Result<Self> {
        let mut heals = pairs("--heal", heals)?;
        let mut weakens = pairs("--weakens", weakens)?;
        let mut faults = Vec::new();
        for (kind, strike) in pairs("--strike", strikes)? {
            let heal = heals.remove(&kind);
            let longest = if heal.is_some() { Duration::from_secs(3) } else { Duration::ZERO };
            let fault = ServerFault {
                // There are few of these texts, and the process needs them until its end.
                kind: kind.clone().leak(),
                lasts: Duration::ZERO..=longest,
                weakens: weakens.remove(&kind).map(|words| &*words.leak()),
            };
            faults.push((fault, Lines { strike, heal }));
        }
        let rest: BTreeSet<_> = heals.into_keys().chain(weakens.into_keys()).collect();
        if let Some(kind) = rest.first() {
            return Err(Error::new(format!("there is no --strike {kind}=…")));
        }
        Ok(Self { url, faults, last: None })
    }
}

fn pairs(option: &str, texts: &[String]) -> Result<BTreeMap<String, String>> {
    let mut pairs = BTreeMap::new();
    for text in texts {
        let Some((kind, value)) = text.split_once('=') else {
            // The text may be a command with a password.
            return Err(Error::new(format!("{option} needs the form kind=…")));
        };
        if pairs.insert(kind.to_owned(), value.to_owned()).is_some() {
            return Err(Error::new(format!("{option} {kind}=… was given twice")));
        }
    }
    Ok(pairs)
}

/// Runs a command. Errors don't repeat the command line, because it may contain passwords.
fn run(what: &str, line: &str, bound: Duration) -> Result<(), BoxError> {
    let start = Instant::now();
    // The shell has its own process group, so that a kill also reaches the commands that it waits
    // for.
    let mut shell = Command::new("sh").args(["-c", line]).process_group(0).spawn()?;
    loop {
        match shell.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{what}: {status}").into()),
            None if start.elapsed() < bound => sleep(BETWEEN_LOOKS),
            None => {
                kill(&mut shell)?;
                return Err(format!("{what}: its command did not end within {bound:?}").into());
            }
        }
    }
}

fn kill(shell: &mut Child) -> Result<(), BoxError> {
    killpg(Pid::from_raw(i32::try_from(shell.id())?), Signal::SIGKILL)?;
    shell.wait()?;
    Ok(())
}

impl Site for Commands {
    fn name(&self) -> &str {
        self.url.split_once("://").map_or("store", |(scheme, _)| scheme)
    }

    fn open(&mut self) -> Result<String, BoxError> {
        Ok(self.url.clone())
    }

    fn faults(&self) -> Vec<ServerFault> {
        self.faults.iter().map(|(fault, _)| fault.clone()).collect()
    }

    fn strike(&mut self, fault: &ServerFault, _: u64) -> Result<String, BoxError> {
        self.last = self.faults.iter().position(|(known, _)| known.kind == fault.kind);
        let lines = self.last.and_then(|place| self.faults.get(place));
        let (fault, lines) = lines.ok_or("this site has no such fault")?;
        run(&format!("--strike {}", fault.kind), &lines.strike, BOUND)?;
        Ok("the servers".to_owned())
    }

    fn heal(&mut self) -> Result<(), BoxError> {
        if let Some((fault, lines)) = self.last.and_then(|place| self.faults.get(place))
            && let Some(heal) = &lines.heal
        {
            run(&format!("--heal {}", fault.kind), heal, BOUND)?;
        }
        // This happens only after success, so the end of the run tries a failed command again.
        self.last = None;
        Ok(())
    }

    fn leaks(&mut self) -> Result<Vec<String>, BoxError> {
        Ok(Vec::new())
    }
}

impl Drop for Commands {
    /// An interrupted run must not leave stopped servers.
    fn drop(&mut self) {
        let _ = self.heal();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn commands_are_done_and_undone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("struck");
        let strike = format!("stop=touch {}", file.display());
        let heal = format!("stop=rm {}", file.display());
        let new = || {
            Commands::new("x://h".to_owned(), &texts(&[&strike]), &texts(&[&heal]), &[]).unwrap()
        };
        let mut site = new();
        let faults = site.faults();
        site.strike(&faults[0], 0).unwrap();
        assert!(file.exists());
        site.heal().unwrap();
        assert!(!file.exists());
        site.heal().expect("healed once");
        let mut interrupted = new();
        interrupted.strike(&faults[0], 0).unwrap();
        drop(interrupted);
        assert!(!file.exists(), "an interrupted run undoes the fault of the servers");
    }

    #[test]
    fn an_argument_of_no_fault_is_refused() {
        let of = |strikes: &[&str], heals: &[&str]| {
            Commands::new("x://h".to_owned(), &texts(strikes), &texts(heals), &[])
                .unwrap_err()
                .to_string()
        };
        assert_eq!(of(&["a=b"], &["c=d"]), "there is no --strike c=…");
        assert_eq!(of(&["redis-cli -a secret"], &[]), "--strike needs the form kind=…");
        assert_eq!(of(&["a=b", "a=c"], &[]), "--strike a=… was given twice");
    }

    #[test]
    fn a_failed_command_is_reported_without_its_arguments() {
        let strike = "bad=: redis-cli -a secret; exit 3";
        let mut site = Commands::new("x://h".to_owned(), &texts(&[strike]), &[], &[]).unwrap();
        let faults = site.faults();
        let error = site.strike(&faults[0], 0).unwrap_err().to_string();
        assert_eq!(error, "--strike bad: exit status: 3");
    }

    #[test]
    fn a_heal_that_fails_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        // The command fails until `way` exists.
        let heal = format!("stop=rm {path}/way && touch {path}/healed");
        let mut site =
            Commands::new("x://h".to_owned(), &texts(&["stop=true"]), &texts(&[&heal]), &[])
                .unwrap();
        let faults = site.faults();
        site.strike(&faults[0], 0).unwrap();
        site.heal().unwrap_err();
        std::fs::write(folder.path().join("way"), "").unwrap();
        drop(site);
        assert!(folder.path().join("healed").exists());
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("id");
        let line = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let mut id = String::new();
        // A busy machine may need longer to start the command.
        for bound in [2, 8, 30].map(Duration::from_secs) {
            let error = run("--strike hang", &line, bound).unwrap_err().to_string();
            assert_eq!(error, format!("--strike hang: its command did not end within {bound:?}"));
            id = std::fs::read_to_string(&file).unwrap_or_default();
            if id.ends_with('\n') {
                break;
            }
        }
        assert!(id.ends_with('\n'), "the command was not started");
        let end = Instant::now() + Duration::from_secs(10);
        // Its parent has ended, so another process collects its exit status.
        while lockkit_fixture::is_alive(id.trim()) {
            assert!(Instant::now() < end, "{id} is still there");
            sleep(BETWEEN_LOOKS);
        }
    }
}
