//! What the threads around a claim agree on without a lock: each a protocol of its own, with a
//! model that tries every interleaving of it.

mod caller_gone;
mod live_count;
mod offered;
mod wake;

pub(super) use self::{
    caller_gone::CallerGone,
    live_count::LiveCount,
    offered::Offered,
    wake::{WakeFlag, WakeTarget},
};
