//! What can be wrong with a backend.

use std::{fmt, str::FromStr};

/// One thing that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// Each grant has the same token.
    ConstantToken,
    /// A lease is counted from its answer, not from before its request.
    DeadlineFromReply,
    /// A release frees whoever has the lock.
    DeleteWithoutCompare,
    /// A renewal after an extension shortens it, and says nothing.
    ExtendThatShortens,
    /// A renewal that says that the lock is lost is not believed.
    LostRenewalIgnored,
    /// No renewal ever gets an answer.
    NeverRenewed,
    /// Whoever has waited once believes that it has the lock.
    NoRecheckAfterWait,
    /// A claim that is given up stays in the queue.
    QueueEntryStays,
    /// A release frees the lock, and says that nothing was held.
    ReleasedIsNotHeld,
    /// A renewal takes the lock anew that is gone.
    RenewalRecreates,
    /// A reply that was lost is told as a request that failed.
    ReplyLostIsFailed,
    /// A retry of what was granted already tells the whole lease, and not what is left of it.
    RetryReportsWholeLease,
    /// A renewal whose answer took a sixth of the lease is not counted.
    SlowRenewalIgnored,
    /// Permits that are held together have one token.
    TokenSharedByPermits,
    /// A second try to release says that nothing was held, for certain, and the first one is forgotten.
    UnreleasedOnTrouble,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::ConstantToken,
        Self::DeadlineFromReply,
        Self::DeleteWithoutCompare,
        Self::ExtendThatShortens,
        Self::LostRenewalIgnored,
        Self::NeverRenewed,
        Self::NoRecheckAfterWait,
        Self::QueueEntryStays,
        Self::ReleasedIsNotHeld,
        Self::RenewalRecreates,
        Self::ReplyLostIsFailed,
        Self::RetryReportsWholeLease,
        Self::SlowRenewalIgnored,
        Self::TokenSharedByPermits,
        Self::UnreleasedOnTrouble,
    ];

    fn text(self) -> &'static str {
        match self {
            Self::ConstantToken => "constant-token",
            Self::DeadlineFromReply => "deadline-from-reply",
            Self::DeleteWithoutCompare => "delete-without-compare",
            Self::ExtendThatShortens => "extend-that-shortens",
            Self::LostRenewalIgnored => "lost-renewal-ignored",
            Self::NeverRenewed => "never-renewed",
            Self::NoRecheckAfterWait => "no-recheck-after-wait",
            Self::QueueEntryStays => "queue-entry-stays",
            Self::ReleasedIsNotHeld => "released-is-not-held",
            Self::RenewalRecreates => "renewal-recreates",
            Self::ReplyLostIsFailed => "reply-lost-is-failed",
            Self::RetryReportsWholeLease => "retry-reports-whole-lease",
            Self::SlowRenewalIgnored => "slow-renewal-ignored",
            Self::TokenSharedByPermits => "token-shared-by-permits",
            Self::UnreleasedOnTrouble => "unreleased-on-trouble",
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// There is no such flaw.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no flaw is called {0:?}; there are {known}", known = names())]
pub struct ParseFlawError(String);

fn names() -> String {
    Flaw::ALL.map(Flaw::text).join(", ")
}

impl FromStr for Flaw {
    type Err = ParseFlawError;

    fn from_str(text: &str) -> Result<Self, ParseFlawError> {
        let found = Self::ALL.into_iter().find(|flaw| flaw.text() == text);
        found.ok_or_else(|| ParseFlawError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flaw_survives_a_trip_through_text_and_an_unknown_one_is_told_the_others() {
        for flaw in Flaw::ALL {
            assert_eq!(flaw.to_string().parse(), Ok(flaw));
        }
        let error = "none".parse::<Flaw>().unwrap_err().to_string();
        assert!(error.contains("\"none\"") && error.contains("constant-token, deadline"), "{error}");
    }
}
