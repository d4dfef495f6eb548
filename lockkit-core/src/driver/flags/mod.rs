//! The states that the threads around a claim share without a lock. Each file is one protocol, with
//! a model that tries every interleaving of it.

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
