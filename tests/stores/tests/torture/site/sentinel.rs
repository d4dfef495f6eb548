//! A primary with two replicas, watched by three sentinels.

use std::{
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_fixture::{NamespacedSentinels, RedisServer, SentinelGroup, SentinelOptions};
use lockkit_torture::site::{BoxError, ServerFault, Site};

use super::{Rounds, choose, lasting, left_out, redis, weak};

const CUT_PRIMARY: &str = "cut-primary";
const FAIL_OVER: &str = "failover";
const KILL_PRIMARY: &str = "kill-primary";
const KILL_REPLICA: &str = "kill-replica";
const KILL_SENTINEL: &str = "kill-sentinel";
const STOP_BRIEFLY: &str = "stop-primary-briefly";
const STOP_PRIMARY: &str = "stop-primary";

/// On a busy machine a process pauses for a while, which must not cause an unplanned failover.
const DOWN_AFTER: Duration = Duration::from_secs(2);
/// The next failover begins no sooner than twice this time after the last one.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(2);
const SETTLED: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
const SERVERS: usize = 3;

/// How many replicas a grant waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    Never,
    ForAll,
}

impl Wait {
    fn name(self) -> &'static str {
        match self {
            Self::Never => "redis-sentinel",
            Self::ForAll => "redis-sentinel-wait",
        }
    }

    /// A fault that makes another server the primary.
    fn fails_over(self, fault: ServerFault) -> ServerFault {
        match self {
            Self::Never => weak(
                fault,
                "a failover can lose a grant, and a primary that was replaced still grants",
            ),
            // "With N = the number of replicas only those remain that restart empty": no such
            // replica is promoted here.
            Self::ForAll => fault,
        }
    }
}

#[derive(Debug)]
struct Sentinel {
    group: NamespacedSentinels,
    wait: Wait,
    rounds: Rounds,
    struck: Option<Struck>,
}

#[derive(Clone, Copy, Debug)]
enum Struck {
    Cut,
    FailedOver { old: usize },
    Killed(usize),
    KilledPrimary(usize),
    KilledSentinel(usize),
    StoppedBriefly(usize),
    StoppedPrimary(usize),
}

pub(super) fn start(wait: Wait) -> Result<Box<dyn Site>, Failed> {
    let options = SentinelOptions::default()
        .with_down_after(DOWN_AFTER)
        .with_failover_timeout(FAILOVER_TIMEOUT);
    let group = match NamespacedSentinels::is_possible() {
        Ok(()) => NamespacedSentinels::start(&options)?,
        Err(reason) => {
            left_out(&format!("{}: {CUT_PRIMARY}", wait.name()), &reason);
            NamespacedSentinels::on_loopback(SentinelGroup::start_with(options)?)
        }
    };
    let site = Sentinel { group, wait, rounds: Rounds::default(), struck: None };
    for sentinel in site.group.sentinels() {
        hurry(sentinel)?;
    }
    Ok(Box::new(site))
}

/// Makes sentinels demote a server that wrongly acts as a primary after a second or two instead of
/// ten.
fn hurry(sentinel: &RedisServer) -> Result<(), BoxError> {
    sentinel.ask(["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "300", "INFO-PERIOD", "300"])?;
    Ok(())
}

impl Sentinel {
    fn replica(&self, chance: u64) -> Result<usize, BoxError> {
        Ok((self.group.primary()? + 1 + choose(chance, SERVERS - 1)) % SERVERS)
    }

    /// Waits until the sentinels name another primary than `old`.
    fn wait_for_failover(&self, old: usize) -> Result<usize, BoxError> {
        Ok(self.group.wait_for_new_primary(old, SETTLED)?)
    }

    /// Requests a failover from a live primary until there is another primary. Sentinels give up a
    /// failover that takes longer than its timeout, and start no new one while no server is down.
    fn fail_over(&self, old: usize) -> Result<(), BoxError> {
        let deadline = Instant::now() + SETTLED;
        loop {
            match self.group.wait_for_new_primary(old, FAILOVER_TIMEOUT * 2) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => {}
            }
            // The sentinel refuses this while another sentinel runs a failover.
            let _ =
                self.group.sentinels()[0].ask(["SENTINEL", "FAILOVER", self.group.service_name()]);
        }
    }

    /// Restarts a server, and makes it a replica of the primary at once: its first role is out of
    /// date.
    fn bring_back(&mut self, index: usize, primary: usize) -> Result<(), BoxError> {
        self.group.server_mut(index).restart()?;
        let servers = self.group.servers();
        Ok(servers[index].replicate(&servers[primary])?)
    }

    /// Waits until all see one server as the primary, and the others have its data, so that the
    /// next failover finds its candidates.
    fn wait_until_whole(&self) -> Result<(), BoxError> {
        let deadline = Instant::now() + SETTLED;
        loop {
            match self.is_whole() {
                Ok(true) => return Ok(()),
                answer if Instant::now() > deadline => {
                    return Err(
                        format!("the group is not whole after {SETTLED:?}: {answer:?}").into()
                    );
                }
                // A server may still be starting.
                _ => thread::sleep(POLL),
            }
        }
    }

    fn is_whole(&self) -> Result<bool, BoxError> {
        let primary = self.group.primary()?;
        let port = format!("master_port:{}\r", self.group.servers()[primary].port());
        for (index, server) in self.group.servers().iter().enumerate() {
            let info = server.ask(["INFO", "replication"])?.text();
            let follows = info.contains(&port) && info.contains("master_link_status:up");
            if (index == primary) != info.contains("role:master") || (index != primary && !follows)
            {
                return Ok(false);
            }
        }
        Ok(self.group.all_trust(primary)?)
    }
}

impl Site for Sentinel {
    fn name(&self) -> &str {
        self.wait.name()
    }

    fn open(&mut self) -> Result<String, BoxError> {
        let url = format!("{}?prefix={}", self.group.url(), self.rounds.next());
        Ok(match self.wait {
            Wait::Never => url,
            Wait::ForAll => format!("{url}&wait_replicas={}&wait_timeout=1s", SERVERS - 1),
        })
    }

    fn faults(&self) -> Vec<ServerFault> {
        let mut faults = vec![
            lasting(KILL_REPLICA, 100..=1_500),
            lasting(KILL_SENTINEL, 100..=1_500),
            // This is far shorter than the time after which sentinels see a death, so no failover
            // follows.
            lasting(STOP_BRIEFLY, 50..=500),
            self.wait.fails_over(lasting(KILL_PRIMARY, 0..=1_500)),
            self.wait.fails_over(lasting(STOP_PRIMARY, 0..=1_500)),
            self.wait.fails_over(lasting(FAIL_OVER, 0..=500)),
        ];
        if self.group.is_cuttable() {
            // This cuts the primary off from the other servers and sentinels, but not from the
            // clients. It may last long enough for a failover.
            faults.push(self.wait.fails_over(lasting(CUT_PRIMARY, 200..=6_000)));
        }
        faults
    }

    fn strike(&mut self, fault: &ServerFault, chance: u64) -> Result<String, BoxError> {
        let primary = self.group.primary()?;
        let (struck, target) = match fault.kind {
            KILL_PRIMARY => {
                self.group.server_mut(primary).kill()?;
                (Struck::KilledPrimary(primary), format!("server {primary}, the primary"))
            }
            STOP_PRIMARY | STOP_BRIEFLY => {
                self.group.servers()[primary].pause()?;
                let briefly = fault.kind == STOP_BRIEFLY;
                let struck = if briefly {
                    Struck::StoppedBriefly(primary)
                } else {
                    Struck::StoppedPrimary(primary)
                };
                (struck, format!("server {primary}, the primary"))
            }
            CUT_PRIMARY => {
                self.group.cut(primary)?;
                (Struck::Cut, format!("server {primary}, the primary, and the sentinel beside it"))
            }
            FAIL_OVER => {
                let sentinel =
                    &self.group.sentinels()[choose(chance, self.group.sentinels().len())];
                sentinel.ask(["SENTINEL", "FAILOVER", self.group.service_name()])?;
                (Struck::FailedOver { old: primary }, format!("server {primary}, the primary"))
            }
            KILL_REPLICA => {
                let replica = self.replica(chance)?;
                self.group.server_mut(replica).kill()?;
                (Struck::Killed(replica), format!("server {replica}, a replica"))
            }
            KILL_SENTINEL => {
                let sentinel = choose(chance, self.group.sentinels().len());
                self.group.sentinel_mut(sentinel).kill()?;
                (Struck::KilledSentinel(sentinel), format!("sentinel {sentinel}"))
            }
            kind => return Err(format!("no fault of sentinels: {kind}").into()),
        };
        self.struck = Some(struck);
        Ok(target)
    }

    fn heal(&mut self) -> Result<(), BoxError> {
        match self.struck.take() {
            None => return Ok(()),
            Some(Struck::Cut) => self.group.heal()?,
            Some(Struck::FailedOver { old }) => self.fail_over(old)?,
            Some(Struck::Killed(index)) => self.bring_back(index, self.group.primary()?)?,
            Some(Struck::KilledPrimary(old)) => {
                let primary = self.wait_for_failover(old)?;
                self.bring_back(old, primary)?;
            }
            Some(Struck::KilledSentinel(index)) => {
                self.group.sentinel_mut(index).restart()?;
                hurry(&self.group.sentinels()[index])?;
            }
            Some(Struck::StoppedBriefly(old)) => {
                self.group.servers()[old].resume()?;
                if self.group.primary()? != old {
                    return Err(
                        "the sentinels failed over from a primary that was stopped briefly".into(),
                    );
                }
            }
            Some(Struck::StoppedPrimary(old)) => {
                self.wait_for_failover(old)?;
                // The old primary grants until a sentinel demotes it.
                self.group.servers()[old].resume()?;
            }
        }
        self.wait_until_whole()
    }

    fn leaks(&mut self) -> Result<Vec<String>, BoxError> {
        redis::leaks(&self.group.servers()[self.group.primary()?], &self.rounds.now())
    }
}
