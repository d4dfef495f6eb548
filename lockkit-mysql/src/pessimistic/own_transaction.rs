//! Locks a name in a transaction that the program has begun, on the program's connection.
//!
//! 1. On the program's connection, set a savepoint, and take a sign as a claim does.
//! 2. On a connection of lockkit, look for the sign, so that both lead to the same server. Read the
//!    last token, and make the row if it is missing.
//! 3. On the program's connection, lock the row of the name (`FOR UPDATE`).
//! 4. On a connection of lockkit, raise the token from the value that was read, while the server
//!    has the sign. This is committed at once, so no rollback of the program takes it back.
//! 5. On the program's connection, remove the sign and the savepoint. If the savepoint is there,
//!    the transaction was open since the first step, and so the row was locked since the third.
//!
//! If another claim had the row in between, the raise does nothing. Then the token is read again,
//! and the savepoint shows that this was under the row's lock. The token is never read on the
//! program's connection, whose snapshot may be older than the lock.

use lockkit_core::{
    Error, ErrorKind, FencingToken, LockName, OwnerId, Result,
    spi::{ClaimSpec, Mode},
};
use mysql_async::{self as my, prelude::Queryable};

use super::{
    MIN_TTL, Pessimistic, Store,
    acquire::{RACES, not_proven},
    sql::Key,
};
use crate::{
    channel::Checkout,
    connection::{Step, script},
    error::{self, Phase},
    handshake::value,
    pool::Pool,
    sql::LEAST_TOKEN,
};

/// The index of the answer with the connection's number, after the first request.
const SIGNED: usize = 3;

impl Pessimistic {
    /// Locks the row of a name in the transaction that is open on this connection. Returns the
    /// token. `None` if another client has the row: now, or if `waits`, for longer than the
    /// connection's `innodb_lock_wait_timeout`.
    ///
    /// # Errors
    /// Returns the server's error, or the reason why the lock can't keep a promise. The row may be
    /// locked nevertheless, until the program ends its transaction.
    ///
    /// # Cancel safety
    /// A call that is dropped midway ends the program's connection.
    pub(crate) async fn lock_in(
        &self,
        conn: &mut impl Queryable,
        name: &LockName,
        waits: bool,
    ) -> Result<Option<FencingToken>> {
        let store = &self.store;
        if store.pool.config().strict_lease {
            let reason = "strict_lease=true promises that two holders never believe at the same \
                          time that they have the lock, and a transaction of the program has no \
                          lease; use other tables without it";
            return Err(error::ours(ErrorKind::Unsupported, reason));
        }
        // The lease and the bound have no meaning for a transaction of the program.
        let owner = OwnerId::random();
        let spec = ClaimSpec::new(name.clone(), owner, Mode::Exclusive, MIN_TTL, MIN_TTL);
        let key = Key::new(&spec);
        let thread = begin(conn, &key).await?;
        let sign = key.sign(thread);
        let mut call = OpenCall { pool: &store.pool, sign, thread, is_over: false };
        let locked = store.lock_signed(conn, &key, thread, waits).await;
        let ended = ask(conn, &key.end_own()).await;
        call.is_over = true;
        let token = locked?;
        ended.map_err(|error| refusal(error, "checking the program's transaction"))?;
        Ok(token)
    }
}

impl Store {
    /// The steps between the sign and its removal.
    async fn lock_signed(
        &self,
        conn: &mut impl Queryable,
        key: &Key,
        thread: u64,
        waits: bool,
    ) -> Result<Option<FencingToken>> {
        let patience = self.pool.config().connect_timeout;
        let mut side = self.pool.get_side(patience).await?;
        let last = self.look(&mut side, key, thread).await?.ok_or_else(elsewhere)?;
        // The wait for the row may be long, and there are few side connections.
        drop(side);
        if !self.lock_own(conn, key, waits).await? {
            return Ok(None);
        }
        self.raise_own(conn, key, thread, last).await.map(Some)
    }

    /// The last token, or 0. Makes the row if it is missing. `None` if this server does not have
    /// the sign.
    async fn look(&self, side: &mut Checkout, key: &Key, thread: u64) -> Result<Option<u64>> {
        let what = "looking up the row";
        let answer = side.script(&key.look_own(&self.sql, thread)).await;
        let steps = self.pool.checked(answer, Phase::Read, what)?;
        let row = steps.first().and_then(|step| step.rows.first());
        let row = row.ok_or_else(|| error::nonsense(what))?;
        if value::<u8>(row, 0) != Some(1) {
            return Ok(None);
        }
        if value::<Option<u8>>(row, 1).flatten().is_none() {
            match side.script(&key.create(&self.sql)).await {
                Ok(_) => {}
                // Another client has just made the row, and has locked it.
                Err(error) if error::is_race(&error) => {
                    self.pool.checked(side.roll_back().await, Phase::Read, what)?;
                }
                Err(error) => return self.pool.checked(Err(error), Phase::Read, "making the row"),
            }
        }
        Ok(Some(value::<Option<u64>>(row, 2).flatten().unwrap_or(0)))
    }

    /// Locks the row on the program's connection. False if another client has it.
    async fn lock_own(&self, conn: &mut impl Queryable, key: &Key, waits: bool) -> Result<bool> {
        match ask(conn, &key.lock_own(&self.sql, waits)).await {
            Ok(steps) if steps.first().is_some_and(|step| !step.rows.is_empty()) => Ok(true),
            Ok(_) => {
                let reason = "the name was idle for so long that its row was just removed; roll \
                              the transaction back, and try again";
                Err(error::ours(ErrorKind::Unavailable, reason))
            }
            Err(error) if error::is_taken(&error) => Ok(false),
            Err(error) => Err(refusal(error, "locking the row")),
        }
    }

    /// Raises the token while the program's connection has the row. `last` is the value before.
    async fn raise_own(
        &self,
        conn: &mut impl Queryable,
        key: &Key,
        thread: u64,
        mut last: u64,
    ) -> Result<FencingToken> {
        let what = "raising the token";
        let mut side = self.pool.get_side(self.pool.config().connect_timeout).await?;
        // The sign has shown that the program's connection leads to the same server.
        let mut server = side.server().clone();
        server.thread = thread;
        for _ in 0..RACES {
            let token = self.try_bump(&mut side, key, &server, last).await?;
            if token >= LEAST_TOKEN {
                return Ok(FencingToken::new(token));
            }
            if token > 0 {
                return Err(error::nonsense(what));
            }
            // The former holder has raised the token since the look. This reads it again, and shows
            // that the row was ours at that time.
            let Some(present) = self.look(&mut side, key, thread).await? else { break };
            let proven = ask(conn, &Key::prove_own()).await;
            proven.map_err(|error| refusal(error, what))?;
            if present == last {
                break;
            }
            last = present;
        }
        self.pool.ask_time(&mut side).await?;
        Err(not_proven("the program's connection broke, or another client raised the token"))
    }
}

/// Sets the savepoint and takes the sign. Returns the connection's number.
async fn begin(conn: &mut impl Queryable, key: &Key) -> Result<u64> {
    let what = "preparing the program's transaction";
    let steps = ask(conn, &key.begin_own()).await.map_err(|error| {
        if error::code(&error) != Some(error::SAVEPOINT_GONE) {
            return refusal(error, what);
        }
        let reason = "no transaction is open on the program's connection, so the row would be \
                      free again at once; begin a transaction first";
        error::ours(ErrorKind::InvalidOption, reason)
    })?;
    let signed = steps.get(SIGNED).and_then(|step| step.rows.first());
    signed.and_then(|row| value(row, 1)).ok_or_else(|| error::nonsense(what))
}

async fn ask(conn: &mut impl Queryable, sql: &str) -> Result<Vec<Step>, my::Error> {
    let mut steps = Vec::new();
    script(conn, sql, &mut steps).await.map(|()| steps)
}

/// Translates the error of a statement in a transaction of the program.
fn refusal(error: my::Error, what: &str) -> Error {
    let (kind, reason) = match error::code(&error) {
        Some(error::DEADLOCK) => (
            ErrorKind::Unavailable,
            "the server rolled the program's transaction back, to resolve a deadlock with another \
             transaction; begin it again",
        ),
        Some(error::READ_ONLY_TRANSACTION) => (
            ErrorKind::InvalidOption,
            "the program's transaction is READ ONLY, and can't lock a row; begin one without that",
        ),
        Some(error::SAVEPOINT_GONE) => (
            ErrorKind::Lost,
            "the server ended the program's transaction before the lock was proven; begin it again",
        ),
        _ => return error::from_mysql(error, Phase::Read, what),
    };
    error::ours(kind, reason).with_source(error)
}

fn elsewhere() -> Error {
    let reason = "the program's transaction is on another server than this store, so it would \
                  exclude no other client; use a connection to the same server";
    error::ours(ErrorKind::InvalidOption, reason)
}

/// A call that has its sign on the program's connection.
struct OpenCall<'a> {
    pool: &'a Pool,
    sign: String,
    thread: u64,
    is_over: bool,
}

impl Drop for OpenCall<'_> {
    /// If the caller drops the call, the server would let a statement wait, and give it the row.
    /// Or the row and the sign would stay with a connection that the program continues to use.
    fn drop(&mut self) {
        if !self.is_over {
            self.pool.end_owner(std::mem::take(&mut self.sign), self.thread);
        }
    }
}
