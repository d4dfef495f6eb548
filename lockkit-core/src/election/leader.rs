//! What others see of a leader.

use std::time::Duration;

use crate::{
    spi::{Holder, Inspection},
    token::{FencingToken, OwnerId},
};

/// Who leads, as the store told it.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Leader {
    /// What it campaigned with.
    pub value: String,
    /// Its term, which is above all before it: the fencing token of its grant.
    pub term: FencingToken,
    /// The identity of its claim.
    pub owner: OwnerId,
    /// How long its lease still lasted when the store was asked, unless it renews it; `None` where
    /// the store does not tell.
    pub remaining: Option<Duration>,
}

impl Leader {
    /// The leader among the holders: one of ours, whose lease stands.
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
