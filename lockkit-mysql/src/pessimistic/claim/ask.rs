//! Asks the server for a grant.

use std::{future::pending, sync::Arc, time::Duration};

use lockkit_core::{
    Clock, Error, FencingToken, Result, Tick,
    spi::{Attempt, Grant, Wait},
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};

use super::{RowClaim, Stage};
use crate::pessimistic::{
    acquire::Locked,
    row_lock::{PingOutcome, RowLock},
    sql::LEAST_OPEN,
    transaction::LockTransaction,
};

/// A shorter wait counts as none, because the server would be asked to end it at once.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// A lease counts as new while less than one part in so many has passed.
const YOUNG: u32 = 100;

impl RowClaim {
    /// `None` if another owner has the lock, or if the caller is gone.
    pub(super) async fn lock(&mut self, wait: Wait) -> Result<Option<Locked>> {
        let store = &self.store;
        let spec = &self.spec;
        let key = &self.key;
        let started = Instant::now();
        let patience = match wait {
            Wait::Block(patience) if patience >= SHORTEST_WAIT => Some(patience),
            _ => None,
        };
        let gone =
            async { if patience.is_some() { spec.caller.gone().await } else { pending().await } };
        tokio::pin!(gone);
        let most = self.patience();
        let connection = tokio::select! {
            biased;
            connection = store.pool.get(patience.map_or(most, |patience| patience.min(most))) => connection?,
            () = &mut gone => return Ok(None),
        };
        let left = patience.map(|patience| patience.saturating_sub(started.elapsed()));
        let left = left.filter(|left| *left >= SHORTEST_WAIT);
        let late = async {
            match left {
                Some(left) => sleep(left).await,
                None => pending().await,
            }
        };
        let server = connection.server().clone();
        // If this statement is dropped, its connection is closed, and the statement is killed on
        // the server.
        tokio::select! {
            biased;
            locked = store.lock(connection, key, left) => locked,
            () = late => Ok(None),
            () = gone => {
                // Until the statement is gone, it might get the row. The next claim would then wait
                // for a row that has no owner.
                let _ = store.pool.end(&server, most).await;
                Ok(None)
            }
        }
    }

    /// Raises the token and makes the grant. If the call is dropped midway, the row is free again.
    ///
    /// # Errors
    /// The outcome is unknown after all but a lasting refusal. The strict lease of this claim may be
    /// stored, which a release ends. Or the server may keep the row lock, until it notices that the
    /// connection is gone.
    pub(super) async fn grant(&mut self, mut hold: RowLock) -> Result<Attempt> {
        self.stage = Stage::Ended { server: hold.server().clone(), successor: None };
        match self.store.bump(&self.key, &mut hold, self.patience()).await {
            Err(error) if error.is_temporary() => return Err(error.with_outcome_unknown()),
            raised => raised?,
        }
        let token = hold.token();
        // If the lease has become older during the wait for the row, a new proof is better.
        let at = match hold.proven() {
            at if at.until(Clock::Boot.now()) <= self.spec.ttl / YOUNG => at,
            _ => self.store.prove(&mut hold).await.map_err(Error::with_outcome_unknown)?,
        };
        let hold = Arc::new(Mutex::new(hold));
        let transaction = Arc::new(LockTransaction::new(&hold));
        self.stage = Stage::Held(hold, transaction);
        // The next waiter may go to the server now, and waits there until this hold ends.
        self.place = None;
        Ok(self.granted(token, at))
    }

    fn granted(&self, token: u64, at: Tick) -> Attempt {
        Attempt::Granted(Grant::new(FencingToken::new(token), self.lease(at)))
    }

    /// Continues where an earlier attempt stopped. `None` if this attempt has to start at the
    /// beginning.
    pub(super) async fn resume(&mut self) -> Result<Option<Attempt>> {
        if let Some(granted) = self.resume_held().await {
            return Ok(Some(granted));
        }
        match std::mem::replace(&mut self.stage, Stage::Nothing) {
            Stage::Open(hold, until) => return self.wait_out(*hold, until).await,
            stage => self.stage = stage,
        }
        self.cut_adrift().await?;
        let settled = self.settle(Clock::Boot.now().after(self.patience())).await;
        // The hold has ended, so it does not matter whether the row was still ours.
        let _ = settled.map_err(Error::with_outcome_unknown)?;
        Ok(None)
    }

    /// Answers the same grant again; `None` if there is none any more, or if its connection does not
    /// answer. If the call is dropped midway, the hold is still there.
    async fn resume_held(&mut self) -> Option<Attempt> {
        let Stage::Held(hold, _) = &self.stage else { return None };
        let hold = Arc::clone(hold);
        let mut hold = hold.lock().await;
        let life = timeout(self.patience(), hold.ping()).await;
        if let Ok(Ok(PingOutcome::Alive { at })) = life {
            return Some(self.granted(hold.token(), at));
        }
        hold.close();
        let server = hold.server().clone();
        self.stage = Stage::Ended { server, successor: hold.take_successor() };
        None
    }

    /// Keeps the row until the lease of a dead holder has ended for sure.
    pub(super) async fn wait_out(
        &mut self,
        mut hold: RowLock,
        until: Tick,
    ) -> Result<Option<Attempt>> {
        let left = Clock::Boot.now().until(until);
        let least_s = if left.is_zero() { 0 } else { LEAST_OPEN };
        if !hold.set_idle(least_s).await {
            return Ok(None);
        }
        if left.is_zero() {
            return self.grant(hold).await.map(Some);
        }
        self.stage = Stage::Open(Box::new(hold), until);
        Ok(Some(Attempt::Busy { queued: true, retry_after: Some(left) }))
    }
}
