//! Tests promises that Redis can't keep, and what remains of them: restarts, failovers, and steps
//! of the server's clock.
//!
//! docs/stores/redis.md names these tests as the proof of its claims.

mod clock;
mod replication;
mod restart;
mod sentinel;
mod support;
