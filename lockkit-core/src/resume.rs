//! Continues a lock that another process held.

use crate::{
    error::{Error, ErrorKind, Result},
    guard::LockGuard,
    handle::Handle,
    into_ticket::UNSUPPORTED,
    locker::Locker,
    name::Kind,
    ticket::Ticket,
};

impl Locker {
    /// Continues the lock of a ticket, which [`LockGuard::into_ticket`] has made in any process.
    /// The guard has the same fencing token as the former holder, and a whole lease.
    ///
    /// A ticket works once, and only while its lease lasts. In one step of the store, this call
    /// takes the place of the former holder. So at no instant is the lock free, or held by both.
    ///
    /// The ttl is that of the ticket. All other options are this locker's defaults, such as the
    /// label. [`max_hold`](crate::LockOptions::max_hold) begins anew.
    ///
    /// ```
    /// use lockkit_core::{Locker, TicketError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockkit_core::Result<()> {
    /// let locker = Locker::memory();
    /// let guard = locker.mutex("orders/42")?.lock().await?;
    /// let token = guard.fencing_token();
    /// // For another process that uses the same store.
    /// let ticket = guard.into_ticket().await.map_err(TicketError::into_error)?;
    /// let guard = locker.resume(&ticket).await?;
    /// assert_eq!(guard.fencing_token(), token);
    /// guard.release().await?;
    /// # locker.shutdown().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// * [`ErrorKind::Lost`] if the ticket was used before, its lease has ended, an operator freed
    ///   the lock, or the lock is in another store.
    /// * [`ErrorKind::InvalidOption`] for a text that is no ticket, or for the ticket of an
    ///   election, which [`Election::resume`](crate::Election::resume) takes. Also for a ttl that
    ///   contradicts an option of this locker, such as a shorter `max_hold`.
    /// * [`ErrorKind::NewerFormat`] for the ticket of another version of lockkit.
    /// * [`ErrorKind::Unsupported`] if the backend has no tickets.
    ///
    /// If the store can't be reached, the call asks again for the ttl, or for three times
    /// `op_timeout` if that is longer. After any other error, the ticket may be used up. The lock
    /// is then free at the end of its lease at the latest.
    ///
    /// # Cancel safety
    /// If the call is dropped, the background task releases the lock, if the call had it already.
    /// The ticket may then be used up.
    pub async fn resume(&self, ticket: &str) -> Result<LockGuard> {
        let ticket = self.checked_ticket(ticket)?;
        let name = &ticket.name;
        if name.kind() == Kind::Election {
            let text = "the ticket is of an election; use `Election::resume`, because a leader has \
                        a value";
            let error = Error::new(ErrorKind::InvalidOption, text);
            return Err(self.explain(error, "resume", name));
        }
        Handle::new(self, name.kind(), name.as_str())?.resume(&ticket).await
    }

    /// # Errors
    /// The text is no ticket, or the store has no tickets.
    pub(crate) fn checked_ticket(&self, text: &str) -> Result<Ticket> {
        self.require(self.capabilities().tickets, UNSUPPORTED)
            .and_then(|()| Ticket::parse(text))
            .map_err(|error| error.with_operation("resume").with_backend(self.descriptor().name))
    }
}
