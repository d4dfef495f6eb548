//! What happens to the connections.

use std::{
    fmt,
    ops::AddAssign,
    time::{Duration, Instant},
};

use lockkit_conformance::proxy::Proxy;
use tokio::time::sleep;

use crate::chance::Chance;

const MS: u64 = 1_000;

/// How often each thing happened.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    resets: usize,
    refusals: usize,
    lost_replies: usize,
    cut_midway: usize,
    late_requests: usize,
    delays: usize,
    silences: usize,
    expiries: usize,
}

impl Faults {
    pub(crate) fn total(&self) -> usize {
        self.resets
            + self.refusals
            + self.lost_replies
            + self.cut_midway
            + self.late_requests
            + self.delays
            + self.silences
            + self.expiries
    }
}

/// One thing after the other, on one connection. Ends with it healed.
pub(crate) async fn chaos(proxy: &Proxy, mut chance: Chance, length: Duration) -> Faults {
    let (start, mut faults) = (Instant::now(), Faults::default());
    while start.elapsed() < length {
        sleep(chance.micros(1_500 * MS)).await;
        match chance.below(32) {
            0..8 => {
                faults.resets += 1;
                proxy.reset_all();
            }
            8..12 => {
                faults.refusals += 1;
                proxy.set(|toxics| toxics.refuse = true);
                proxy.reset_all();
                sleep(chance.micros(300 * MS)).await;
            }
            12..18 => {
                faults.lost_replies += 1;
                proxy.set(|toxics| toxics.down.discard = true);
                sleep(chance.micros(200 * MS)).await;
            }
            18..21 => {
                faults.cut_midway += 1;
                let after = Some(chance.below(2_000));
                proxy.set(|toxics| toxics.down.cut_after = after);
                sleep(chance.micros(300 * MS)).await;
            }
            21..24 => {
                faults.late_requests += 1;
                proxy.set(|toxics| toxics.up.delay = Duration::from_millis(100));
                sleep(chance.micros(100 * MS)).await;
                proxy.reset_clients(chance.micros(500 * MS));
            }
            24..28 => {
                faults.delays += 1;
                let (delay, jitter) = (chance.micros(50 * MS), chance.micros(20 * MS));
                proxy.set(|toxics| {
                    (toxics.up.delay, toxics.down.delay, toxics.down.jitter) = (delay, delay, jitter);
                });
                sleep(chance.micros(500 * MS)).await;
            }
            28..30 => {
                faults.silences += 1;
                let up = chance.below(2) == 0;
                proxy.set(|toxics| (toxics.up.hold, toxics.down.hold) = (up, !up));
                sleep(chance.micros(1_500 * MS)).await;
            }
            _ => {
                faults.expiries += 1;
                proxy.set(|toxics| toxics.accept_hole = true);
                proxy.reset_all();
                sleep(crate::SESSION * 3 / 2).await;
            }
        }
        proxy.heal();
        // What is refused or swallowed by then stays so.
        if chance.below(4) == 0 {
            proxy.reset_all();
        }
    }
    faults
}

impl AddAssign for Faults {
    fn add_assign(&mut self, other: Self) {
        self.resets += other.resets;
        self.refusals += other.refusals;
        self.lost_replies += other.lost_replies;
        self.cut_midway += other.cut_midway;
        self.late_requests += other.late_requests;
        self.delays += other.delays;
        self.silences += other.silences;
        self.expiries += other.expiries;
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resets, refusals, lost_replies, cut_midway, late_requests, delays, silences, expiries } =
            self;
        write!(
            f,
            "{} faults: {resets} resets, {refusals} refusals, {lost_replies} times lost replies, {cut_midway} cuts \
             midway, {late_requests} late requests, {delays} delays, {silences} silences, {expiries} beyond the session",
            self.total()
        )
    }
}
