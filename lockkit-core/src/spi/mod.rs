//! The interface that a backend implements: [`Backend`] makes [`Claim`]s, a claim talks to the
//! store, and [`Admin`] answers operators.
//!
//! This crate does everything else, once for all backends: waiting, retries, renewal, deadlines,
//! cancellation, loss and shutdown. A backend never renews, retries, sleeps or computes a deadline
//! by itself.
//!
//! * A backend whose claims live on its session ([`LeaseScope::Session`]) keeps up that session,
//!   and does nothing else by itself.
//! * A backend that has other backends as members asks them as the core does. It bounds each
//!   request by [`bounded`], counts a lease until its [`deadline`](Lease::deadline), and asks a
//!   member for an operator by [`operator`].
//!
//! Implement both traits, and [`Connector`](crate::Connector), under `#[async_trait::async_trait]`
//! from the crate `async-trait`. A test with `lockkit-conformance` then proves the capabilities
//! that the backend claims.

mod admin;
mod attachment;
mod backend;
mod batches;
mod bounded;
mod caller;
mod capability;
mod claim;
mod diagnostic;
mod inspection;
mod lease;
mod note;
mod occupancy;
pub mod operator;
mod server_clock;
mod wake;

pub use self::{
    admin::Admin,
    attachment::Attachment,
    backend::Backend,
    batches::{BatchAnswer, Batches, Members},
    bounded::bounded,
    caller::{Attendance, Caller},
    capability::{Capabilities, Descriptor, Exceptions, LeaseScope, Poll, RenewalPacing},
    claim::{
        Attempt, Claim, ClaimSpec, Grant, GrantId, LossReason, Mode, QueuePolicy, Released,
        RenewalOutcome, Transferred, Wait,
    },
    diagnostic::{Diagnostic, Severity},
    inspection::{Holder, Inspection, Role},
    lease::Lease,
    note::{MAX_NOTE_BYTES, Note, Noted},
    occupancy::Occupancy,
    server_clock::ServerClock,
    wake::{Wake, Wakeable},
};
pub(crate) use self::{bounded::change_of, lease::with_drift, note::check_noted};
