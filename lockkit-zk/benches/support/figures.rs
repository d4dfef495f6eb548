//! Figures of several rounds, and what a process or a server has used so far.

use std::{fs, time::Duration};

use lockkit_fixture::ZooKeeperServer;

/// One figure per round.
#[derive(Default)]
pub(crate) struct Figures(Vec<f64>);

impl Figures {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    /// The median, and the range.
    pub(crate) fn show(&self, digits: usize) -> String {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{:.digits$} ({least:.digits$} to {most:.digits$})", self.median())
    }
}

/// The requests that a server has taken so far, pings included.
pub(crate) fn requests(server: &ZooKeeperServer) -> u64 {
    server.metric("zk_packets_received").unwrap()
}

/// User and system time of a process.
pub(crate) fn cpu_time(process: &str) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11..=12].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

pub(crate) fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "counts far below 2^52")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}
