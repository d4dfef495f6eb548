//! Describes a leader as other processes see it.

use std::time::Duration;

use crate::{
    spi::{Holder, Inspection},
    token::{FencingToken, OwnerId},
};

/// The present leader, as the store reported it.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Leader {
    /// The value with which the leader campaigned.
    pub value: String,
    /// The term of the leader: the fencing token of its grant. It is above all terms before it.
    pub term: FencingToken,
    /// The owner id of its claim.
    pub owner: OwnerId,
    /// How long its lease still lasted when the store was asked. A renewal makes it longer. `None`
    /// where the store does not report it.
    pub remaining: Option<Duration>,
}

impl Leader {
    /// Finds the leader among the holders: a lockkit client whose lease has not ended.
    pub(super) fn of(inspection: Inspection) -> Option<Self> {
        inspection.holders.into_iter().find_map(|holder| {
            let Holder { owner, token, label, remaining, .. } = holder;
            let owner = owner?;
            let term = token?;
            let stands = remaining != Some(Duration::ZERO);
            stands.then(|| Self { value: label.unwrap_or_default(), term, owner, remaining })
        })
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        (self.term, self.owner) == (other.term, other.owner)
    }
}
