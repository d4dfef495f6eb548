//! What a backend implements: [`Backend`] makes [`Claim`]s, a claim talks to the store, and
//! [`Admin`] answers operators.
//!
//! Everything else is written once in this crate: waiting, retries, renewal, deadlines,
//! cancellation, loss, shutdown. A backend never renews, retries, sleeps or computes a deadline by
//! itself. One whose claims live on its session ([`LeaseScope::Session`]) keeps up that session,
//! and nothing else. One that has other backends as members asks them as the core does: it bounds
//! each request by [`bounded`], and counts a lease until its [`deadline`](Lease::deadline).
//!
//! Both traits, and [`Connector`](crate::Connector), are implemented under
//! `#[async_trait::async_trait]`, from the crate of that name. A test with `lockkit-conformance`
//! then proves what the backend claims.

mod admin;
mod attachment;
mod backend;
mod bounded;
mod caller;
mod capability;
mod claim;
mod diagnostic;
mod inspection;
mod lease;
mod note;
mod occupancy;
pub(crate) mod operator;
mod server_clock;
mod wake;

pub use self::{
    admin::Admin,
    attachment::Attachment,
    backend::Backend,
    bounded::bounded,
    caller::{Attendance, Caller},
    capability::{Capabilities, Descriptor, Exceptions, LeaseScope, Poll, RenewalPacing},
    claim::{
        Attempt, Claim, ClaimSpec, Grant, LossReason, Mode, QueuePolicy, Released, RenewalOutcome,
        Transferred, Wait,
    },
    diagnostic::{Diagnostic, Severity},
    inspection::{Holder, Inspection, Role},
    lease::Lease,
    note::{MAX_NOTE_BYTES, Note, Noted},
    occupancy::Occupancy,
    server_clock::ServerClock,
    wake::{Wake, Wakeable},
};
pub(crate) use self::{lease::with_drift, note::check_noted};
