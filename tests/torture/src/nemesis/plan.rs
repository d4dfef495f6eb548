//! The plan of the faults and their times. A seed determines it before the run, so the same seed
//! makes the same plan.

use std::{collections::BTreeSet, fmt, ops::RangeInclusive, time::Duration};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};

use crate::{
    error::{Error, Result},
    link::LinkFault,
    site::ServerFault,
};

/// The kind of [`HolderFault::Kill`].
pub(crate) const KILL_HOLDER: &str = "kill-holder";
/// The name that asks for no fault.
const NONE: &str = "none";

/// A fault of a process that takes locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HolderFault {
    /// SIGKILL. Another process takes the place.
    Kill,
    /// SIGSTOP, and SIGCONT after a while.
    Stop,
}

/// The target of a fault, and its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The process at this place.
    Holder(HolderFault, usize),
    /// The link of the process at this place, or all links.
    Link(LinkFault, Option<usize>),
    /// The servers.
    Server(ServerFault),
}

impl What {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Holder(HolderFault::Kill, _) => KILL_HOLDER,
            Self::Holder(HolderFault::Stop, _) => "stop-holder",
            Self::Link(fault, _) => fault.kind(),
            Self::Server(fault) => fault.kind,
        }
    }
}

/// One fault of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strike {
    /// The time since the start of the run.
    pub(crate) at: Duration,
    /// The length of the fault. Zero if it needs no heal.
    pub(crate) lasts: Duration,
    pub(crate) what: What,
    /// A random number for the remaining choices.
    pub(crate) chance: u64,
}

/// The settings that determine a plan.
#[derive(Clone, Debug)]
pub(crate) struct Deck {
    /// The number of processes.
    pub(crate) holders: usize,
    /// Whether proxies are between the processes and the servers.
    pub(crate) has_links: bool,
    pub(crate) servers: Vec<ServerFault>,
    /// Only these kinds of faults, if any are named.
    pub(crate) only: Vec<String>,
    /// The longest lease. Some faults last longer, others do not.
    pub(crate) longest_ttl: Duration,
    /// The shortest lease. A slow round trip takes a part of it.
    pub(crate) shortest_ttl: Duration,
    /// The average time from the end of one fault to the start of the next.
    pub(crate) pause: Duration,
}

/// The faults of a run. The faults of processes and links come one after the other, and so do the
/// faults of servers. Both series run at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub(crate) ours: Vec<Strike>,
    pub(crate) servers: Vec<Strike>,
}

impl Deck {
    /// Makes a plan for that time. Every kind happens once before a kind happens again.
    pub(crate) fn draw(&self, seed: u64, span: Duration) -> Plan {
        let mut ours = self.ours();
        let mut servers = self.servers();
        ours.retain(|what| self.wants(what.kind()));
        servers.retain(|what| self.wants(what.kind()));
        let mut chance = StdRng::seed_from_u64(seed);
        // Each series has its own random numbers, so another server fault does not change the
        // faults of the processes.
        let mut one = chance.fork_stream();
        let mut other = chance.fork_stream();
        Plan {
            ours: self.deal(&ours, span, &mut one),
            servers: self.deal(&servers, span, &mut other),
        }
    }

    /// Whether the user wants this kind of fault.
    pub(crate) fn wants(&self, kind: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == kind)
    }

    /// Refuses a fault that does not exist here. A run without it would prove nothing about it.
    pub(crate) fn refuse_unknown(&self) -> Result<()> {
        let mut known: Vec<_> = self.ours().iter().chain(&self.servers()).map(What::kind).collect();
        known.push(NONE);
        match self.only.iter().find(|only| !known.contains(&only.as_str())) {
            Some(unknown) => Err(Error::new(format!(
                "the fault {unknown} is unknown here; known faults: {}",
                known.join(", ")
            ))),
            None if self.only.len() > 1 && self.wants(NONE) => Err(Error::new(format!(
                "--fault {NONE} excludes all other faults; give only one of them"
            ))),
            None => Ok(()),
        }
    }

    fn ours(&self) -> Vec<What> {
        let mut ours = vec![What::Holder(HolderFault::Kill, 0), What::Holder(HolderFault::Stop, 0)];
        if self.has_links {
            ours.extend(LinkFault::ALL.map(|fault| What::Link(fault, None)));
        }
        ours
    }

    fn servers(&self) -> Vec<What> {
        self.servers.iter().cloned().map(What::Server).collect()
    }

    fn deal(&self, kinds: &[What], span: Duration, chance: &mut StdRng) -> Vec<Strike> {
        let mut strikes = Vec::new();
        let mut hand = Vec::new();
        let mut at = self.pause_before(chance);
        while !kinds.is_empty() {
            if hand.is_empty() {
                hand = kinds.to_vec();
                hand.shuffle(chance);
            }
            let Some(kind) = hand.pop() else { break };
            let what = self.aim(kind, chance);
            let lasts = between(&self.lasts(&what), chance);
            if at + lasts > span {
                break;
            }
            strikes.push(Strike { at, lasts, what, chance: chance.random() });
            at += lasts + self.pause_before(chance);
        }
        strikes
    }

    fn pause_before(&self, chance: &mut StdRng) -> Duration {
        self.pause.mul_f64(chance.random_range(0.4..1.6))
    }

    fn aim(&self, kind: What, chance: &mut StdRng) -> What {
        let whom = chance.random_range(0..self.holders);
        match kind {
            What::Holder(fault, _) => What::Holder(fault, whom),
            // Sometimes one link breaks, and sometimes all links do, as when the server crashes.
            What::Link(fault, _) => {
                What::Link(self.tune(fault, chance), chance.random_bool(0.75).then_some(whom))
            }
            What::Server(fault) => What::Server(fault),
        }
    }

    /// Sets the length of slow round trips, as a part of a lease.
    fn tune(&self, fault: LinkFault, chance: &mut StdRng) -> LinkFault {
        let ttl = self.shortest_ttl;
        match fault {
            LinkFault::Slow(_) => LinkFault::Slow(between(&(ttl / 12..=ttl / 10), chance)),
            LinkFault::Slower(_) => LinkFault::Slower(between(&(ttl / 10..=ttl / 4), chance)),
            fault => fault,
        }
    }

    fn lasts(&self, what: &What) -> RangeInclusive<Duration> {
        match what {
            What::Holder(HolderFault::Kill, _) => Duration::ZERO..=Duration::ZERO,
            // This is longer than the longest lease, or shorter than the shortest lease.
            What::Holder(HolderFault::Stop, _) => {
                self.longest_ttl / 8..=self.longest_ttl.mul_f64(1.5)
            }
            What::Link(fault, _) if fault.is_momentary() => Duration::ZERO..=Duration::ZERO,
            // The delay of sent data.
            What::Link(LinkFault::ResetLate, _) => {
                Duration::from_millis(20)..=Duration::from_millis(420)
            }
            What::Link(..) => Duration::from_millis(50)..=self.longest_ttl.mul_f64(1.3),
            What::Server(fault) => fault.lasts.clone(),
        }
    }
}

fn between(range: &RangeInclusive<Duration>, chance: &mut StdRng) -> Duration {
    *range.start() + (*range.end() - *range.start()).mul_f64(chance.random_range(0.0..=1.0))
}

/// A separate generator.
trait ForkStream {
    fn fork_stream(&mut self) -> StdRng;
}

impl ForkStream for StdRng {
    fn fork_stream(&mut self) -> StdRng {
        StdRng::seed_from_u64(self.random())
    }
}

impl Plan {
    /// The kinds of faults in the plan.
    #[must_use]
    pub fn kinds(&self) -> BTreeSet<&'static str> {
        self.ours.iter().chain(&self.servers).map(|strike| strike.what.kind()).collect()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<_> = self.ours.iter().chain(&self.servers).collect();
        all.sort_by_key(|strike| strike.at);
        for strike in all {
            write!(f, "{:>9.3} s  {}", strike.at.as_secs_f64(), strike.what)?;
            if !strike.lasts.is_zero() {
                write!(f, " for {:.3} s", strike.lasts.as_secs_f64())?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        if let Self::Link(LinkFault::Slow(round_trip) | LinkFault::Slower(round_trip), _) = self {
            write!(f, " by {} ms", round_trip.as_millis())?;
        }
        match self {
            Self::Holder(_, place) | Self::Link(_, Some(place)) => write!(f, ", process {place}"),
            Self::Link(_, None) => f.write_str(", all processes"),
            Self::Server(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deck() -> Deck {
        let kill = ServerFault {
            kind: "kill",
            lasts: Duration::ZERO..=Duration::from_secs(1),
            weakens: None,
        };
        let stop = ServerFault { kind: "stop", ..kill.clone() };
        Deck {
            holders: 3,
            has_links: true,
            servers: vec![kill, stop],
            only: Vec::new(),
            longest_ttl: Duration::from_secs(2),
            shortest_ttl: Duration::from_millis(600),
            pause: Duration::from_secs(1),
        }
    }

    #[test]
    fn equal_seeds_make_equal_plans_and_different_seeds_different_ones() {
        let span = Duration::from_secs(60);
        assert_eq!(deck().draw(7, span), deck().draw(7, span));
        assert_ne!(deck().draw(7, span), deck().draw(8, span));
        assert_eq!(deck().draw(7, span).to_string(), deck().draw(7, span).to_string());
    }

    #[test]
    fn each_kind_of_fault_comes_once_before_any_repeats_and_all_heal_in_time() {
        let span = Duration::from_secs(90);
        let plan = deck().draw(1, span);
        let kinds = |strikes: &[Strike]| {
            strikes.iter().map(|strike| strike.what.kind()).collect::<Vec<_>>()
        };
        let ours = kinds(&plan.ours);
        let mut first = ours.get(..11).unwrap().to_vec();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 11, "{ours:?}");
        for strikes in [&plan.ours, &plan.servers] {
            assert!(strikes.len() > 11);
            assert!(strikes.windows(2).all(|pair| pair[0].at + pair[0].lasts < pair[1].at));
            assert!(strikes.iter().all(|strike| strike.at + strike.lasts <= span));
        }
    }

    #[test]
    fn slow_links_take_from_a_twelfth_to_a_quarter_of_the_shortest_lease() {
        let plan = deck().draw(1, Duration::from_secs(600));
        let round_trips = plan.ours.iter().filter_map(|strike| match strike.what {
            What::Link(LinkFault::Slow(round_trip) | LinkFault::Slower(round_trip), _) => {
                Some(round_trip.as_millis())
            }
            _ => None,
        });
        let round_trips: Vec<_> = round_trips.collect();
        let some =
            |range: RangeInclusive<u128>| round_trips.iter().any(|trip| range.contains(trip));
        assert!(some(50..=60) && some(130..=150), "{round_trips:?}");
        assert!(round_trips.iter().all(|trip| (50..=150).contains(trip)), "{round_trips:?}");
    }

    #[test]
    fn only_chosen_faults_are_planned() {
        let deck = Deck { only: vec!["kill-holder".to_owned(), "stop".to_owned()], ..deck() };
        let plan = deck.draw(1, Duration::from_secs(60));
        assert!(plan.ours.iter().all(|strike| strike.what.kind() == "kill-holder"));
        assert!(plan.servers.iter().all(|strike| strike.what.kind() == "stop"));
        assert!(!plan.ours.is_empty() && !plan.servers.is_empty());
        let none = Deck { only: vec!["none".to_owned()], ..deck };
        assert_eq!(none.draw(1, Duration::from_secs(60)), Plan::default());
    }

    #[test]
    fn an_unknown_fault_is_refused_and_the_known_ones_are_named() {
        let refused = |only: &[&str], has_links| {
            let only = only.iter().map(|kind| (*kind).to_owned()).collect();
            Deck { only, has_links, ..deck() }.refuse_unknown().err().map(|error| error.to_string())
        };
        for only in [&[][..], &["kill-holder"], &["stop", "link-cut-midway"], &["none"]] {
            assert_eq!(refused(only, true), None, "{only:?}");
        }
        let text = refused(&["stop", "kil-holder"], true).unwrap();
        assert!(
            text.starts_with("the fault kil-holder is unknown here; known faults: kill-holder, "),
            "{text}"
        );
        assert!(text.contains("link-slow") && text.ends_with("kill, stop, none"), "{text}");
        // Some stores allow no proxy.
        assert!(refused(&["link-slow"], false).is_some());
        assert!(refused(&["none", "stop"], true).is_some());
    }
}
