//! What the members show together.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Need,
    gather::{Answers, good},
    member::{Fence, Member},
};
use crate::{
    spi::{Holder, Inspection, Mode},
    token::{FencingToken, OwnerId},
};

/// A holder, and the place of the member that shows it.
type Shown<'a> = (usize, &'a Holder);

/// The holders that `need` members show. `None` stands for those that are no lockkit clients.
pub(super) fn holders(answers: &Answers<Inspection>, members: &[Member], need: Need) -> Vec<Holder> {
    let enough = need.of(answers.len());
    let by_owner = by_owner(answers);
    let shown = by_owner.values().filter(|shown| shown.len() >= enough);
    shown.map(|shown| merge(shown, members, need, enough)).collect()
}

/// The rest of the answers makes no difference: so many show one token that it is the grant's, or no holder can be
/// shown by enough.
pub(super) fn is_settled(answers: &Answers<Inspection>, need: Need) -> bool {
    let enough = need.of(answers.len());
    if good(answers).count() < enough {
        return false;
    }
    let open = answers.iter().filter(|answer| answer.is_none()).count();
    let by_owner = by_owner(answers);
    let agree = |shown: &Vec<Shown<'_>>| {
        shown.len() >= enough
            && shown.iter().filter(|(_, holder)| holder.token == shown[0].1.token).count() >= enough
    };
    by_owner.values().any(agree) || by_owner.values().all(|shown| shown.len() + open < enough)
}

/// The token by which each member knows this owner.
pub(super) fn tokens(answers: &Answers<Inspection>, owner: OwnerId) -> Vec<(usize, FencingToken)> {
    let shown =
        good(answers).flat_map(|(place, seen)| seen.holders.iter().map(move |holder| (place, holder)));
    let of_owner = shown.filter(|(_, holder)| holder.owner == Some(owner));
    of_owner.filter_map(|(place, holder)| Some((place, holder.token?))).collect()
}

fn by_owner(answers: &Answers<Inspection>) -> BTreeMap<Option<OwnerId>, Vec<Shown<'_>>> {
    let mut by_owner = BTreeMap::<_, Vec<_>>::new();
    for (place, seen) in good(answers) {
        let mut counted = Vec::new();
        for holder in seen.holders.iter().filter(|holder| holder.mode == Mode::Exclusive) {
            if !counted.contains(&holder.owner) {
                counted.push(holder.owner);
                by_owner.entry(holder.owner).or_default().push((place, holder));
            }
        }
    }
    by_owner
}

fn merge(shown: &[Shown<'_>], members: &[Member], need: Need, enough: usize) -> Holder {
    let mut merged = Holder::new(Mode::Exclusive);
    let mut tokens = tokens_of(shown, members);
    let shown: Vec<_> = shown.iter().map(|(_, holder)| *holder).collect();
    tokens.sort_unstable_by(|a, b| b.cmp(a));
    // Of a majority, `enough` have the grant's token or a larger one; and what is larger came from members that granted
    // after the token was settled, which are fewer than the rest.
    let token = tokens.get(if need == Need::All { 0 } else { enough - 1 });
    if let (Some(owner), Some(token)) = (shown[0].owner, token) {
        merged = merged.with_grant(owner, *token);
    }
    // Where there is no lease, it lasts for ever.
    let mut remaining: Vec<_> =
        shown.iter().map(|holder| holder.remaining.unwrap_or(Duration::MAX)).collect();
    remaining.sort_unstable_by(|a, b| b.cmp(a));
    merged
        .with_remaining(remaining.get(enough - 1).copied().filter(|left| *left < Duration::MAX))
        .with_age(shown.iter().filter_map(|holder| holder.age).min())
        .with_label(shown.iter().find_map(|holder| holder.label.clone()))
}

/// Those from which the grant's is chosen. Whoever uses the same stores without the base, in the step of a move before or after,
/// has a grant of which the leading member says more than was granted; one that was raised to the grant's token says that.
fn tokens_of(shown: &[Shown<'_>], members: &[Member]) -> Vec<FencingToken> {
    let of = |fence: Fence| {
        let of_fence = shown.iter().filter(move |(place, _)| members[*place].fence() == fence);
        of_fence.filter_map(|(_, holder)| holder.token).collect::<Vec<_>>()
    };
    let raised = of(Fence::Raised);
    if raised.is_empty() || of(Fence::Lead).is_empty() {
        return shown.iter().filter_map(|(_, holder)| holder.token).collect();
    }
    raised
}
