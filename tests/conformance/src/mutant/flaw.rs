//! The flaws that a backend can have.

use std::str::FromStr;

/// Defines the flaws, and the list of them all.
macro_rules! flaws {
    ($($(#[$doc:meta])* $flaw:ident,)*) => {
        /// One flaw.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Flaw { $($(#[$doc])* $flaw,)* }

        impl Flaw {
            /// All flaws.
            pub const ALL: &[Self] = &[$(Self::$flaw,)*];
        }
    };
}

flaws! {
    /// Each attempt of a claim has another owner.
    AttemptByAnotherOwner,
    /// An attempt that fails blocks its thread.
    BlocksWhileAway,
    /// A release wakes all waiters of all names.
    BroadcastOnRelease,
    /// Each grant has the same token.
    ConstantToken,
    /// A lease is counted from its answer, not from before its request.
    DeadlineFromReply,
    /// A release frees the lock, whichever owner holds it.
    DeleteWithoutCompare,
    /// A renewal shortens a longer lease, and does not report it.
    ExtendThatShortens,
    /// Names that differ in case are one lock.
    FoldedNames,
    /// A release by force frees all holders, whatever the token.
    ForceReleaseWithoutCompare,
    /// The time of the store never changes.
    FrozenClock,
    /// A full store refuses renewals.
    FullRefusesRenewals,
    /// Each claim leaves an open file behind.
    LeakedFile,
    /// Each claim leaves a task behind.
    LeakedTask,
    /// One permit more than the limit is given.
    LimitOffByOne,
    /// Where a store has several parts, an observer uses only the last answer.
    LooksAtOnePart,
    /// The claim ignores a renewal's answer that the lock is lost.
    LostRenewalIgnored,
    /// The store sends no wake-ups.
    MuteStore,
    /// A list of names has the names of all kinds.
    NamesOfEachKind,
    /// A raise of the token is confirmed, but not done.
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
    /// Past holders can write notes too.
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
    /// A renewal does nothing, and reports success.
    RenewalOfNothing,
    /// A renewal takes a lost lock again.
    RenewalRecreates,
    /// A renewal reports the remaining lease by the store's own clock.
    RenewalTellsWhatIsLeft,
    /// Only the first renewal of a claim succeeds.
    RenewsOnce,
    /// A lost reply is reported as a failed request.
    ReplyLostIsFailed,
    /// A claim that resumes a grant competes for a grant of its own.
    ResumeCompetes,
    /// A claim that resumes a grant leaves it to its owner.
    ResumeKeepsTheOwner,
    /// A resumed grant has a larger token.
    ResumeRaisesTheToken,
    /// A retry of a granted attempt reports the whole lease, and not the remaining lease.
    RetryReportsWholeLease,
    /// A renewal takes longer than a short lease.
    SlowRenewal,
    /// A renewal whose answer took a twelfth of the lease is not counted.
    SlowRenewalIgnored,
    /// Permits that are held together have one token.
    TokenSharedByPermits,
    /// A lock of which the store can't say whether it is held is called free.
    UnclearIsFree,
    /// The second attempt to release reports for certain that nothing was held, and the first
    /// attempt is forgotten.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Torture gives the name of a flaw to its client processes.
    #[test]
    fn each_flaw_is_parsed_from_its_name_and_an_unknown_name_is_refused_with_the_list() {
        for flaw in Flaw::ALL {
            assert_eq!(format!("{flaw:?}").parse(), Ok(*flaw));
        }
        let error = "Nothing".parse::<Flaw>().unwrap_err();
        assert!(error.contains("\"Nothing\""), "{error}");
        for flaw in Flaw::ALL {
            assert!(error.contains(&format!("{flaw:?}")), "{flaw:?} is not listed: {error}");
        }
    }
}
