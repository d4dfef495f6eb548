//! The errors for an operation that too few members confirmed.

use std::fmt::Write as _;

use lockkit_core::{Error, ErrorKind, ErrorStatus, Tick, spi::Released};

use crate::{
    ballot::Ballot,
    member::{Member, NAME},
    members::Members,
    vote::{Standing, Vote},
};

/// An error of one member, with the member's name.
pub(crate) fn of_member(member: &Member, error: Error) -> Error {
    let text = format!("{}: {}", member.label, error.context());
    let kind = error.kind();
    let status = error.status();
    let unknown = error.is_outcome_unknown();
    let error = Error::new(kind, text).with_status(status).with_backend(NAME).with_source(error);
    if unknown { error.with_outcome_unknown() } else { error }
}

pub(crate) fn of_attempt(members: &Members, ballot: &Ballot, now: Tick) -> Error {
    let granted = ballot.count(|vote| vote.part().is_some());
    let why = |vote: &Vote| match &vote.standing {
        Standing::Granted(part) if part.deadline() <= now => Some("its lease has ended by now"),
        Standing::Granted(_) => vote.trouble.as_ref().map(|_| "could not raise its token"),
        Standing::Open if vote.is_in_flight() => Some("no answer so far"),
        Standing::Failed => Some("failed"),
        Standing::Refused(_) => Some("another client has the lock there"),
        Standing::Lost(_) => Some("the lock was granted there and lost again"),
        Standing::Open | Standing::Returned(_) => None,
    };
    error(members, ballot, granted, "granted", why)
}

pub(crate) fn of_renewal(members: &Members, ballot: &Ballot) -> Error {
    let confirmed = ballot.confirmed();
    let why = |vote: &Vote| match &vote.standing {
        Standing::Granted(_) if ballot.is_confirmed(vote) => None,
        Standing::Granted(_) => Some("no answer in time"),
        Standing::Lost(_) | Standing::Returned(_) => Some("the lock is lost there"),
        _ => Some("it never granted the lock"),
    };
    error(members, ballot, confirmed, "renewed", why).with_outcome_unknown()
}

pub(crate) fn of_release(members: &Members, ballot: &Ballot) -> Error {
    let freed = |vote: &Vote| matches!(vote.standing, Standing::Returned(Released::Freed));
    let why = |vote: &Vote| vote.dirty.then_some("no answer in time");
    error(members, ballot, ballot.count(freed), "freed the lock", why).with_outcome_unknown()
}

/// The error is permanent if so many members fail permanently that the others are not enough.
/// Otherwise its kind is one that is worth another attempt.
fn error(
    members: &Members,
    ballot: &Ballot,
    count: usize,
    did: &str,
    why: impl Fn(&Vote) -> Option<&'static str>,
) -> Error {
    let all = ballot.votes.len();
    let need = ballot.need();
    let mut text = format!(
        "{count} of {all} members {did}, {need} {} needed",
        if need == 1 { "is" } else { "are" }
    );
    let mut separator = ": ";
    let mut permanent = Vec::new();
    for (vote, member) in ballot.votes.iter().zip(&members.all) {
        let Some(reason) = why(vote) else { continue };
        let trouble =
            vote.trouble.as_ref().filter(|_| !matches!(vote.standing, Standing::Refused(_)));
        let reason = trouble.map_or(reason, Error::context);
        // Writing to a String can't fail.
        let _ = write!(text, "{separator}{}: {reason}", member.label);
        separator = "; ";
        permanent.extend(trouble.filter(|error| !error.is_temporary()).map(Error::kind));
    }
    match permanent.first() {
        Some(kind) if permanent.len() > all - need => {
            Error::new(*kind, text).with_status(ErrorStatus::Permanent)
        }
        _ => Error::new(ErrorKind::Unavailable, text),
    }
}
