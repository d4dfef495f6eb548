//! Gives locks back: with bounded retries, and with futures that outlive their caller.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tracing::Instrument as _;

use super::{
    agenda::{Agenda, Cleanup},
    held::Held,
    line::give_back_unclaimed,
    live::LiveClaim,
};
use crate::{
    clock::{Tick, sleep},
    error::{Error, ErrorKind, ErrorStatus, Result},
    observe::What,
    spi::{Attempt, Released, Transferred, Wait},
};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const LEAST_TRIES: u32 = 5;
const MOST_COMEBACKS: u8 = 8;

/// Removes what an abandoned claim may have left in the store.
pub(super) async fn clean_up(agenda: Arc<Agenda>, claim: LiveClaim, held: Arc<Held>) {
    if let Err(error) = Unreleased::new(agenda, Some(claim), Arc::clone(&held)).release().await {
        let error = held.explain(error, "clean up");
        let last_resort = held.locker().last_resort;
        tracing::warn!(name = %held.name, "could not clean up after a cancelled lock call, so a \
                                           record may remain; {last_resort}: {error}");
        held.observe(|| What::Failed { error: &error });
    }
}

/// Releases the lock of a guard. Its renewal was retired before: no renewal starts any more, and
/// this call waits for the one in flight (C10).
pub(crate) async fn release_held(agenda: Arc<Agenda>, held: Arc<Held>) -> Result<Released> {
    let span = held.release_span();
    released(agenda, held).instrument(span).await
}

async fn released(agenda: Arc<Agenda>, held: Arc<Held>) -> Result<Released> {
    let mut unreleased = Unreleased::new(agenda, None, Arc::clone(&held));
    // Not bounded, because a claim that stayed in the slot would never be released. Each renewal is
    // bounded, as long as it is polled.
    unreleased.claim = held.slot.lock().await.take();
    match unreleased.release().await {
        Ok(outcome) => {
            held.observe(|| What::Released { token: held.token(), outcome });
            Ok(outcome)
        }
        Err(error) => {
            let error = held.explain(error, "release");
            let last_resort = held.locker().last_resort;
            tracing::warn!(name = %held.name, "could not release the dropped lock in the store; \
                                               {last_resort}: {error}");
            held.observe(|| What::Failed { error: &error });
            Err(error)
        }
    }
}

/// A claim or hold that must be released. If it is dropped before that, by a runtime that ends or
/// by a panic, it returns to the agenda for the next task.
pub(super) struct Unreleased {
    agenda: Arc<Agenda>,
    /// `None`: the claim is still in its slot.
    claim: Option<LiveClaim>,
    held: Arc<Held>,
    /// The ttl of the owner to whom it asked to transfer the lock, or zero. After a lost answer,
    /// that owner may have the lock in the store.
    successor_ttl: Duration,
    settled: bool,
}

impl Unreleased {
    pub(super) fn new(agenda: Arc<Agenda>, claim: Option<LiveClaim>, held: Arc<Held>) -> Self {
        Self { agenda, claim, held, successor_ttl: Duration::ZERO, settled: false }
    }

    pub(super) async fn attempt(&mut self, wait: Wait, budget: Duration) -> Result<Attempt> {
        match &mut self.claim {
            Some(claim) => claim.attempt(wait, budget).await,
            None => Err(Error::new(
                ErrorKind::Unexpected,
                "the driver made an attempt without a claim; report this as a bug of lockkit",
            )),
        }
    }

    pub(super) fn settle(mut self) -> Option<LiveClaim> {
        self.settled = true;
        self.claim.take()
    }

    async fn release(mut self) -> Result<Released> {
        let transferred = self.transfer().await;
        let outcome = match (transferred, &mut self.claim) {
            (TransferOutcome::Done, _) => Ok(Released::Freed),
            (TransferOutcome::NotDone { unknown }, Some(claim)) => {
                give_up(claim, &self.held, self.successor_ttl, unknown).await
            }
            (TransferOutcome::Refused, Some(claim)) => {
                give_up(claim, &self.held, self.successor_ttl, false).await.map(|_| Released::Freed)
            }
            (_, None) => Ok(Released::NotHeld),
        };
        self.settled = true;
        self.held.pass_on();
        outcome
    }

    /// Transfers the lock to the next in line of this process, where the store can.
    async fn transfer(&mut self) -> TransferOutcome {
        let mut outcome = TransferOutcome::NotDone { unknown: false };
        let Some(claim) = &mut self.claim else { return outcome };
        // A release that was cut off may have asked for a transfer already, so only a release may
        // follow it.
        if self.held.comebacks.load(Relaxed) > 0 {
            self.successor_ttl = self.held.locker().longest_ttl();
            return outcome;
        }
        let Some(transfer) = self.agenda.gates.transfer(&self.held) else { return outcome };
        let Some(waiter) = transfer.waiter().map(Arc::clone) else { return outcome };
        let successor = waiter.successor();
        self.successor_ttl = successor.ttl;
        let asked = self.held.locker().clock.now();
        waiter.held.in_transfer.store(true, Relaxed);
        let op_timeout = self.held.limits().op_timeout;
        let answer = claim.transfer(&successor, transfer.policy, op_timeout).await;
        let unknown = answer.as_ref().is_err_and(Error::is_outcome_unknown);
        let may_be_done = unknown || matches!(answer, Ok(Transferred::Granted(_)));
        waiter.held.in_transfer.store(may_be_done, Relaxed);
        match answer {
            Ok(Transferred::Granted(grant)) => {
                if !waiter.promise() {
                    return TransferOutcome::Refused;
                }
                let Some(claim) = self.claim.take() else { return outcome };
                match waiter.accept(successor.owner, claim, asked, grant) {
                    Ok(due) => {
                        self.agenda.schedule(&waiter.held, due);
                        if !transfer.deliver() {
                            give_back_unclaimed(&self.agenda, &waiter.held);
                        }
                    }
                    Err(claim) => {
                        waiter.break_promise();
                        self.claim = Some(claim);
                        return TransferOutcome::Refused;
                    }
                }
                outcome = TransferOutcome::Done;
            }
            Ok(Transferred::Yielded) => {
                transfer.yields();
                outcome = TransferOutcome::Done;
            }
            Ok(Transferred::NotHeld) => {}
            Err(error) => {
                let error = self.held.explain(error, "transfer");
                self.held.observe(|| What::Failed { error: &error });
                outcome = TransferOutcome::NotDone { unknown };
            }
        }
        outcome
    }
}

enum TransferOutcome {
    /// The previous owner has nothing in the store any more.
    Done,
    NotDone {
        /// Whether the store may have done the transfer.
        unknown: bool,
    },
    /// The claim now has the lock for the next in line, and that waiter cannot take it.
    Refused,
}

impl Drop for Unreleased {
    fn drop(&mut self) {
        // A release that panics each time must not return for ever.
        if self.settled || self.held.comebacks.fetch_add(1, Relaxed) >= MOST_COMEBACKS {
            return;
        }
        let held = Arc::clone(&self.held);
        self.agenda.push(match self.claim.take() {
            Some(claim) => Cleanup::Claim(claim, held),
            None => Cleanup::Release(held, None),
        });
    }
}

/// Until when something that a claim left in the store may live: for one ttl. That is its own or
/// its successor's, whichever is longer. If the lease was extended by hand and ends later, until
/// the end of that lease.
fn lives_until(held: &Held, successor_ttl: Duration, now: Tick) -> Tick {
    let ttl = now.after(held.limits().ttl.max(successor_ttl));
    let extended = held.lease_end();
    if extended == Tick::NEVER { ttl } else { ttl.max(extended) }
}

/// Tries at least five times, and for as long as something that the claim left may live in the
/// store.
///
/// # Errors
/// The last error of the store. The outcome is then unknown, and the lease or the backend ends the
/// lock.
async fn give_up(
    claim: &mut LiveClaim,
    held: &Held,
    successor_ttl: Duration,
    mut unknown: bool,
) -> Result<Released> {
    let clock = held.locker().clock;
    let mut tries = 0;
    let mut pause = FIRST_PAUSE;
    let mut lapsed = None;
    loop {
        let error = match claim.release(held.limits().op_timeout).await {
            // C7: an earlier try may have freed the lock. Before the deadline, nothing else can
            // have ended it.
            Ok(Released::NotHeld) if unknown && clock.now() < held.lease_end() => {
                return Ok(Released::Freed);
            }
            Ok(Released::NotHeld) if unknown => {
                let text = "the store did not answer the first request to release, and the lease \
                            has ended since; this claim no longer has the lock, but it may have \
                            lost the lock before the release";
                let error =
                    Error::new(ErrorKind::Unavailable, text).with_status(ErrorStatus::Permanent);
                return Err(error.with_outcome_unknown());
            }
            Ok(released) => return Ok(released),
            Err(error) => error,
        };
        unknown |= error.is_outcome_unknown();
        // The next task of this process must be able to see the store's error itself.
        held.pass_on();
        tries += 1;
        let worthwhile = error.is_temporary() || error.is_outcome_unknown();
        let lapsed = *lapsed.get_or_insert_with(|| lives_until(held, successor_ttl, clock.now()));
        if !worthwhile || (tries >= LEAST_TRIES && clock.now() >= lapsed) {
            // The store may have done an earlier request.
            let error = if unknown { error.with_outcome_unknown() } else { error };
            return Err(error.with_status(ErrorStatus::Persistent));
        }
        held.observe(|| What::Failed { error: &error });
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
