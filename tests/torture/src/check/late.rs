//! Late requests. If leases belong to sessions or connections, a claim whose session has ended asks
//! again on the next one. The store may apply its first request after that, because these stores
//! check no not-after time. The effect then ends with the first session (C5).

use super::index::{Claim, Index, Place};
use crate::history::Event;

/// Whether the token that a look shows for a granted claim may come from such a request. It may not
/// if the look shows it in the place of a grant that the claim still has.
pub(super) fn may_have(
    index: &Index<'_>,
    claim: &Claim<'_>,
    token: Option<u64>,
    look: Place,
) -> bool {
    let Some(granted) = claim.granted.filter(|_| index.terms.ends_with_links) else { return false };
    let Event::Granted { token: own, .. } = index.records[granted].event else { return false };
    let Event::Seen { answered, holders, .. } = &index.records[look].event else { return false };
    let has_own =
        holders.iter().any(|holder| holder.op == Some(claim.op) && holder.token == Some(own));
    let is_over = claim.releases.is_some_and(|releases| index.at(releases) <= *answered);
    let ends = index.bound(index.at(granted), claim.lease, Some(claim.op.process));
    token.is_some_and(|token| token != own) && (has_own || is_over) && index.at(look) <= ends
}
