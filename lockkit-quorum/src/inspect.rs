//! Combines the inspections of the members.

use std::{collections::BTreeMap, time::Duration};

use lockkit_core::{
    Error, ErrorKind, FencingToken, OwnerId, Result,
    spi::{Holder, Inspection, Mode},
};

use crate::{
    gather::{Answers, good, silent},
    member::{Member, TokenRole},
    need::Need,
};

/// A holder, and the place of the member that shows it.
type Shown<'a> = (usize, &'a Holder);

/// The holders that `need` members show, all with the token of the grant. The owner `None` stands
/// for clients that are not lockkit.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if a client may hold the lock, and the answers do not prove that, or
/// do not prove the token. A member that does not answer can be a part of that grant. A member that
/// granted late can show another token than the grant's. During a ballot any member can do so.
pub(crate) fn holders(
    answers: &Answers<Inspection>,
    members: &[Member],
    need: Need,
) -> Result<Vec<Holder>> {
    let enough = need.of(answers.len());
    let hidden = answers.len() - good(answers).count();
    let mut holders = Vec::new();
    for shown in by_owner(answers).values() {
        if let Some(holder) = of_grant(shown, members, need, enough) {
            holders.push(merge(shown, holder.token, enough));
        } else if shown.len() + hidden >= enough {
            return Err(unclear(answers, shown, members));
        }
    }
    Ok(holders)
}

/// Whether the answers so far are enough to tell the holders.
pub(crate) fn is_settled(answers: &Answers<Inspection>, members: &[Member], need: Need) -> bool {
    good(answers).count() >= need.of(answers.len()) && holders(answers, members, need).is_ok()
}

/// The token that each member shows for this owner.
pub(crate) fn tokens(answers: &Answers<Inspection>, owner: OwnerId) -> Vec<(usize, FencingToken)> {
    let shown = good(answers)
        .flat_map(|(place, seen)| seen.holders.iter().map(move |holder| (place, holder)));
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

/// A holder that shows the token of the grant, if this owner has one. After a win, each member of
/// the majority has the token of the grant. Too few members can join with another token to be a
/// majority of their own. Where all are needed, the token is the largest one.
///
/// Before the win the token may be smaller, if enough members granted with the same token and are
/// not raised yet. That token, too, is larger than the tokens of all earlier grants.
fn of_grant<'a>(
    shown: &[Shown<'a>],
    members: &[Member],
    need: Need,
    enough: usize,
) -> Option<&'a Holder> {
    if shown.len() < enough {
        return None;
    }
    let alike = |token| shown.iter().filter(|(_, holder)| holder.token == token).count();
    match need {
        Need::Majority => {
            shown.iter().map(|(_, holder)| *holder).find(|it| alike(it.token) >= enough)
        }
        Need::All => trusted(shown, members).into_iter().max_by_key(|holder| holder.token),
    }
}

fn unclear(answers: &Answers<Inspection>, shown: &[Shown<'_>], members: &[Member]) -> Error {
    let label = |place: usize| &*members[place].label;
    let shown = shown.iter().map(|(place, holder)| match holder.token {
        Some(token) => format!("{} shows token {token}", label(*place)),
        None => format!("{} shows a client that is not lockkit", label(*place)),
    });
    let reasons: Vec<_> = shown.chain(silent(answers, label)).collect();
    let text = format!(
        "the members do not agree on the holder and its token: {}; inspect again later",
        reasons.join("; ")
    );
    Error::new(ErrorKind::Unavailable, text)
}

fn merge(shown: &[Shown<'_>], token: Option<FencingToken>, enough: usize) -> Holder {
    let mut merged = Holder::new(Mode::Exclusive);
    let shown: Vec<_> = shown.iter().map(|(_, holder)| *holder).collect();
    if let (Some(owner), Some(token)) = (shown[0].owner, token) {
        merged = merged.with_grant(owner, token);
    }
    // A holder without a lease lasts for ever.
    let mut remaining: Vec<_> =
        shown.iter().map(|holder| holder.remaining.unwrap_or(Duration::MAX)).collect();
    remaining.sort_unstable_by(|a, b| b.cmp(a));
    merged
        .with_remaining(remaining.get(enough - 1).copied().filter(|left| *left < Duration::MAX))
        .with_age(shown.iter().filter_map(|holder| holder.age).min())
        .with_label(shown.iter().find_map(|holder| holder.label.clone()))
}

/// The holders that can show the token of the grant where all are needed. During a move, clients of
/// the step before or after use the same stores without the base. For their grants the leading
/// member shows a token that is larger than the grant's. A member that was raised to the grant's
/// token shows the right one.
fn trusted<'a>(shown: &[Shown<'a>], members: &[Member]) -> Vec<&'a Holder> {
    let of = |token_role: TokenRole| {
        let of_role =
            shown.iter().filter(move |(place, _)| members[*place].token_role() == token_role);
        of_role.map(|(_, holder)| *holder).collect::<Vec<_>>()
    };
    let raised = of(TokenRole::Raised);
    if raised.is_empty() || of(TokenRole::Authority).is_empty() {
        return shown.iter().map(|(_, holder)| *holder).collect();
    }
    raised
}
