//! Attempts whose reply never came.

/// What one claim of a backend has sent and not seen answered. For stores whose requests carry a not-after time.
///
/// A reply that tells who has the lock settles everything that was sent on the same connection before it. What was
/// sent on a connection that fell silent or broke may still reach the server, after a release on the next one: a proxy
/// can deliver what it took before its client was gone. Until its not-after time has passed, a release is not final.
#[derive(Debug, Default)]
pub struct Strays {
    current: Option<Sent>,
    /// Something was sent before that.
    earlier: bool,
    /// Until when it may still be applied, in server time; 0 if it can't be.
    strays_until: i64,
}

#[derive(Debug)]
struct Sent {
    connection: u64,
    not_after: i64,
}

impl Strays {
    /// True if a lock of this owner may be in the store.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.current.is_some() || self.earlier
    }

    /// Call before an attempt is sent on a connection, which has a number of its own.
    pub fn attempt(&mut self, connection: u64, not_after: i64) {
        self.switch_to(connection);
        self.earlier |= self.current.is_some();
        self.current = Some(Sent { connection, not_after });
    }

    /// Call before a release is sent. Returns until when a stray attempt may be applied, or 0.
    pub fn release(&mut self, connection: u64) -> i64 {
        self.switch_to(connection);
        self.strays_until
    }

    /// Call when an attempt was refused: it did nothing, and tells nothing of those before it.
    pub fn refused(&mut self) {
        self.current = None;
    }

    /// Call when an attempt was answered at server time `now`, and so it is known who has the lock.
    pub fn settled(&mut self, now: i64) {
        self.current = None;
        if now > self.strays_until {
            self.strays_until = 0;
            self.earlier = false;
        }
    }

    fn switch_to(&mut self, connection: u64) {
        let Some(sent) = self.current.take_if(|sent| sent.connection != connection) else { return };
        self.earlier = true;
        self.strays_until = self.strays_until.max(sent.not_after);
    }
}
