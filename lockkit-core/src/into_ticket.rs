//! Makes a ticket of a held lock, by which another process continues it.

use std::{error::Error as StdError, fmt};

use crate::{
    driver::leave::leave, error::Error, guard::LockGuard, spi::GrantId, ticket::Ticket,
    token::FencingToken,
};

/// The ability that other stores lack, for their error.
pub(crate) const UNSUPPORTED: &str = "tickets for another process";

impl LockGuard {
    /// Ends this hold, and returns a ticket. That is a text with which another process [continues
    /// the lock](crate::Locker::resume), with the same fencing token. It is for deploys, for
    /// programs that start others, and for workers that finish a request.
    ///
    /// The lock stays taken, and this process is no holder any more. All views say that the lock is
    /// not held, and nothing is renewed. So do all work under the lock before this call.
    ///
    /// The ticket is good for what is left of the lease. Call [`renew`](crate::Hold::renew) before,
    /// to make that a whole ttl. If no process resumes it, the lock is free when the lease ends.
    ///
    /// The text has letters, digits and `-`, `.`, `_`, `~`, so it fits into a URL or an environment
    /// variable. It contains no address and no password. Anyone who has it and can use the store
    /// can take the lock over, once. So do not log it.
    ///
    /// This sends no request. It waits for a renewal or a note that is under way. If an attempt for
    /// this lock got no answer, it also waits until one operation timeout after the grant, because
    /// that attempt may still arrive.
    ///
    /// # Errors
    /// The error has the guard: see [`TicketError::into_parts`].
    ///
    /// * [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) on a store without the
    ///   capability [`tickets`](crate::spi::Capabilities::tickets), such as ZooKeeper. The lock
    ///   stays held.
    /// * [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the renewal or the note does
    ///   not end within the operation timeout. The lock stays held.
    /// * [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lock is lost.
    ///
    /// # Cancel safety
    /// If the call is dropped, the guard is dropped with it.
    pub async fn into_ticket(mut self) -> Result<String, TicketError> {
        let held = self.held();
        let left = if held.locker().tickets {
            leave(self.agenda(), held).await
        } else {
            Err(Error::unsupported(UNSUPPORTED))
        };
        if let Err(error) = left {
            let error = self.explain(error, "make ticket");
            return Err(TicketError { error, guard: self });
        }
        let stored = held.token().get().saturating_sub(held.locker().token_base);
        let grant = GrantId { owner: held.owner(), token: FencingToken::new(stored) };
        let name = held.name.clone();
        let ticket = Ticket { name, mode: held.mode, grant, ttl: held.limits().ttl };
        self.disarm();
        Ok(ticket.text())
    }
}

/// The error of [`LockGuard::into_ticket`], with the guard. The lock is held as before, unless it
/// was lost.
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct TicketError {
    error: Error,
    guard: LockGuard,
}

impl TicketError {
    /// The error.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The error, for a caller that gives the lock up: the guard is dropped.
    #[must_use]
    pub fn into_error(self) -> Error {
        self.error
    }

    /// The guard, and the error.
    #[must_use = "dropping the guard gives the lock up"]
    pub fn into_parts(self) -> (LockGuard, Error) {
        (self.guard, self.error)
    }
}

impl fmt::Display for TicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl StdError for TicketError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}
