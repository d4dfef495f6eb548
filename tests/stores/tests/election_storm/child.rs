//! The processes of a storm, and what they record.

use std::{cell::Cell, future::pending, path::Path, time::Duration};

use libtest_mimic::Failed;
use lockkit::{Election, ErrorKind, Hold, LockOptions};
use lockkit_fixture::end_with_parent;
use lockkit_torture::{
    clock::now,
    history::{Event, Holder, Lock, Mode, Op, Outcome, Patience, Refusal, Renewal, Writer},
};
use rand::RngExt as _;
use tokio::{runtime::Builder, time::sleep};

use crate::settled;

pub(crate) const ELECTION: &str = "storm";
pub(crate) const CANDIDATE: &str = "candidate";
pub(crate) const OBSERVER: &str = "observer";
pub(crate) const BETWEEN_CHECKS: Duration = Duration::from_millis(10);

/// The checker treats an election as a mutex.
pub(crate) fn lock() -> Lock {
    Lock::Mutex(ELECTION.to_owned())
}

pub(crate) fn run(words: &[String]) -> Result<(), Failed> {
    let [role, url, process, ttl, folder] = words else {
        return Err("what is this process to be?".into());
    };
    end_with_parent();
    let process = process.parse()?;
    let ttl = Duration::from_millis(ttl.parse()?);
    let history = Writer::create(&Path::new(folder).join(format!("{process}.jsonl")), process)?;
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let locker = loop {
            match lockkit::connect(url).await {
                // On a busy machine, a session may end before it is granted; the next attempt opens
                // another one.
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                locker => break locker?,
            }
        };
        let election = locker.election(ELECTION)?.with_options(LockOptions::new().with_ttl(ttl))?;
        history.write(Event::Begins { backend: locker.descriptor().name.to_owned() });
        if role == OBSERVER {
            return observe(&election, &history).await;
        }
        let candidate = Candidate {
            election,
            history,
            process,
            ttl,
            claims: Cell::new(0),
            state: Cell::default(),
        };
        if process.is_multiple_of(2) {
            candidate.by_hand().await
        } else {
            candidate.by_the_helper().await
        }
    })
}

async fn observe(election: &Election, history: &Writer) -> Result<(), Failed> {
    let mut watch = election.watch();
    loop {
        let leader = match watch.changed().await {
            // The reason is the same as above.
            Err(error) if error.kind() == ErrorKind::Unavailable => continue,
            leader => leader?,
        };
        let holders = leader.map(|leader| Holder {
            op: None,
            token: Some(leader.term.get()),
            mode: Mode::Exclusive,
        });
        let answered = now();
        let holders = holders.into_iter().collect();
        history.write_at(answered, Event::Seen { lock: lock(), answered, holders, waiters: None });
    }
}

/// The state of the candidate's present claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    Asked,
    Leads,
    Resigns,
    #[default]
    Lost,
}

struct Candidate {
    election: Election,
    history: Writer,
    process: u32,
    ttl: Duration,
    claims: Cell<u64>,
    state: Cell<State>,
}

impl Candidate {
    async fn by_hand(&self) -> Result<(), Failed> {
        loop {
            self.asks();
            let leadership = match self.election.campaign(&self.process.to_string()).await {
                // The reason is the same as above.
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    self.history.write(Event::Refused {
                        op: self.op(),
                        why: Refusal::Unknown(error.to_string()),
                    });
                    continue;
                }
                leadership => leadership?,
            };
            if self.leads(&leadership.hold()).await {
                let outcome = match leadership.resign().await {
                    Ok(()) => Outcome::Freed,
                    Err(error) if error.kind() == ErrorKind::Lost => Outcome::NotHeld,
                    Err(error) if error.kind() == ErrorKind::Unavailable => {
                        Outcome::Unknown(error.to_string())
                    }
                    Err(error) => return Err(error.into()),
                };
                self.history.write(Event::Released { op: self.op(), outcome });
            }
        }
    }

    async fn by_the_helper(&self) -> Result<(), Failed> {
        loop {
            self.asks();
            let work = async |hold: Hold| {
                let _work = Work(self);
                if !self.leads(&hold).await {
                    // The helper ends this work, and continues.
                    pending::<()>().await;
                }
            };
            self.election.lead(&self.process.to_string(), work).await?;
            // The helper does not report how it resigned.
            self.history.write(Event::Released { op: self.op(), outcome: Outcome::Dropped });
        }
    }

    fn op(&self) -> Op {
        Op { process: self.process, number: self.claims.get() }
    }

    fn asks(&self) {
        self.claims.set(self.claims.get() + 1);
        self.state.set(State::Asked);
        self.history.write(Event::Asks {
            op: self.op(),
            lock: lock(),
            mode: Mode::Exclusive,
            ttl: self.ttl,
            renewal: Renewal::Auto,
            patience: Patience::Unbounded,
            max_hold: None,
        });
    }

    fn loses(&self) {
        self.state.set(State::Lost);
        self.history.write(Event::Lost { op: self.op(), reason: None });
    }

    /// Records how long the candidate leads. Returns false if that ended before the candidate
    /// wanted it.
    async fn leads(&self, hold: &Hold) -> bool {
        if self.state.get() != State::Asked {
            self.asks();
        }
        let op = self.op();
        let stay = match rand::rng().random_range(0..4) {
            0 => Duration::from_millis(rand::rng().random_range(0..100)),
            1 => Duration::from_millis(rand::rng().random_range(300..1_000)),
            _ => settled() * 2,
        };
        let end = now() + nanos(stay);
        loop {
            // The instant is read before the question, so the answer also holds for this instant.
            let at = now();
            let remaining = hold.remaining();
            let until = at + nanos(remaining);
            if self.state.replace(State::Leads) == State::Asked {
                let owner = hold.owner().to_string();
                let token = hold.fencing_token().get();
                self.history.write_at(at, Event::Granted { op, owner, token, until });
            } else if !remaining.is_zero() {
                self.history.write_at(at, Event::Holds { op, until });
            }
            if remaining.is_zero() {
                self.loses();
                return false;
            }
            if at >= end {
                self.state.set(State::Resigns);
                self.history.write(Event::Releases { op });
                return true;
            }
            sleep(BETWEEN_CHECKS).await;
        }
    }
}

/// The work of a leader. The helper drops it when the leadership is lost, and campaigns again. The
/// work may not have noticed the loss by then.
struct Work<'a>(&'a Candidate);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let Self(candidate) = self;
        if candidate.state.get() == State::Leads {
            candidate.loses();
        }
        if candidate.state.get() == State::Lost {
            candidate.asks();
        }
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap()
}
