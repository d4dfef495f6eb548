//! The transaction that has a row lock: its connection, and the request that is under way on it.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use lockkit_core::{Clock, Tick};
use mysql_async as my;

use super::{
    Store,
    sql::{Key, Sql, whole_seconds},
};
use crate::{
    channel::Checkout,
    connection::{Failure, Session, Step},
    error,
    handshake::value,
    server::Server,
};

/// An open transaction that has the row's lock, for as long as its connection lives.
pub(super) struct RowLock {
    store: Arc<Store>,
    key: Arc<Key>,
    line: Line,
    server: Server,
    /// The token of the previous grant, as it was when the row was locked; 0 if there was none.
    last_token: u64,
    /// The token of this grant, or the value that it was raised to; 0 before the grant.
    token: u64,
    /// The owner that may have the token row instead of this one, after an unanswered transfer.
    successor: Option<Arc<Key>>,
    proven: Tick,
    /// Until when a lease lasts that is longer than usual.
    extended: Option<Tick>,
    /// The user's statements were run in the transaction.
    is_used: bool,
}

enum Line {
    Idle(Checkout),
    /// A request whose caller may have dropped it. The next request waits for its answer first, so
    /// that a slow server costs no lock.
    Asking(BoxFuture<'static, Reply>),
    Gone,
}

struct Reply {
    checkout: Checkout,
    question: Question,
    sent: Tick,
    answer: Result<Vec<Step>, Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// With the end of a longer lease, to which the same request sets the session.
    Ping(Option<Tick>),
    Set,
    TakeOver,
    Finish,
}

/// The result of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PingOutcome {
    /// The transaction is open, and the last token is its own.
    Alive { at: Tick },
    /// The transaction is open, and the last token is another owner's.
    Evicted,
    /// There is no transaction any more.
    Gone,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    /// The transaction had ended before the request.
    Gone,
    /// The connection broke without an answer of the server. Only the server may know whether that
    /// was before the request.
    Broken,
    /// Our request may have ended the transaction or not. The server may keep the lock until it
    /// notices the broken connection.
    Unknown,
}

impl End {
    /// The meaning of a failed request for the end. `None` if the server has only refused the
    /// request.
    ///
    /// If the server has answered, lockkit does not ask whether the server had lost the connection
    /// before. We close the connection ourselves, so its absence a moment later proves nothing.
    /// Only a farewell says that the transaction ended without us, before the request came or
    /// after. It says so only in place of a statement before the `COMMIT`, because a connection
    /// that is killed during its commit gets the same answer.
    fn of(Failure { error, is_before_end }: &Failure) -> Option<Self> {
        if error::code(error).is_none() {
            return Some(Self::Broken);
        }
        if *is_before_end && error::is_farewell(error) {
            return Some(Self::Gone);
        }
        error::is_fatal(error).then_some(Self::Unknown)
    }
}

impl RowLock {
    pub(super) fn new(
        store: Arc<Store>,
        key: Arc<Key>,
        checkout: Checkout,
        last_token: u64,
        proven: Tick,
    ) -> Self {
        let server = checkout.server().clone();
        Self {
            store,
            key,
            line: Line::Idle(checkout),
            server,
            last_token,
            token: 0,
            successor: None,
            proven,
            extended: None,
            is_used: false,
        }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn last_token(&self) -> u64 {
        self.last_token
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    pub(super) fn set_token(&mut self, token: u64) {
        self.token = token;
    }

    /// When the latest request was sent that the connection has answered from inside the
    /// transaction.
    pub(super) fn proven(&self) -> Tick {
        self.proven
    }

    pub(super) fn set_successor(&mut self, successor: Option<Arc<Key>>) {
        self.successor = successor;
    }

    pub(super) fn successor(&self) -> Option<&Key> {
        self.successor.as_deref()
    }

    pub(super) fn take_successor(&mut self) -> Option<Arc<Key>> {
        self.successor.take()
    }

    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Ends the transaction without a request. The server rolls it back, because its connection is
    /// closed.
    pub(super) fn close(&mut self) {
        if let Line::Idle(mut checkout) = std::mem::replace(&mut self.line, Line::Gone) {
            // The connection has the sign, also if its transaction has ended.
            drop(checkout.give_up());
        }
    }

    /// Asks on the lock's connection whether the transaction is still open, and whose the last
    /// token is.
    ///
    /// # Errors
    /// A refusal of the server that proves nothing.
    ///
    /// # Cancel safety
    /// Cancel safe: the next request waits for this answer first. The same holds for the calls
    /// below.
    pub(super) async fn ping(&mut self) -> Result<PingOutcome, my::Error> {
        let script = self.key.ping(self.sql());
        let script = match self.extended {
            Some(_) => format!("{};{script}", set_idle(self.idle_s())),
            None => script,
        };
        let asked = self.ask(Question::Ping(self.extended), script).await;
        self.life(asked)
    }

    /// As [`ping`](Self::ping), for a lease of another length. After that, [`left`](Self::left) is
    /// that long.
    ///
    /// # Errors
    /// As for [`ping`](Self::ping).
    pub(super) async fn extend(&mut self, lease: Duration) -> Result<PingOutcome, my::Error> {
        let until = Clock::Boot.now().after(lease);
        // Kept even if the answer is lost. The server may have received the request, and receives
        // the new end again with the next ping.
        self.extended = Some(self.extended.unwrap_or(until).max(until));
        self.ping().await
    }

    /// How long a lease that is longer than usual still lasts.
    pub(super) fn left(&self) -> Duration {
        self.extended.map(|until| self.proven.until(until)).unwrap_or_default()
    }

    /// For how many seconds the server lets the connection be idle: for the usual lease, or for the
    /// rest of a longer one.
    fn idle_s(&self) -> u64 {
        let left = self.extended.map(|until| whole_seconds(Clock::Boot.now().until(until)));
        self.key.idle_s(left.unwrap_or(0))
    }

    /// Sets up the session for `successor`. Asks whether the transaction is open, and so was open
    /// when `successor` got the token row.
    ///
    /// # Errors
    /// As for [`ping`](Self::ping).
    pub(super) async fn take_over(&mut self, successor: &Key) -> Result<PingOutcome, my::Error> {
        let script = successor.take_over(self.sql(), &self.key);
        let asked = self.ask(Question::TakeOver, script).await;
        self.life(asked)
    }

    /// Moves everything to a hold of the successor, which took it over. This hold has nothing any
    /// more.
    pub(super) fn transfer_to(&mut self, successor: Arc<Key>) -> Self {
        let mut line = std::mem::replace(&mut self.line, Line::Gone);
        if let Line::Idle(checkout) = &mut line {
            let session = Session { idle_s: successor.idle_s(0), ..checkout.session() };
            checkout.set_session(session);
        }
        Self {
            store: Arc::clone(&self.store),
            key: successor,
            line,
            server: self.server.clone(),
            last_token: self.last_token,
            token: self.token,
            successor: None,
            proven: self.proven,
            extended: None,
            is_used: false,
        }
    }

    /// Reads the last token again, before it is raised. True if the row is ours, and the token is
    /// larger than before.
    ///
    /// # Errors
    /// As for [`ping`](Self::ping).
    pub(super) async fn reread(&mut self) -> Result<bool, my::Error> {
        let asked = self.ask(Question::Ping(None), self.key.ping(self.sql())).await;
        let Some((_, answer)) = asked else { return Ok(false) };
        let steps = match answer {
            Ok(steps) => steps,
            Err(error) if error::is_fatal(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        let row = steps.first().and_then(|step| step.rows.first());
        let token = row.and_then(|row| value(row, 0)).unwrap_or(0);
        let is_newer = self.is_in_transaction() && token > self.last_token;
        if is_newer {
            self.last_token = token;
        }
        Ok(is_newer)
    }

    fn life(
        &mut self,
        asked: Option<(Tick, Result<Vec<Step>, my::Error>)>,
    ) -> Result<PingOutcome, my::Error> {
        let Some((sent, answer)) = asked else { return Ok(PingOutcome::Gone) };
        let steps = match answer {
            Ok(steps) => steps,
            Err(error) if error::is_fatal(&error) => return Ok(PingOutcome::Gone),
            Err(error) => return Err(error),
        };
        if !self.is_in_transaction() {
            self.close();
            return Ok(PingOutcome::Gone);
        }
        if !self.is_ours(&steps) {
            return Ok(PingOutcome::Evicted);
        }
        self.proven = sent;
        Ok(PingOutcome::Alive { at: sent })
    }

    /// Whether the last token is ours, by the answer to a ping. It may be larger than we know,
    /// after an unanswered request to raise it.
    fn is_ours(&mut self, steps: &[Step]) -> bool {
        let row = steps.iter().find_map(|step| step.rows.first());
        let Some((Some(token), Some(owner))) =
            row.map(|row| (value::<u64>(row, 0), value::<String>(row, 1)))
        else {
            return false;
        };
        let is_ours = token >= self.token
            && [Some(&self.key), self.successor.as_ref()]
                .into_iter()
                .flatten()
                .any(|key| key.owner == owner);
        if is_ours {
            self.token = token;
        }
        is_ours
    }

    /// Sets how long the server waits for the next request. False if the connection is gone.
    pub(super) async fn set_idle(&mut self, least_s: u64) -> bool {
        let idle_s = self.key.idle_s(least_s);
        let answer = self.ask(Question::Set, set_idle(idle_s)).await;
        if let Line::Idle(checkout) = &mut self.line {
            let session = Session { idle_s, ..checkout.session() };
            checkout.set_session(session);
        }
        matches!(answer, Some((_, Ok(_)))) && self.is_in_transaction()
    }

    /// Records since when the row has been free, and frees it.
    pub(super) async fn note_free(&mut self) {
        let script = self.key.note_free(self.sql());
        // If this fails, the next claim records it.
        let _ = self.ask(Question::Finish, script).await;
        let _ = std::mem::replace(&mut self.line, Line::Gone);
    }

    /// Ends the transaction. `keep` says whether its changes stay.
    ///
    /// # Errors
    /// A refusal of the server. The server may still have the transaction or not.
    pub(super) async fn finish(&mut self, keep: bool) -> Result<End, my::Error> {
        // The loss of an idle connection shows only at the next request. With the user's changes,
        // that request had better not be the commit.
        if self.is_used && !matches!(self.ping().await?, PingOutcome::Alive { .. }) {
            self.close();
            return Ok(End::Gone);
        }
        let asks = keep && self.token > 0 && !self.is_used;
        let sql = self.sql();
        let successor = self.successor.as_deref();
        let script = match (asks, keep) {
            (true, _) => self.key.ping_and_commit(sql, successor, &self.server),
            (false, true) => self.key.commit(sql, successor, &self.server),
            (false, false) => self.key.undo(),
        };
        let Some((_, answer)) = self.put(Question::Finish, script).await else {
            return Ok(End::Gone);
        };
        match answer {
            Ok(steps) => {
                let is_gone = asks && !self.is_ours(&steps);
                let is_changed =
                    self.is_used || self.successor.is_some() || self.extended.is_some();
                if let Line::Idle(mut checkout) = std::mem::replace(&mut self.line, Line::Gone)
                    && (is_gone || is_changed)
                {
                    // The user may have changed the session, or the connection may still have
                    // another owner's sign.
                    drop(checkout.give_up());
                }
                Ok(if is_gone { End::Gone } else { End::Done })
            }
            Err(failure) => End::of(&failure).ok_or(failure.error),
        }
    }

    /// Takes the connection, for the user's statements; `None` if it is gone. A connection that is
    /// not given back is gone.
    pub(super) async fn lend(&mut self) -> Option<Checkout> {
        self.answer().await;
        match std::mem::replace(&mut self.line, Line::Gone) {
            Line::Idle(checkout) => Some(checkout),
            Line::Asking(_) | Line::Gone => None,
        }
    }

    pub(super) fn begin_use(&self) -> String {
        self.key.begin_use()
    }

    pub(super) fn check_use(&self) -> String {
        self.key.check_use(self.sql(), self.idle_s())
    }

    /// Takes the connection back, together with the proof that the transaction was open at
    /// `proven`.
    pub(super) fn take_back(&mut self, checkout: Checkout, proven: Tick) {
        self.line = Line::Idle(checkout);
        self.proven = proven;
        self.is_used = true;
    }

    fn sql(&self) -> &Sql {
        &self.store.sql
    }

    fn is_in_transaction(&self) -> bool {
        matches!(&self.line, Line::Idle(checkout) if checkout.in_transaction())
    }

    /// `None` if the connection is gone.
    async fn ask(
        &mut self,
        question: Question,
        script: String,
    ) -> Option<(Tick, Result<Vec<Step>, my::Error>)> {
        let (sent, answer) = self.put(question, script).await?;
        Some((sent, answer.map_err(|failure| failure.error)))
    }

    async fn put(
        &mut self,
        question: Question,
        script: String,
    ) -> Option<(Tick, Result<Vec<Step>, Failure>)> {
        loop {
            if let Line::Idle(_) = self.line {
                self.start(question, script.clone());
            }
            let (asked, sent, answer) = self.answer().await?;
            if asked == question {
                return Some((sent, answer));
            }
        }
    }

    fn start(&mut self, question: Question, script: String) {
        if let Line::Idle(mut checkout) = std::mem::replace(&mut self.line, Line::Gone) {
            self.line = Line::Asking(Box::pin(async move {
                let sent = Clock::Boot.now();
                let answer = match question {
                    Question::Finish => checkout.script_to_end(&script).await,
                    _ => {
                        let answer = checkout.script(&script).await;
                        answer.map_err(|error| Failure { error, is_before_end: false })
                    }
                };
                Reply { checkout, question, sent, answer }
            }));
        }
    }

    /// Waits for the request that is under way; `None` if there is none.
    async fn answer(&mut self) -> Option<(Question, Tick, Result<Vec<Step>, Failure>)> {
        let Line::Asking(asking) = &mut self.line else { return None };
        let Reply { checkout, question, sent, answer } = asking.await;
        let is_lost = answer.as_ref().is_err_and(|failure| error::is_fatal(&failure.error));
        self.line = if is_lost { Line::Gone } else { Line::Idle(checkout) };
        Some((question, sent, answer))
    }
}

fn set_idle(idle_s: u64) -> String {
    format!("SET SESSION wait_timeout={idle_s}")
}

impl fmt::Debug for RowLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowLock").field("token", &self.token).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(code: u16, is_before_end: bool) -> Option<End> {
        let message = String::new();
        let state = "HY000".to_owned();
        let error = my::Error::Server(my::ServerError { code, message, state });
        End::of(&Failure { error, is_before_end })
    }

    #[test]
    fn c7_only_a_connection_that_breaks_without_an_answer_may_have_ended_before() {
        let error = my::Error::Driver(my::DriverError::ConnectionClosed);
        assert_eq!(End::of(&Failure { error, is_before_end: false }), Some(End::Broken));
        for code in [1053, 1927, 4031] {
            assert_eq!(end_of(code, true), Some(End::Gone), "{code}");
            assert_eq!(end_of(code, false), Some(End::Unknown), "{code}");
        }
        for code in [1180, 1317, 3100] {
            for is_before_end in [true, false] {
                assert_eq!(end_of(code, is_before_end), Some(End::Unknown), "{code}");
            }
        }
        assert_eq!(end_of(1205, true), None);
    }
}
