//! The rules for the clients of the model.

use crate::calls::{CLIENTS, Tick};

/// The rules of a claim, and how often it may do each thing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) op_timeout: Tick,
    pub(crate) window: Tick,
    pub(crate) lease: Tick,
    pub(crate) attempts: u8,
    pub(crate) refreshes: u8,
    pub(crate) extends: u8,
    pub(crate) raises: u8,
    pub(crate) transfers: u8,
    pub(crate) resumes: u8,
    pub(crate) releases: u8,
    pub(crate) pushes: Pushes,
    pub(crate) flaw: Option<Flaw>,
    /// A request looks at one waiter only, where it looks at many otherwise.
    pub(crate) hurried: bool,
    /// Attempts and releases go into batches first.
    pub(crate) batched: bool,
    /// The claims want permits, and not a mutex.
    pub(crate) permits: Option<Permits>,
}

/// How many permits each client wants, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permits {
    pub(crate) counts: [u8; CLIENTS],
    pub(crate) limit: u8,
}

/// Which clients a message can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushes {
    All,
    /// The first client can only poll.
    NotToTheFirst,
    /// The server refuses to send messages.
    Denied,
}

/// A fault of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It counts a handed-over lease from the receipt of the message.
    ProofFromReceipt,
    /// It treats a grant from before its anchor as one at its anchor.
    ProofBeforeAnchor,
    /// It doesn't compare the server's clock with its own.
    ProofWithoutClock,
    /// It takes a proof of less than half a window.
    ProofOfLittle,
    /// It counts a lease from the reply.
    DeadlineFromReply,
    /// It takes a release as final, whatever it sent before.
    UnansweredForgotten,
    /// It leaves the queue, and doesn't give back a lock that it got meanwhile.
    CancelOnlyLeaves,
    /// Once it is in the queue, it only listens.
    OnlyListens,
    /// It sends nothing when its wait ends.
    CancelSilent,
    /// It transfers the lock although an attempt of the previous owner may still arrive.
    TransferWithUnanswered,
    /// It gives back nothing of the new owner if it doesn't know the outcome of a transfer.
    SuccessorForgotten,
    /// Its former owner believes that it holds the lock until it knows of the transfer.
    PreviousBelieves,
}
