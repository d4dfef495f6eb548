//! Tests random histories of several claims on two names, and checks them against the contract
//! after each step.

use std::{collections::VecDeque, time::Duration};

use proptest::{
    collection::{self, VecStrategy},
    prelude::*,
    sample,
};

use super::world::{Client, World, permits, secs, spec};
use crate::{
    clock::Tick,
    name::{Kind, LockName},
    spi::{Attempt, Mode, Released, RenewalOutcome, Wait},
};

const CLIENTS: usize = 8;
const LIMIT: u32 = 3;
const SHORTEST_PLACE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
enum Step {
    Do(Act, usize),
    Pass(u64),
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Try,
    Queue,
    KeepAlive,
    Release,
    ForceRelease,
}

/// The state of a claim, as the test knows it from the answers.
struct Shadow {
    client: Client,
    name: usize,
    last_token: u64,
    lease_ends: Tick,
    /// Whether the claim was woken since its last attempt.
    told: bool,
}

struct History {
    world: World,
    names: [LockName; 2],
    shadows: Vec<Shadow>,
    /// The waiters in the order of their first attempts, each with the end of its place.
    queues: [VecDeque<(usize, Tick)>; 2],
    largest_token: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let act = prop_oneof![
        2 => Just(Act::Try),
        8 => Just(Act::Queue),
        2 => Just(Act::KeepAlive),
        6 => Just(Act::Release),
        1 => Just(Act::ForceRelease),
    ];
    prop_oneof![
        6 => (act, 0..CLIENTS).prop_map(|(act, who)| Step::Do(act, who)),
        1 => (1_u64..4_000).prop_map(Step::Pass),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    sample::select(vec![
        Mode::Exclusive,
        Mode::Exclusive,
        Mode::Shared,
        Mode::Shared,
        permits(1, LIMIT),
        permits(2, LIMIT),
        permits(3, LIMIT),
    ])
}

fn claims() -> VecStrategy<impl Strategy<Value = (Mode, u64)>> {
    collection::vec((mode(), 1_u64..10), CLIENTS)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c1_c4_c8_c12_hold_after_each_step(claims in claims(), steps in collection::vec(step(), 1..120)) {
        let mut history = History::new(&claims);
        for step in steps {
            history.take(step);
        }
        history.end();
    }
}

impl History {
    fn new(claims: &[(Mode, u64)]) -> Self {
        let names = ["a", "b"].map(|text| LockName::new(Kind::Mutex, text).unwrap());
        let shadow = |(at, &(mode, ttl)): (usize, &(Mode, u64))| {
            let name = at % 3 % 2;
            let mut spec = spec(mode);
            (spec.name, spec.ttl) = (names[name].clone(), secs(ttl));
            let client = Client::with_spec(spec);
            Shadow { client, name, last_token: 0, lease_ends: Tick::from_nanos(0), told: false }
        };
        let shadows = claims.iter().enumerate().map(shadow).collect();
        Self { world: World::new(), names, shadows, queues: Default::default(), largest_token: 0 }
    }

    fn take(&mut self, step: Step) {
        let (act, who) = match step {
            Step::Do(act, who) => (act, who),
            Step::Pass(millis) => return self.pass(Duration::from_millis(millis)),
        };
        match act {
            Act::Try => self.attempt(who, Wait::No),
            Act::Queue => self.attempt(who, Wait::Queue),
            Act::KeepAlive => self.keep_alive(who),
            Act::Release => self.release(who),
            Act::ForceRelease => self.force_release(who),
        }
        self.check_name(self.shadows[who].name);
    }

    fn attempt(&mut self, who: usize, wait: Wait) {
        let held = self.holds(who);
        let name = self.shadows[who].name;
        let place = self.queues[name].iter().position(|&(waiter, _)| waiter == who);
        let told = self.told(who);
        let answer = self.world.attempt(&self.shadows[who].client, wait);
        self.shadows[who].client.wakes();
        self.shadows[who].told = false;
        match answer {
            Attempt::Granted(grant) => {
                let token = grant.token.get();
                if held {
                    assert_eq!(token, self.shadows[who].last_token, "a retry has its own token");
                } else {
                    assert!(token > self.largest_token, "tokens rise");
                    self.largest_token = token;
                    self.check_nobody_is_passed(who, place);
                    self.queues[name].retain(|&(waiter, _)| waiter != who);
                }
                self.granted(who, token);
            }
            Attempt::Busy { queued, retry_after } => {
                assert!(!held, "a holder is never refused");
                assert!(!told, "whoever was woken is granted");
                assert_eq!(queued, wait != Wait::No);
                assert!(retry_after.is_some_and(|time| !time.is_zero() && time <= secs(10)));
                let lapses =
                    self.world.now.after(self.shadows[who].client.spec.ttl.max(SHORTEST_PLACE));
                match place {
                    Some(at) if queued => self.queues[name][at].1 = lapses,
                    Some(at) => drop(self.queues[name].remove(at)),
                    None if queued => self.queues[name].push_back((who, lapses)),
                    None => {}
                }
            }
        }
    }

    fn keep_alive(&mut self, who: usize) {
        let held = self.holds(who);
        let alive =
            matches!(self.world.keep_alive(&self.shadows[who].client), RenewalOutcome::Alive(_));
        assert_eq!(alive, held, "a renewal never creates and never drops a grant");
        if alive {
            self.granted(who, self.shadows[who].last_token);
        }
    }

    fn release(&mut self, who: usize) {
        let held = self.holds(who);
        let freed = self.world.release(&self.shadows[who].client) == Released::Freed;
        assert_eq!(freed, held, "release says what was true");
        self.shadows[who].lease_ends = self.world.now;
        self.queues[self.shadows[who].name].retain(|&(waiter, _)| waiter != who);
    }

    fn force_release(&mut self, who: usize) {
        let held = self.holds(who);
        self.told(who);
        let shadow = &mut self.shadows[who];
        let freed = self.world.force_release(&shadow.client, shadow.last_token) == Released::Freed;
        assert_eq!(freed, held);
        assert!(!held || shadow.client.wakes() > 0, "the holder learns of it");
        shadow.lease_ends = self.world.now;
    }

    fn pass(&mut self, time: Duration) {
        self.world.pass(time);
        let now = self.world.now;
        for queue in &mut self.queues {
            queue.retain(|&(_, lapses)| now < lapses);
        }
    }

    /// Checks that nothing is left once everything has ended.
    fn end(mut self) {
        self.pass(secs(60));
        assert_eq!(self.world.names(), 0);
    }

    fn granted(&mut self, who: usize, token: u64) {
        let shadow = &mut self.shadows[who];
        shadow.last_token = token;
        shadow.lease_ends = shadow.lease_ends.max(self.world.now.after(shadow.client.spec.ttl));
    }

    fn holds(&self, who: usize) -> bool {
        self.world.now < self.shadows[who].lease_ends
    }

    fn told(&mut self, who: usize) -> bool {
        let shadow = &mut self.shadows[who];
        shadow.told |= shadow.client.wakes() > 0;
        shadow.told && self.queues[shadow.name].iter().any(|&(waiter, _)| waiter == who)
    }

    fn mode(&self, who: usize) -> Mode {
        self.shadows[who].client.spec.mode
    }

    /// The holders of a name, by the answers that they got.
    fn holders(&self, name: usize) -> Vec<usize> {
        (0..CLIENTS).filter(|&who| self.shadows[who].name == name && self.holds(who)).collect()
    }

    /// Checks that a grant leaves room for each waiter ahead of it.
    fn check_nobody_is_passed(&self, who: usize, place: Option<usize>) {
        let name = self.shadows[who].name;
        let queue = &self.queues[name];
        let mut modes: Vec<_> =
            self.holders(name).into_iter().map(|holder| self.mode(holder)).collect();
        modes.extend(
            queue.iter().take(place.unwrap_or(queue.len())).map(|&(ahead, _)| self.mode(ahead)),
        );
        modes.push(self.mode(who));
        assert!(may_be_together(&modes), "{who} passed somebody: {modes:?}");
    }

    /// Checks the state of a name after each operation on it.
    fn check_name(&mut self, name: usize) {
        let holders = self.holders(name);
        let seen = self.world.inspect_name(&self.names[name]);
        let mut owners: Vec<_> = seen.holders.iter().map(|holder| holder.owner.unwrap()).collect();
        let mut expected: Vec<_> =
            holders.iter().map(|&who| self.shadows[who].client.spec.owner).collect();
        owners.sort();
        expected.sort();
        assert_eq!(owners, expected, "inspection tells who holds it");
        assert_eq!(seen.waiters, u64::try_from(self.queues[name].len()).ok());

        let mut modes: Vec<_> = seen.holders.iter().map(|holder| holder.mode).collect();
        assert!(may_be_together(&modes), "{modes:?}");
        let in_use = !(holders.is_empty() && self.queues[name].is_empty());
        assert_eq!(self.world.has_record(&self.names[name]), in_use, "an idle name leaves nothing");

        for who in self.queues[name].iter().map(|&(who, _)| who).collect::<Vec<_>>() {
            modes.push(self.mode(who));
            let may = may_be_together(&modes);
            assert_eq!(
                self.told(who),
                may,
                "exactly those are woken that can be granted: {who} in {modes:?}"
            );
            if !may {
                break;
            }
        }
    }
}

/// States C1 in another way than the model does.
fn may_be_together(modes: &[Mode]) -> bool {
    let permits =
        |mode: &Mode| if let Mode::Permits { count, .. } = mode { Some(count.get()) } else { None };
    let all_permits: Option<Vec<u32>> = modes.iter().map(permits).collect();
    let one = modes.len() <= 1;
    one || modes.iter().all(|mode| *mode == Mode::Shared)
        || all_permits.is_some_and(|counts| counts.iter().sum::<u32>() <= LIMIT)
}
