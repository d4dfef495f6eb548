//! What can be wrong with a backend.

use std::str::FromStr;

/// Defines the flaws, and the list of them all.
macro_rules! flaws {
    ($($(#[$doc:meta])* $flaw:ident,)*) => {
        /// One thing that is wrong.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Flaw { $($(#[$doc])* $flaw,)* }

        impl Flaw {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$flaw,)*];
        }
    };
}

flaws! {
    /// Each attempt of a claim has an owner of its own.
    AttemptByAnotherOwner,
    /// An attempt that fails blocks its thread.
    BlocksWhileAway,
    /// A release wakes all who wait for anything.
    BroadcastOnRelease,
    /// Each grant has the same token.
    ConstantToken,
    /// A lease is counted from its answer, not from before its request.
    DeadlineFromReply,
    /// A release frees the lock whoever has it.
    DeleteWithoutCompare,
    /// A renewal shortens a longer lease, and says nothing.
    ExtendThatShortens,
    /// Names that differ in case are one lock.
    FoldedNames,
    /// A release by force frees all holders, whatever the token.
    ForceReleaseWithoutCompare,
    /// The time of the store never changes.
    FrozenClock,
    /// A full store refuses renewals.
    FullRefusesRenewals,
    /// Each claim leaves an open file.
    LeakedFile,
    /// Each claim leaves a task.
    LeakedTask,
    /// One permit more than the limit is given.
    LimitOffByOne,
    /// Where a store has several parts, an observer hears one of them: the last one that answers.
    LooksAtOnePart,
    /// A renewal that says that the lock is lost is not believed.
    LostRenewalIgnored,
    /// The store wakes nobody.
    MuteStore,
    /// A list has the names of each kind.
    NamesOfEachKind,
    /// A raise of the token is answered, and not done.
    NeverRaised,
    /// No renewal ever gets an answer.
    NeverRenewed,
    /// A lease does not end by itself.
    NoLease,
    /// A waiter has no place in the queue.
    NoQueue,
    /// A waiter that was woken believes that it has the lock.
    NoRecheckAfterWait,
    /// A note counts as a renewal.
    NoteIsRenewal,
    /// An older note replaces a newer one.
    NoteIsReplaced,
    /// Past holders write notes too.
    NoteOfAnybody,
    /// All requests need the runtime of the first one.
    OneRuntime,
    /// A claim that is given up stays in the queue.
    QueueEntryStays,
    /// Readers and writers do not exclude each other.
    ReadersApart,
    /// A release always says that the lock was held.
    ReleaseAlwaysFreed,
    /// A release frees the lock, and says that nothing was held.
    ReleasedIsNotHeld,
    /// A renewal does nothing, and says that it did.
    RenewalOfNothing,
    /// A renewal takes the lock anew that is gone.
    RenewalRecreates,
    /// A renewal tells what is left by the store's own clock.
    RenewalTellsWhatIsLeft,
    /// Only the first renewal of a claim succeeds.
    RenewsOnce,
    /// A reply that was lost is told as a request that failed.
    ReplyLostIsFailed,
    /// A retry of what was granted already tells the whole lease, and not what is left of it.
    RetryReportsWholeLease,
    /// A renewal takes longer than a short lease.
    SlowRenewal,
    /// A renewal whose answer took a twelfth of the lease is not counted.
    SlowRenewalIgnored,
    /// Permits that are held together have one token.
    TokenSharedByPermits,
    /// What the store can't tell is called free.
    UnclearIsFree,
    /// A second try to release says that nothing was held, for certain, and the first one is
    /// forgotten.
    UnreleasedOnTrouble,
}

impl FromStr for Flaw {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|flaw| format!("{flaw:?}") == text);
        found
            .copied()
            .ok_or_else(|| format!("no flaw is called {text:?}; there are {:?}", Self::ALL))
    }
}
