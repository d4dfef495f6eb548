//! The options of a run.

use std::time::Duration;

use crate::{
    address,
    children::WorkerCommand,
    peer::Peer,
    plan::{self, Planned},
    report::Scenario,
    target::Address,
};

/// The options of a run: which stores and cases it measures, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The stores.
    pub addresses: Vec<Address>,
    /// Whether to measure fewer and shorter cases.
    pub is_quick: bool,
    /// How many times to measure each case on each store.
    pub rounds: u32,
    /// The length of each measurement.
    pub slice: Duration,
    /// The scenarios to measure; an empty list means all.
    pub only: Vec<Scenario>,
    /// Requests per second of [`Scenario::OpenLoop`]. `None` chooses a rate that the slowest store
    /// can serve.
    pub rate_per_second: Option<f64>,
    /// Another lock library to measure.
    pub peer: Option<Peer>,
    /// How to start child processes.
    pub worker: WorkerCommand,
}

impl Options {
    /// A full run: 5 rounds of 400 ms slices.
    #[must_use]
    pub fn full(addresses: Vec<Address>, worker: WorkerCommand) -> Self {
        let rounds = 5;
        let slice = Duration::from_millis(400);
        let is_quick = false;
        let only = Vec::new();
        let rate_per_second = None;
        let peer = None;
        Self { addresses, is_quick, rounds, slice, only, rate_per_second, peer, worker }
    }

    /// A quick run: 3 rounds of 100 ms slices, and fewer cases. It shows that everything works, not
    /// which store is faster.
    #[must_use]
    pub fn quick(addresses: Vec<Address>, worker: WorkerCommand) -> Self {
        let rounds = 3;
        let slice = Duration::from_millis(100);
        Self { is_quick: true, rounds, slice, ..Self::full(addresses, worker) }
    }

    /// An estimate of the length of the run.
    #[must_use]
    pub fn estimate(&self) -> Duration {
        let stores = u32::try_from(self.addresses.len()).unwrap_or(u32::MAX);
        // The rivals that wait are a classic, and perhaps a peer.
        let contenders = 1 + u32::from(self.peer.is_some());
        plan::estimate(&self.plan(), stores, contenders, self.slice)
    }

    pub(crate) fn plan(&self) -> Vec<Planned> {
        plan::plan(self.is_quick, self.rounds, &self.only)
    }

    /// The command that repeats this run. It names the rate of the open loop, so that the next run
    /// uses the same rate.
    pub(crate) fn command(&self, rate_per_second: Option<f64>) -> String {
        let mut words = vec![self.worker.called()];
        for address in &self.addresses {
            let label = address.label.as_ref().map(|label| format!("{label}=")).unwrap_or_default();
            words.push(format!("--url '{label}{}'", address::shown(&address.url)));
        }
        if self.is_quick {
            words.push("--quick".to_owned());
        }
        words.push(format!(
            "--rounds {} --slice {}",
            self.rounds,
            humantime::format_duration(self.slice)
        ));
        words.extend(self.only.iter().map(|scenario| format!("--only {}", name_of(*scenario))));
        words.extend(self.peer.map(|peer| format!("--peer {}", peer.name())));
        words.extend(rate_per_second.or(self.rate_per_second).map(|rate| format!("--rate {rate}")));
        words.join(" ")
    }
}

/// A scenario's name on the command line.
pub(crate) fn name_of(scenario: Scenario) -> String {
    let json = serde_json::to_value(scenario).ok();
    json.and_then(|json| json.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_repeats_the_run_and_hides_passwords() {
        let address =
            Address { url: "redis://me:s3cret@h/".to_owned(), label: Some("mine".to_owned()) };
        let worker = WorkerCommand { program: "x".into(), arguments: Vec::new() };
        let mut options = Options::quick(vec![address], worker);
        options.only = vec![Scenario::HotName];
        let expected = "lockkit-bench --url 'mine=redis://me:***@h/' --quick --rounds 3 --slice 100ms --only hot-name";
        assert_eq!(options.command(None), expected);
        assert_eq!(options.command(Some(1_200.0)), format!("{expected} --rate 1200"));
        options.peer = Some(Peer::Rslock);
        assert_eq!(options.command(None), format!("{expected} --peer rslock"));
        options.worker = WorkerCommand {
            program: "/bin/lockkit".into(),
            arguments: vec!["bench".into(), "worker".into()],
        };
        assert!(
            options.command(None).starts_with("lockkit bench --url "),
            "{}",
            options.command(None)
        );
    }
}
