//! One owner that competes for one name, and holds it by a row lock.
//!
//! 1. On a connection of its own, begin a transaction and lock the row of the name (`FOR UPDATE`).
//!    The server lets the waiters in, one after the other.
//! 2. On another connection, raise the token from the value that was read under the lock.
//! 3. Ask the lock's connection once more whether the transaction is open. From then on the lock is
//!    held, as long as the server gets a request on that connection within `wait_timeout`.
//! 4. A renewal is a request on that connection.
//! 5. A release ends the transaction. If the connection breaks, the server ends it.

mod ask;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    Clock, Error, ErrorKind, FencingToken, Result, Tick,
    spi::{
        Attachment, Attempt, Claim, ClaimSpec, Grant, Lease, LossReason, Note, Noted, QueuePolicy,
        Released, RenewalOutcome, Transferred, Wait,
    },
};
use tokio::{sync::Mutex, time::timeout};

use super::{
    MAX_PATIENCE, MIN_TTL, Store,
    acquire::{Locked, end_of, not_known},
    inspect::is_alive,
    row_lock::{End, PingOutcome, RowLock},
    sql::{Key, LONGEST},
    transaction::LockTransaction,
};
use crate::{
    error::{self, Phase},
    note::{self, Proof},
    server::Server,
    sql::literal,
    waiting::Place,
};

/// How long it may take to find out why a lock is lost. The loss itself is known already.
const TELLING: Duration = Duration::from_millis(300);

/// A claim for a lock that is a locked row.
#[derive(Debug)]
pub(crate) struct RowClaim {
    store: Arc<Store>,
    spec: ClaimSpec,
    key: Arc<Key>,
    stage: Stage,
    /// The place of this claim among the waiters of this process.
    place: Option<Place>,
}

#[derive(Debug)]
enum Stage {
    Nothing,
    /// The row is ours, and the lease of a dead holder may last until then.
    Open(Box<RowLock>, Tick),
    Held(Arc<Mutex<RowLock>>, Arc<LockTransaction>),
    /// A release got no answer, and the server may not have noticed yet that the connection is
    /// gone.
    Disconnected {
        server: Server,
        is_used: bool,
        successor: Option<Arc<Key>>,
    },
    /// There is no transaction any more. It may have left a strict lease that serves no holder.
    Ended {
        server: Server,
        successor: Option<Arc<Key>>,
    },
}

impl RowClaim {
    pub(crate) fn new(store: Arc<Store>, spec: ClaimSpec) -> Self {
        let key = Arc::new(Key::new(&spec));
        Self { store, spec, key, stage: Stage::Nothing, place: None }
    }

    /// Less than the whole budget, so that the caller still receives the reason of a failure.
    fn patience(&self) -> Duration {
        self.spec.op_timeout * 3 / 4
    }

    /// Whether this claim may ask the server. Only one waiter of this process waits in the server's
    /// line.
    fn is_turn(&mut self, wait: Wait) -> bool {
        if self.place.is_none() && wait != Wait::No {
            self.place = Some(self.store.waiters.join(&self.spec));
        }
        // Longer than any request can take.
        let asking = MAX_PATIENCE + self.spec.op_timeout * 2;
        self.place.as_ref().is_none_or(|place| place.step_up(asking))
    }

    fn lease(&self, at: Tick) -> Lease {
        Lease::Proven { at, lasts: self.spec.ttl }
    }

    /// Ends what the server may still have of an earlier release.
    async fn cut_adrift(&mut self) -> Result<()> {
        let Stage::Disconnected { server, is_used, successor } = &self.stage else {
            return Ok(());
        };
        let ended = self.store.pool.end(server, self.patience()).await;
        if !ended.map_err(Error::with_outcome_unknown)? {
            return Err(not_known());
        }
        let is_used = *is_used;
        self.store.settle(&self.key, successor.as_deref(), server, self.patience()).await?;
        if is_used {
            return Err(not_known());
        }
        self.stage = Stage::Nothing;
        Ok(())
    }

    /// Ends the strict lease that a lost transaction has left.
    ///
    /// # Errors
    /// The server did not end the lease, which then ends by itself. This returns before `deadline`,
    /// because the core cuts the release off there and takes its outcome for unknown.
    async fn settle(&mut self, deadline: Tick) -> Result<Released> {
        if let Stage::Ended { server, successor } = &self.stage {
            let left = Clock::Boot.now().until(deadline);
            let settling = self.store.settle(&self.key, successor.as_deref(), server, left);
            let settled = timeout(left, settling).await;
            settled.unwrap_or_else(|_| Err(error::ours(ErrorKind::Unavailable, NOT_SETTLED)))?;
            self.stage = Stage::Nothing;
        }
        Ok(Released::NotHeld)
    }

    /// Asks whether the hold is still there, and makes sure that the server keeps it for
    /// `extension`.
    async fn look_after(&mut self, extension: Option<Duration>) -> Result<RenewalOutcome> {
        let Stage::Held(held, _) = &self.stage else {
            return Ok(RenewalOutcome::Lost(LossReason::SessionLost));
        };
        // In line with the user's statements, so that short statements without a pause between them
        // can't keep this request away.
        let Ok(mut hold) = timeout(self.patience(), held.lock()).await else {
            let reason = "a statement of the program runs in the lock's transaction, so lockkit \
                          could not renew the lock on that connection; use shorter statements";
            return Err(error::ours(ErrorKind::Unavailable, reason));
        };
        let life = match extension {
            Some(lease) => hold.extend(lease).await,
            None => hold.ping().await,
        };
        let life = self.store.pool.checked(life, Phase::Read, "checking the lock")?;
        let token = hold.token();
        let longest = hold.left();
        drop(hold);
        Ok(match life {
            PingOutcome::Alive { at } => {
                let lasts = extension.unwrap_or(self.spec.ttl).max(longest);
                RenewalOutcome::Alive(Lease::Proven { at, lasts })
            }
            PingOutcome::Evicted => {
                held.lock().await.close();
                RenewalOutcome::Lost(LossReason::Evicted)
            }
            PingOutcome::Gone => {
                let evicted = timeout(TELLING, self.store.is_evicted(&self.spec.name, token)).await;
                let evicted = evicted.unwrap_or_default();
                RenewalOutcome::Lost(if evicted {
                    LossReason::Evicted
                } else {
                    LossReason::SessionLost
                })
            }
        })
    }

    async fn finish(
        &mut self,
        hold: &Mutex<RowLock>,
        transaction: &LockTransaction,
    ) -> Result<Released> {
        let deadline = Clock::Boot.now().after(self.spec.op_timeout * 7 / 8);
        let mut hold = transaction.seize(hold).await;
        let keep = !hold.is_used() || transaction.is_wanted();
        let server = hold.server().clone();
        if !keep {
            // On another connection, because this transaction is rolled back.
            self.store.settle(&self.key, hold.successor(), &server, self.patience()).await?;
        }
        // A silent connection can't end its transaction. It is killed from another connection
        // instead.
        let end = match timeout(self.spec.op_timeout / 2, hold.finish(keep)).await {
            Ok(end) => self.store.pool.checked(end, Phase::Write, "ending the transaction")?,
            Err(_) => {
                // From now on we kill the connection, so its absence proves nothing.
                hold.close();
                End::Unknown
            }
        };
        let is_used = hold.is_used() && keep;
        let has_gone = match end {
            End::Done => {
                self.stage = Stage::Nothing;
                return Ok(Released::Freed);
            }
            End::Gone => true,
            End::Unknown => false,
            End::Broken => {
                let left = Clock::Boot.now().until(deadline);
                let had_gone = timeout(left, self.store.had_gone(&server, left));
                !is_used && had_gone.await.unwrap_or_default()
            }
        };
        if has_gone {
            self.stage = Stage::Ended { server, successor: hold.take_successor() };
            drop(hold);
            return self.settle(deadline).await;
        }
        self.stage = Stage::Disconnected { server, is_used, successor: hold.take_successor() };
        Err(not_known())
    }
}

const NOT_SETTLED: &str = "the transaction had ended, but lockkit could not end its strict lease \
                           in time; other clients wait until that lease ends";
const BUSY: Attempt = Attempt::Busy { queued: false, retry_after: None };

#[async_trait]
impl Claim for RowClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        if let Some(answer) = self.resume().await? {
            return Ok(answer);
        }
        if !self.is_turn(wait) {
            return Ok(BUSY);
        }
        let Some(Locked { mut hold, open }) = self.lock(wait).await? else { return Ok(BUSY) };
        if open.is_zero() {
            return self.grant(hold).await;
        }
        if wait == Wait::No {
            hold.note_free().await;
            return Ok(Attempt::Busy { queued: false, retry_after: Some(open) });
        }
        Ok(self.wait_out(hold, end_of(open)).await?.unwrap_or(BUSY))
    }

    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome> {
        let Some(lease) = lease else { return self.look_after(None).await };
        if lease > LONGEST {
            let reason =
                format!("the lease is {lease:?}, but this store records at most {LONGEST:?}");
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        if self.store.pool.config().strict_lease {
            // A lost hold must not keep the lock from the next owner, so it is not extended. The
            // longer lease is stored before the holder relies on it.
            let outcome = self.look_after(None).await?;
            if matches!(outcome, RenewalOutcome::Lost(_)) {
                return Ok(outcome);
            }
            let keep_open = self.key.keep_open(&self.store.sql, lease);
            let mut side = self.store.pool.get_side(self.patience()).await?;
            self.store.pool.checked(
                side.script(&keep_open).await,
                Phase::Write,
                "extending the lease",
            )?;
        }
        self.look_after(Some(lease)).await
    }

    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        let floor = error::floor(floor)?;
        if !matches!(self.stage, Stage::Held(..))
            || !self.store.raise(&self.key, floor, self.patience()).await?
        {
            return Ok(None);
        }
        // A raised token is the holder's only if the row was still locked then.
        let (RenewalOutcome::Alive(_), Stage::Held(hold, _)) =
            (self.look_after(None).await.map_err(Error::with_outcome_unknown)?, &self.stage)
        else {
            return Ok(None);
        };
        let token = hold.lock().await.token();
        Ok(Some(FencingToken::new(token)))
    }

    /// Uses another connection. Inside the lock's transaction, other clients would not see the note
    /// before the release, and a rollback would undo it. While this statement has locked the row of
    /// the token, no other claim is granted the lock.
    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        let Stage::Held(..) = &self.stage else { return Ok(Noted::NotHeld) };
        let deadline = Clock::Boot.now().after(self.spec.op_timeout);
        let owner = literal(self.key.owner.as_bytes());
        let name = &self.spec.name;
        let table = self.store.sql.fence.clone();
        let proof = Proof {
            name,
            table,
            held: format!("owner={owner} AND {}", is_alive()),
            touch: String::new(),
        };
        let mut side = self.store.pool.get_side(self.patience()).await?;
        let noted = note::write(&self.store.pool, &mut side, &proof, note, deadline).await?;
        noted.ok_or_else(|| error::late(self.spec.op_timeout))
    }

    async fn transfer(&mut self, to: &ClaimSpec, policy: QueuePolicy) -> Result<Transferred> {
        if to.name != self.spec.name || to.mode != self.spec.mode || to.ttl < MIN_TTL {
            let reason = format!(
                "this strategy transfers a lock only to the same name, and only with a ttl of at \
                 least {MIN_TTL:?}"
            );
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        let Stage::Held(hold, transaction) = &self.stage else { return Ok(Transferred::NotHeld) };
        let hold = Arc::clone(hold);
        let transaction = Arc::clone(transaction);
        // A `run` that is in order ends first. A `run` that is not wanted any more was interrupted
        // when its guard was dropped.
        let mut held = hold.lock().await;
        if held.is_used() && !transaction.is_settled() {
            let reason = "the program used the lock's transaction, but neither released nor \
                          dropped the guard, so lockkit does not know whether to commit";
            return Err(error::ours(ErrorKind::Unexpected, reason));
        }
        // No client can see who waits for the row. And the release must commit what one owner did
        // in the transaction, so that the next owner has nothing to do with it.
        if policy != QueuePolicy::TransferFirst || held.is_used() || held.successor().is_some() {
            drop(held);
            return Ok(match self.release().await? {
                Released::Freed => Transferred::Yielded,
                Released::NotHeld => Transferred::NotHeld,
            });
        }
        let successor = Arc::new(Key::new(to));
        let granted =
            self.store.transfer(&mut held, &self.key, &successor, self.spec.op_timeout).await?;
        let Some((token, at)) = granted else { return Ok(Transferred::NotHeld) };
        // The previous owner may still have a handle of the transaction, which can do nothing from
        // now on.
        let new = Arc::new(Mutex::new(held.transfer_to(Arc::clone(&successor))));
        self.stage = Stage::Held(Arc::clone(&new), Arc::new(LockTransaction::new(&new)));
        (self.spec, self.key) = (to.clone(), successor);
        Ok(Transferred::Granted(Grant::new(token, self.lease(at))))
    }

    async fn release(&mut self) -> Result<Released> {
        self.place = None;
        let released = match &mut self.stage {
            Stage::Nothing => return Ok(Released::NotHeld),
            Stage::Held(hold, transaction) => {
                let hold = Arc::clone(hold);
                let transaction = Arc::clone(transaction);
                self.finish(&hold, &transaction).await?
            }
            Stage::Open(hold, _) => {
                // The caller never learned that the row is ours, and the row lock ends with its
                // connection at the latest.
                let _ = hold.finish(false).await;
                self.stage = Stage::Nothing;
                Released::NotHeld
            }
            Stage::Disconnected { .. } => {
                self.cut_adrift().await?;
                Released::NotHeld
            }
            Stage::Ended { .. } => {
                self.settle(Clock::Boot.now().after(self.spec.op_timeout * 7 / 8)).await?
            }
        };
        self.store.waiters.call_first(&self.spec.name);
        Ok(released)
    }

    fn attachment(&self) -> Option<Arc<dyn Attachment>> {
        let Stage::Held(_, transaction) = &self.stage else { return None };
        let transaction: Arc<dyn Attachment> = Arc::<LockTransaction>::clone(transaction);
        Some(transaction)
    }
}
