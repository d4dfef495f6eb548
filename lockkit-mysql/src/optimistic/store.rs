//! The state that the claims of this strategy share, and the requests that they make.

use std::{sync::Arc, time::Duration};

use lockkit_core::{
    Clock, LockName, Result,
    spi::{GrantId, QueuePolicy},
};

use super::{
    holders::HoldersSql,
    look::{LookSql, Looks},
    record::{Answer, Form, LockRequest, Predecessor, TransferAnswer},
    release::Releases,
    renewal::Renewals,
    row::RowSql,
};
use crate::{
    connection::Connection,
    error::{self, Phase},
    pool::Pool,
    waiting::Waiters,
};

/// How often a statement that lost a race is sent again at once.
const RACES: u32 = 4;

/// The store of one locker.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) pool: Arc<Pool>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) releases: Releases,
    /// The number under which other clients see this one wait.
    pub(crate) client: u64,
    row: RowSql,
    holders: HoldersSql,
    looks: LookSql,
}

impl Store {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        let tables = pool.config().tables();
        let row = RowSql::new(tables);
        let holders = HoldersSql::new(tables);
        let looks = LookSql::new(tables);
        let renewals = Renewals::new(Arc::clone(&pool));
        Self {
            pool,
            waiters: Arc::default(),
            renewals,
            releases: Releases::default(),
            client: rand::random(),
            row,
            holders,
            looks,
        }
    }

    /// # Errors
    /// The outcome is unknown if the connection broke.
    pub(crate) async fn acquire(
        &self,
        connection: &mut Connection,
        form: Form,
        asked: &LockRequest<'_>,
    ) -> Result<Answer> {
        let mut races = 0;
        loop {
            let answer = match form {
                Form::Row => self.row.acquire(connection, asked).await.map(Some),
                Form::Holders(mode) => {
                    self.holders.acquire(connection, &self.looks, mode, asked).await
                }
            };
            match answer {
                Err(error) if error::is_race(&error) => {
                    roll_back(connection).await?;
                    races += 1;
                    if races >= RACES || error::code(&error) == Some(error::LOCK_WAIT_TIMEOUT) {
                        return Ok(Answer::Locked);
                    }
                }
                answer => {
                    let answer = self.pool.checked(answer, Phase::Write, "acquiring")?;
                    return answer
                        .ok_or_else(|| error::nonsense("acquiring").with_outcome_unknown());
                }
            }
        }
    }

    /// Releases the lock of its owner or of `successor`, whichever has it. `Some(true)` if its
    /// lease was live, `Some(false)` if it had ended, `None` if neither had the lock. If the claim
    /// `has_joined` a batch, a lock that the batch has freed counts as live.
    ///
    /// # Errors
    /// The outcome is unknown if the connection broke.
    pub(crate) async fn release(
        &self,
        connection: &mut Connection,
        form: Form,
        asked: &LockRequest<'_>,
        successor: Option<&str>,
        has_joined: bool,
    ) -> Result<Option<bool>> {
        let mut races = 0;
        loop {
            let answer = match form {
                Form::Row => self.row.release(connection, asked, successor, has_joined).await,
                Form::Holders(_) => self.holders.release(connection, asked).await,
            };
            match answer {
                Err(error) if error::is_race(&error) && races < RACES => {
                    roll_back(connection).await?;
                    races += 1;
                }
                answer => return self.pool.checked(answer, Phase::Write, "releasing"),
            }
        }
    }

    /// Transfers the lock of one owner to another, or frees it, as [`RowSql::transfer`] does.
    ///
    /// # Errors
    /// The outcome is unknown if the connection broke.
    pub(crate) async fn transfer(
        &self,
        connection: &mut Connection,
        from: &Predecessor<'_>,
        asked: &LockRequest<'_>,
        policy: QueuePolicy,
    ) -> Result<Option<TransferAnswer>> {
        let mut races = 0;
        loop {
            match self.row.transfer(connection, from, asked, policy).await {
                Err(error) if error::is_race(&error) && races < RACES => {
                    roll_back(connection).await?;
                    races += 1;
                }
                answer => return self.pool.checked(answer, Phase::Write, "handing over"),
            }
        }
    }

    /// Gives the grant of a former owner to the claim that resumes it.
    ///
    /// # Errors
    /// The outcome is unknown if the connection broke.
    pub(crate) async fn resume(
        &self,
        connection: &mut Connection,
        form: Form,
        asked: &LockRequest<'_>,
        former: &GrantId,
    ) -> Result<Answer> {
        let mut races = 0;
        let token = loop {
            let answer = match form {
                Form::Row => self.row.resume(connection, asked, former).await,
                Form::Holders(mode) => self.holders.resume(connection, mode, asked, former).await,
            };
            match answer {
                Err(error) if error::is_race(&error) && races < RACES => {
                    roll_back(connection).await?;
                    races += 1;
                }
                answer => break self.pool.checked(answer, Phase::Write, "resuming")?,
            }
        };
        if let Some(token) = token {
            return Ok(Answer::Granted { token });
        }
        let is_late = self.pool.ask_time(connection).await? > asked.not_after_us;
        Ok(if is_late { Answer::Late } else { Answer::Busy { left: None } })
    }

    /// Raises the token of a hold; `None` if the hold is not ours.
    ///
    /// # Errors
    /// The outcome is unknown if the connection broke.
    pub(crate) async fn raise(
        &self,
        connection: &mut Connection,
        form: Form,
        asked: &LockRequest<'_>,
        floor: u64,
    ) -> Result<Option<u64>> {
        let mut races = 0;
        loop {
            let answer = match form {
                Form::Row => self.row.raise(connection, asked, floor).await,
                Form::Holders(_) => self.holders.raise(connection, asked, floor).await,
            };
            match answer {
                Err(error) if error::is_race(&error) && races < RACES => {
                    roll_back(connection).await?;
                    races += 1;
                }
                answer => return self.pool.checked(answer, Phase::Write, "raising the token"),
            }
        }
    }

    /// Records for other clients that this one waits for these locks. It is only a hint: it skips a
    /// row on which another transaction is at work.
    ///
    /// # Errors
    /// Returns the server's error.
    pub(crate) async fn want(&self, names: &[LockName], patience: Duration) -> Result<()> {
        let mut connection = self.pool.get(patience).await?;
        match self.looks.want(&mut connection, names, self.client).await {
            Err(error) if error::is_race(&error) => roll_back(&mut connection).await,
            answer => self.pool.checked(answer, Phase::Read, "waiting"),
        }
    }

    /// Reads who has these locks, without any lock in the database.
    ///
    /// # Errors
    /// Returns the server's error.
    pub(crate) async fn look(&self, names: &[LockName], patience: Duration) -> Result<Looks> {
        let mut connection = self.pool.get(patience).await?;
        let sent = Clock::Boot.now();
        let answer = self.looks.look(&mut connection, names).await;
        let looks = self.pool.checked(answer, Phase::Read, "reading the holders")?;
        let time = looks.iter().flatten().map(|look| look.now_us).max().filter(|now| *now > 0);
        if let Some(now) = time {
            self.pool.observe(sent, now);
        }
        Ok(looks)
    }
}

/// Rolls back an attempt that failed midway.
pub(super) async fn roll_back(connection: &mut Connection) -> Result<()> {
    // Nothing of the attempt is applied, even if this fails.
    connection
        .roll_back()
        .await
        .map_err(|error| error::from_mysql(error, Phase::Read, "rolling back"))
}
