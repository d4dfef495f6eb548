//! What the threads around a claim agree on without a lock: each a protocol of its own, with a model that tries every
//! interleaving of it.

mod abandoned;
mod roll;
mod rung;
mod unclaimed;

pub(super) use self::{
    abandoned::Abandoned,
    roll::Roll,
    rung::{Rung, Told},
    unclaimed::Unclaimed,
};
