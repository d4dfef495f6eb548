//! What the threads around a claim agree on without a lock: each a protocol of its own, with a model that tries every
//! interleaving of it.

mod abandoned;
mod live_count;
mod rung;
mod unclaimed;

pub(super) use self::{
    abandoned::Abandoned,
    live_count::LiveCount,
    rung::{Rung, Told},
    unclaimed::Unclaimed,
};
