//! The members, and the capabilities that they have together.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use lockkit_core::{
    Error, ErrorKind, FencingToken, LockName, OwnerId, Result,
    spi::{
        Backend, Capabilities, Descriptor, Exceptions, Inspection, Poll, Released, RenewalPacing,
    },
};

use crate::need::Need;

/// One of the stores, with its name in errors.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) label: Arc<str>,
    pub(crate) token_base: Option<u64>,
}

/// The relation between a member's token and the token of the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenRole {
    /// The grant's token is this member's token, which its `token_base` makes the largest.
    Authority,
    /// The grant has another token, and this member's token cannot be raised.
    Ignored,
    /// The member's token is raised to that of the grant.
    Raised,
}

impl Member {
    pub(crate) fn new(place: usize, backend: Arc<dyn Backend>) -> Self {
        let label = label(place, backend.descriptor().name);
        Self { backend, label, token_base: None }
    }

    pub(crate) fn token_role(&self) -> TokenRole {
        match self.token_base {
            Some(_) => TokenRole::Authority,
            None if self.backend.descriptor().capabilities.raise_token => TokenRole::Raised,
            None => TokenRole::Ignored,
        }
    }

    pub(crate) fn base(&self) -> u64 {
        self.token_base.unwrap_or(0)
    }

    pub(crate) fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Inspection>> {
        Box::pin(async move {
            let mut seen = self.backend.inspect(name).await?;
            for holder in &mut seen.holders {
                holder.token = holder.token.map(|token| based(token, self.base()));
            }
            Ok(seen)
        })
    }

    /// Ends the grant of `owner` by the member's token. If that token was raised to the token of
    /// the grant meanwhile, ends it by that one. Both have the form that
    /// [`inspect`](Self::inspect) shows. Returns whether `owner` is without the lock at this member
    /// now.
    pub(crate) fn free<'a>(
        &'a self,
        name: &'a LockName,
        owner: OwnerId,
        mut token: FencingToken,
        of_grant: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            loop {
                let own = FencingToken::new(token.get().saturating_sub(self.base()));
                if self.backend.force_release(name, own).await? == Released::Freed {
                    return Ok(true);
                }
                let seen = self.inspect(name).await?;
                let Some(holder) = seen.holders.iter().find(|it| it.owner == Some(owner)) else {
                    return Ok(true);
                };
                if token == of_grant || holder.token != Some(of_grant) {
                    return Ok(false);
                }
                token = of_grant;
            }
        })
    }
}

/// Adds a base to a token. With a base of up to [`LARGEST_BASE`] the sum is exact for any
/// transaction number of ZooKeeper, which is signed.
pub(crate) fn based(token: FencingToken, base: u64) -> FencingToken {
    FencingToken::new(token.get().saturating_add(base))
}

/// The label of a member. Labels count from 1.
pub(crate) fn label(place: usize, store: &str) -> Arc<str> {
    format!("member {} ({store})", place + 1).into()
}

pub(crate) fn refused(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOption, text.into()).with_backend(NAME)
}

pub(crate) const NAME: &str = "quorum";
const LARGEST_BASE: u64 = 1 << 62;
const POLL: Poll = Poll { min: Duration::from_millis(10), max: Duration::from_millis(200) };

/// The members' leases end one after the other. An attempt in between is refused, and the next
/// attempt comes after a poll.
const TAKEOVER_DELAY: Duration = Duration::from_millis(250);

/// Describes what `members` can do together.
///
/// # Errors
/// [`ErrorKind::InvalidOption`] if the members cannot make a lock.
pub(crate) fn describe(members: &[Member], need: Need) -> Result<Descriptor> {
    check(members, need)?;
    let descriptors: Vec<_> = members.iter().map(|member| member.backend.descriptor()).collect();
    let all = |can: fn(&Capabilities) -> bool| descriptors.iter().all(|it| can(&it.capabilities));
    let count =
        |has: fn(&Exceptions) -> bool| descriptors.iter().filter(|it| has(&it.exceptions)).count();
    let longest = |of: fn(&Descriptor) -> Duration| {
        descriptors.iter().map(|it| of(it)).max().unwrap_or_default()
    };
    let capabilities = Capabilities {
        exclusive: true,
        labels: all(|can| can.labels),
        names: all(|can| can.names),
        extend: all(|can| can.extend),
        // A ticket has the quorum's token, which each part must have, too.
        tickets: all(|can| can.tickets && can.raise_token),
        ..Capabilities::NONE
    };
    // Two quorums may have only one member in common. A fault that makes that member forget a grant
    // breaks exclusion.
    let exceptions = Exceptions {
        async_failover: count(|has| has.async_failover) > 0,
        connection_bound: count(|has| has.connection_bound) > 0,
        server_clock_step: count(|has| has.server_clock_step) > 0,
        // The other members are free after their leases, and may be enough.
        no_lease: count(|has| has.no_lease) > members.len() - need.of(members.len()),
    };
    let RenewalPacing { longest: renewal_pacing, .. } = descriptors
        .iter()
        .map(|it| it.renewal_pacing)
        .min_by_key(|it| it.longest)
        .unwrap_or(descriptors[0].renewal_pacing);
    Ok(Descriptor {
        capabilities,
        exceptions,
        poll: POLL,
        takeover_delay: longest(|it| it.takeover_delay).saturating_add(TAKEOVER_DELAY),
        min_ttl: longest(|it| it.min_ttl),
        longest_lease: descriptors.iter().map(|it| it.longest_lease).min().unwrap_or(Duration::MAX),
        renewal_pacing: RenewalPacing { longest: renewal_pacing, together: false },
        ..Descriptor::new(NAME)
    })
}

/// # Errors
/// A member cannot be used in a quorum.
fn check(members: &[Member], need: Need) -> Result<()> {
    if members.is_empty() {
        return Err(refused("a quorum needs at least one member"));
    }
    for (place, member) in members.iter().enumerate() {
        let Member { backend, label, token_base } = member;
        let Descriptor { name, capabilities, .. } = backend.descriptor();
        if members[..place].iter().any(|other| Arc::ptr_eq(&other.backend, backend)) {
            return Err(refused(format!(
                "{label} occurs twice; each member must be a different store"
            )));
        }
        if *name == NAME {
            return Err(refused(format!("{label} is a quorum itself; name its members instead")));
        }
        if !capabilities.exclusive {
            return Err(refused(format!("{label} does not support exclusive locks; leave it out")));
        }
        if need == Need::Majority && !capabilities.raise_token {
            return Err(refused(format!(
                "{label} does not support raising the token of a grant, so the tokens of a \
                 majority would not rise; leave it out, or use need=all"
            )));
        }
        if let Some(base) = token_base {
            check_base(place, label, *base, need, capabilities)?;
        }
    }
    Ok(())
}

/// Returns a capability that [`describe`] assumed and `member` does not have, if there is one.
pub(crate) fn lacking(expected: &Descriptor, member: &Descriptor) -> Option<&'static str> {
    let can = &expected.capabilities;
    let has = &member.capabilities;
    let known = &expected.exceptions;
    let breaks = &member.exceptions;
    let checks = [
        (can.exclusive && !has.exclusive, "no exclusive locks"),
        (can.raise_token && !has.raise_token, "no raising of tokens"),
        (can.extend && !has.extend, "no leases of another length"),
        (can.labels && !has.labels, "no labels"),
        (can.names && !has.names, "no lists of names"),
        (can.tickets && !has.tickets, "no tickets"),
        (!known.async_failover && breaks.async_failover, "an asynchronous failover"),
        (
            !known.connection_bound && breaks.connection_bound,
            "locks that end with their connections",
        ),
        (
            !known.server_clock_step && breaks.server_clock_step,
            "leases that end at a step of its clock",
        ),
        (!known.no_lease && breaks.no_lease, "no leases"),
        (member.lease_scope != expected.lease_scope, "leases of another scope"),
        (member.min_ttl > expected.min_ttl, "a longer shortest ttl"),
        (
            member.takeover_delay > expected.takeover_delay,
            "a longer delay after the end of a lease",
        ),
        (member.longest_lease < expected.longest_lease, "shorter leases"),
        (
            member.renewal_pacing.longest < expected.renewal_pacing.longest,
            "renewals that must come more often",
        ),
    ];
    checks.into_iter().find_map(|(lacks, what)| lacks.then_some(what))
}

fn check_base(place: usize, label: &str, base: u64, need: Need, can: &Capabilities) -> Result<()> {
    if need == Need::Majority {
        return Err(refused(format!(
            "the token_base of {label} applies to the whole quorum; write it beside the members, \
             or use need=all"
        )));
    }
    if can.raise_token {
        return Err(refused(format!(
            "{label} has a token_base, but the quorum raises its tokens; remove that token_base"
        )));
    }
    // The other members' tokens then rise with this member's token, and never above it.
    if place > 0 {
        return Err(refused(format!("{label} has a token_base, so it must be the first member")));
    }
    if base > LARGEST_BASE {
        return Err(refused(format!(
            "the token_base of {label} is {base}, but at most {LARGEST_BASE} is allowed"
        )));
    }
    Ok(())
}
