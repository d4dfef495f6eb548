//! What clients may do, and how.

use crate::calls::Tick;

/// The rules of a claim, and what it may do how often.
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
    pub(crate) releases: u8,
    pub(crate) pushes: Pushes,
    pub(crate) flaw: Option<Flaw>,
    /// A request looks at one waiter only, where it looks at many else.
    pub(crate) hurried: bool,
}

/// Whom messages can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushes {
    All,
    /// The first client can only poll.
    NotToTheFirst,
    /// The server refuses to send them.
    Denied,
}

/// A client that is built wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It counts a handed-over lease from when it heard of it.
    ProofFromReceipt,
    /// It takes what was granted before its anchor for granted at its anchor.
    ProofBeforeAnchor,
    /// It doesn't compare the server's clock with its own.
    ProofWithoutClock,
    /// It doesn't ask for at least half a window.
    ProofOfLittle,
    /// It counts a lease from the reply.
    DeadlineFromReply,
    /// It takes a release for final whatever it sent before.
    UnansweredForgotten,
    /// It leaves the queue, and doesn't give back what it was given meanwhile.
    CancelOnlyLeaves,
    /// Once it is in the queue it only listens.
    OnlyListens,
    /// It says nothing when its wait ends.
    CancelSilent,
    /// It hands over though an attempt of the previous owner may still arrive.
    TransferWithUnanswered,
    /// It gives back nothing of the new owner where it doesn't know of a hand-over.
    SuccessorForgotten,
    /// Its former owner believes until it knows of the hand-over.
    PreviousBelieves,
}
