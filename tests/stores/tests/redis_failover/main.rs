//! What Redis can't promise, and what is left of the promises then: restarts, failovers, and steps
//! of the server's clock.
//!
//! docs/guarantees/redis.md names these tests as the proof of what it says.

mod clock;
mod replication;
mod restart;
mod sentinel;
mod support;
