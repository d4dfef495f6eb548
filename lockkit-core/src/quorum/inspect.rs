//! What the members show together.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Need,
    gather::{Answers, good},
};
use crate::{
    spi::{Holder, Inspection, Mode},
    token::{FencingToken, OwnerId},
};

/// The holders that `need` members show. `None` stands for those that are no lockkit clients.
pub(super) fn holders(answers: &Answers<Inspection>, need: Need) -> Vec<Holder> {
    let enough = need.of(answers.len());
    let by_owner = by_owner(answers);
    by_owner.values().filter(|shown| shown.len() >= enough).map(|shown| merge(shown, need, enough)).collect()
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
    let agree = |shown: &Vec<&Holder>| {
        shown.len() >= enough
            && shown.iter().filter(|holder| holder.token == shown[0].token).count() >= enough
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

fn by_owner(answers: &Answers<Inspection>) -> BTreeMap<Option<OwnerId>, Vec<&Holder>> {
    let mut by_owner = BTreeMap::<_, Vec<_>>::new();
    for (_, seen) in good(answers) {
        let mut counted = Vec::new();
        for holder in seen.holders.iter().filter(|holder| holder.mode == Mode::Exclusive) {
            if !counted.contains(&holder.owner) {
                counted.push(holder.owner);
                by_owner.entry(holder.owner).or_default().push(holder);
            }
        }
    }
    by_owner
}

fn merge(shown: &[&Holder], need: Need, enough: usize) -> Holder {
    let mut merged = Holder::new(Mode::Exclusive);
    let mut tokens: Vec<_> = shown.iter().filter_map(|holder| holder.token).collect();
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
