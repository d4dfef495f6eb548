//! Implements the claim of one owner on a row of the table.

use std::time::Duration;

use async_trait::async_trait;
use lockkit::{
    FencingToken, Result,
    spi::{self, Attempt, ClaimSpec, Grant, Lease, LossReason, Released, RenewalOutcome, Wait},
};

use crate::table::Table;

#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) table: Table,
    pub(crate) spec: ClaimSpec,
}

#[async_trait]
impl spi::Claim for Claim {
    async fn attempt(&mut self, _: Wait) -> Result<Attempt> {
        let Self { table, spec } = self;
        Ok(table.with(&spec.name, |row, now| {
            let stands = now < row.end;
            if stands && row.owner != spec.owner {
                return Attempt::Busy { queued: false, retry_after: Some(now.until(row.end)) };
            }
            // If the first answer was lost, the owner asks again, and gets the same grant.
            if !stands {
                (row.owner, row.token) = (spec.owner, row.token + 1);
            }
            row.end = row.end.max(now.after(spec.ttl));
            Attempt::Granted(Grant::new(FencingToken::new(row.token), Lease::For(spec.ttl)))
        }))
    }

    async fn renew(&mut self, _: Option<Duration>) -> Result<RenewalOutcome> {
        let Self { table, spec } = self;
        Ok(table.with(&spec.name, |row, now| {
            if now >= row.end || row.owner != spec.owner {
                return RenewalOutcome::Lost(LossReason::Evicted);
            }
            row.end = row.end.max(now.after(spec.ttl));
            RenewalOutcome::Alive(Lease::For(spec.ttl))
        }))
    }

    async fn release(&mut self) -> Result<Released> {
        Ok(self.table.free(&self.spec.name, |row| row.owner == self.spec.owner))
    }
}
