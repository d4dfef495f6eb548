//! Builds a history by hand. Times are in milliseconds, and a lease lasts a second.

use std::time::Duration;

use crate::{
    check::{Rule, Terms, Verdict, Violation, check},
    history::{
        DIRECTOR, Event, Holder, Lock, Mode, Op, Outcome, Patience, REGISTER, Record, Refusal,
        Renewal,
    },
};

pub(crate) const TTL: Duration = Duration::from_secs(1);

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn mutex() -> Lock {
    Lock::Mutex("m".to_owned())
}

pub(crate) fn rw_lock() -> Lock {
    Lock::RwLock("rw".to_owned())
}

pub(crate) fn semaphore(limit: u32) -> Lock {
    Lock::Semaphore { name: "s".to_owned(), limit }
}

/// A store that takes no longer than the lease, on a machine that may take 100 ms more.
pub(crate) const TERMS: Terms = Terms {
    connection_bound: false,
    ends_with_links: false,
    async_failover: false,
    takeover_delay: Duration::ZERO,
    slack: ms(100),
    told_within: ms(100),
};

#[derive(Clone)]
pub(crate) struct HistoryBuilder {
    pub(crate) records: Vec<Record>,
    pub(crate) terms: Terms,
    next: u64,
    faults: u32,
    lock: Lock,
    mode: Mode,
    ttl: Duration,
    renewal: Renewal,
    patience: Patience,
    max_hold: Option<Duration>,
    early: bool,
}

impl HistoryBuilder {
    pub(crate) fn new() -> Self {
        Self {
            records: Vec::new(),
            terms: TERMS,
            next: 0,
            faults: 0,
            lock: mutex(),
            mode: Mode::Exclusive,
            ttl: TTL,
            renewal: Renewal::Manual,
            patience: Patience::Unbounded,
            max_hold: None,
            early: false,
        }
    }

    /// Ignores holds that are lost early, because the test is about something else.
    pub(crate) fn early(&mut self) -> &mut Self {
        self.early = true;
        self
    }

    /// From here on the claims ask for this lock in this mode.
    pub(crate) fn of(&mut self, lock: Lock, mode: Mode) -> &mut Self {
        (self.lock, self.mode) = (lock, mode);
        self
    }

    pub(crate) fn patient(&mut self, patience: Patience) -> &mut Self {
        self.patience = patience;
        self
    }

    pub(crate) fn renewed(&mut self, renewal: Renewal) -> &mut Self {
        self.renewal = renewal;
        self
    }

    pub(crate) fn at_most(&mut self, max_hold: Duration) -> &mut Self {
        self.max_hold = Some(max_hold);
        self
    }

    pub(crate) fn write(&mut self, at: u64, process: u32, event: Event) -> &mut Self {
        self.records.push(Record { at: at * 1_000_000, process, event });
        self
    }

    pub(crate) fn asks(&mut self, at: u64, process: u32) -> Op {
        self.next += 1;
        let op = Op { process, number: self.next };
        let lock = self.lock.clone();
        let mode = self.mode;
        let ttl = self.ttl;
        let renewal = self.renewal;
        let patience = self.patience;
        let max_hold = self.max_hold;
        self.write(at, process, Event::Asks { op, lock, mode, ttl, renewal, patience, max_hold });
        op
    }

    pub(crate) fn granted(&mut self, at: u64, op: Op, token: u64, until: u64) -> &mut Self {
        let owner = format!("owner of {op}");
        let until = until * 1_000_000;
        self.write(at, op.process, Event::Granted { op, owner, token, until })
    }

    /// A claim that is granted at once, for a whole lease.
    pub(crate) fn holder(&mut self, at: u64, process: u32, token: u64) -> Op {
        let op = self.asks(at, process);
        self.granted(at + 1, op, token, at + 1000);
        op
    }

    pub(crate) fn refused(&mut self, at: u64, op: Op, why: Refusal) -> &mut Self {
        self.write(at, op.process, Event::Refused { op, why })
    }

    pub(crate) fn holds(&mut self, at: u64, op: Op, until: u64) -> &mut Self {
        self.write(at, op.process, Event::Holds { op, until: until * 1_000_000 })
    }

    pub(crate) fn renews(&mut self, at: u64, op: Op) -> &mut Self {
        self.write(at, op.process, Event::Renews { op, lease: None })
    }

    pub(crate) fn listens(&mut self, at: u64, op: Op) -> &mut Self {
        self.write(at, op.process, Event::Listens { op })
    }

    pub(crate) fn told(&mut self, at: u64, op: Op) -> &mut Self {
        self.write(at, op.process, Event::Told { op, reason: "expired".to_owned() })
    }

    pub(crate) fn renewed_by_hand(&mut self, at: u64, op: Op, error: Option<&str>) -> &mut Self {
        let error = error.map(str::to_owned);
        self.write(at, op.process, Event::Renewed { op, error })
    }

    pub(crate) fn stalled(&mut self, from: u64, to: u64, process: u32) -> &mut Self {
        self.write(to, process, Event::Stalled { lasted: ms(to - from) })
    }

    pub(crate) fn lost(&mut self, at: u64, op: Op) -> &mut Self {
        self.write(at, op.process, Event::Lost { op, reason: None })
    }

    pub(crate) fn releases(&mut self, at: u64, op: Op) -> &mut Self {
        self.write(at, op.process, Event::Releases { op })
    }

    /// A release that ends at once.
    pub(crate) fn released(&mut self, at: u64, op: Op, outcome: Outcome) -> &mut Self {
        self.releases(at, op).write(at + 1, op.process, Event::Released { op, outcome })
    }

    /// A write to the register, which the register compares a millisecond later.
    pub(crate) fn wrote(
        &mut self,
        at: u64,
        op: Op,
        token: u64,
        largest: u64,
        accepted: bool,
        careless: bool,
    ) -> &mut Self {
        let lock = self.lock.clone();
        self.write(at, op.process, Event::Writes { op, careless });
        self.write(at + 1, REGISTER, Event::Compared { op, lock, token, largest, accepted });
        self.write(at + 2, op.process, Event::Written { op, accepted })
    }

    pub(crate) fn seen(&mut self, at: u64, process: u32, holders: &[(Op, u64)]) -> &mut Self {
        let lock = self.lock.clone();
        let mode = self.mode;
        let one = |(op, token): &(Op, u64)| Holder { op: Some(*op), token: Some(*token), mode };
        let answered = (at + 1) * 1_000_000;
        let holders = holders.iter().map(one).collect();
        self.write(at, process, Event::Seen { lock, answered, holders, waiters: None })
    }

    pub(crate) fn strikes(
        &mut self,
        at: u64,
        kind: &str,
        victim: Option<u32>,
        weakens: Option<&str>,
    ) -> u32 {
        self.faults += 1;
        let fault = self.faults;
        let kind = kind.to_owned();
        let target = "the target".to_owned();
        let weakens = weakens.map(str::to_owned);
        self.write(at, DIRECTOR, Event::Strikes { fault, kind, target, victim, weakens });
        fault
    }

    pub(crate) fn heals(&mut self, at: u64, fault: u32) -> &mut Self {
        self.write(at, DIRECTOR, Event::Heals { fault })
    }

    /// A fault between the two times.
    pub(crate) fn fault(
        &mut self,
        from: u64,
        to: u64,
        kind: &str,
        victim: Option<u32>,
        weakens: Option<&str>,
    ) -> &mut Self {
        let fault = self.strikes(from, kind, victim, weakens);
        self.heals(to, fault)
    }

    /// Kills a process. The director sees it dead a millisecond later.
    pub(crate) fn killed(&mut self, at: u64, victim: u32) -> &mut Self {
        self.strikes(at, "kill-holder", Some(victim), None);
        self.write(at + 1, DIRECTOR, Event::Died { victim })
    }

    pub(crate) fn ends(&mut self, at: u64, process: u32) -> &mut Self {
        self.write(at, process, Event::Ends { tasks: 0, files: 0 })
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let mut records = self.records.clone();
        records.sort_by_key(|record| record.at);
        let mut verdict = check(&records, &self.terms);
        verdict.violations.retain(|violation| !(self.early && violation.rule == Rule::Renewal));
        verdict
    }

    #[track_caller]
    pub(crate) fn is_fine(&self) -> Verdict {
        let verdict = self.verdict();
        assert_eq!(verdict.violations, Vec::new());
        verdict
    }

    /// Asserts that the history has exactly one violation, of that rule.
    #[track_caller]
    pub(crate) fn breaks(&self, rule: Rule) -> Violation {
        let mut violations = self.verdict().violations;
        assert_eq!(violations.len(), 1, "{violations:#?}");
        let violation = violations.remove(0);
        assert_eq!(violation.rule, rule, "{violation:#?}");
        assert!(
            !violation.slice.is_empty() && violation.slice.is_sorted_by_key(|record| record.at)
        );
        violation
    }
}
