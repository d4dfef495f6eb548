//! Implements the store: exclusive locks with leases and rising tokens, in a table of this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use lockkit::{
    Clock, FencingToken, LockName, OwnerId, Result, Tick,
    spi::{self, Backend, Capabilities, ClaimSpec, Descriptor, Holder, Inspection, Mode, Released},
};

use crate::claim::Claim;

/// The last grant of a name. It stays after its end, because the next token must be larger.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) owner: OwnerId,
    pub(crate) token: u64,
    pub(crate) end: Tick,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    descriptor: Descriptor,
    rows: Arc<Mutex<HashMap<LockName, Row>>>,
}

impl Table {
    pub(crate) fn new() -> Self {
        let can = Capabilities { exclusive: true, ..Capabilities::NONE };
        let descriptor = Descriptor { capabilities: can, ..Descriptor::new("table") };
        Self { descriptor, rows: Arc::default() }
    }

    /// Works on a row at one instant.
    pub(crate) fn with<T>(&self, name: &LockName, work: impl FnOnce(&mut Row, Tick) -> T) -> T {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Clock::Boot.now();
        let fresh = Row { owner: OwnerId::new(0), token: 0, end: now };
        work(rows.entry(name.clone()).or_insert(fresh), now)
    }

    /// Ends the grant of a name if its lease is still valid and it is the grant of the caller.
    pub(crate) fn free(&self, name: &LockName, is_meant: impl FnOnce(&Row) -> bool) -> Released {
        self.with(name, |row, now| {
            if now >= row.end || !is_meant(row) {
                return Released::NotHeld;
            }
            row.end = now;
            Released::Freed
        })
    }
}

#[async_trait]
impl Backend for Table {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn spi::Claim>> {
        Ok(Box::new(Claim { table: self.clone(), spec }))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let holder = self.with(name, |row, now| {
            let it = Holder::new(Mode::Exclusive).with_remaining(now.until(row.end));
            (now < row.end).then(|| it.with_grant(row.owner, FencingToken::new(row.token)))
        });
        Ok(Inspection::new(holder.into_iter().collect(), None))
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        Ok(self.free(name, |row| row.token == token.get()))
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
