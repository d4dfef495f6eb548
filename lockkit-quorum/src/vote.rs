//! One member's part in a ballot: its claim, and the known state of that claim.

use std::{
    fmt,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use lockkit_core::{
    Clock, Error, ErrorKind, FencingToken, Result, Tick,
    spi::{Attempt, Claim, Lease, LossReason, Released, RenewalOutcome, Wait, bounded},
};

use crate::member::{Member, TokenRole, based};

/// How often a ballot asks a leading member again while its token is smaller than another member's.
const MOST_CATCHING_UP: u32 = 8;

/// A claim of one member. At most one request is under way on it.
///
/// The request owns the claim during that time. So the request outlives the call that sent it, and
/// the next call continues to poll it.
pub(crate) struct Vote {
    /// The member's place.
    pub(crate) place: usize,
    pub(crate) token_role: TokenRole,
    /// The base that is added to the member's tokens.
    base: u64,
    pub(crate) standing: Standing,
    /// The member's store may contain a part of this claim.
    pub(crate) dirty: bool,
    /// The last error.
    pub(crate) trouble: Option<Error>,
    seat: Seat,
    /// An attempt had no answer. It may be applied later, whatever was answered since.
    in_doubt: bool,
    /// Until when an extended lease may live, if one was requested.
    extended: Option<Tick>,
    /// A request was made and not polled yet.
    fresh: bool,
    /// The vote gives back a token that is too small, in order to ask for the next one.
    catching_up: bool,
    /// How often the vote did that.
    caught_up: u32,
    /// The last token that it was to be raised to, and the call of the quorum's claim that asked
    /// for it.
    raised: Option<(FencingToken, u64)>,
    /// The calls that last renewed it, confirmed it and released it.
    beaten_in: u64,
    confirmed_in: u64,
    released_in: u64,
    clock: Clock,
}

/// The last known state of the claim at the member.
#[derive(Debug)]
pub(crate) enum Standing {
    /// No answer yet.
    Open,
    /// The attempt failed.
    Failed,
    /// Another client has the lock there.
    Refused(Option<Duration>),
    Granted(Part),
    /// The lock is not ours any more.
    Lost(LossReason),
    Returned(Released),
}

/// A member's grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The token at the member, which may have been raised.
    pub(crate) token: FencingToken,
    /// When the request that proved the lease was sent.
    pub(crate) at: Tick,
    pub(crate) lease: Lease,
}

impl Part {
    /// The instant until which the part counts.
    pub(crate) fn deadline(&self) -> Tick {
        self.lease.deadline(self.at)
    }

    /// The lease of the part, which counts from the request to this member.
    pub(crate) fn proven(&self) -> Lease {
        match self.lease {
            Lease::For(lasts) => Lease::Proven { at: self.at, lasts },
            proven => proven,
        }
    }
}

enum Seat {
    Idle(Box<dyn Claim>),
    Asking(Flight),
    Other(Flight),
    Gone,
}

type Flight = BoxFuture<'static, (Box<dyn Claim>, Answer)>;

enum Answer {
    Asked(Tick, Result<Attempt>),
    Raised(Result<Option<FencingToken>>),
    Beaten(Tick, Result<RenewalOutcome>, u64),
    Released(Result<Released>),
}

impl Vote {
    pub(crate) fn new(place: usize, member: &Member, claim: Box<dyn Claim>, clock: Clock) -> Self {
        Self {
            place,
            token_role: member.token_role(),
            base: member.base(),
            standing: Standing::Open,
            dirty: false,
            trouble: None,
            seat: Seat::Idle(claim),
            in_doubt: false,
            extended: None,
            fresh: false,
            catching_up: false,
            caught_up: 0,
            raised: None,
            beaten_in: 0,
            confirmed_in: 0,
            released_in: 0,
            clock,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.seat, Seat::Idle(_))
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(self.seat, Seat::Asking(_) | Seat::Other(_))
    }

    /// Whether its attempt is under way.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.seat, Seat::Asking(_))
    }

    /// Whether the vote gives back a token that is too small, in order to ask again.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.catching_up
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    pub(crate) fn part(&self) -> Option<&Part> {
        if let Standing::Granted(part) = &self.standing { Some(part) } else { None }
    }

    /// The member's grant, if it counts now.
    pub(crate) fn valid(&self, now: Tick) -> Option<&Part> {
        self.part().filter(|part| part.deadline() > now)
    }

    pub(crate) fn is_confirmed_in(&self, call: u64) -> bool {
        self.confirmed_in == call
    }

    pub(crate) fn is_released_in(&self, call: u64) -> bool {
        self.released_in == call
    }

    /// Whether the member had no renewal in this call yet.
    pub(crate) fn wants_beat(&self, call: u64) -> bool {
        self.beaten_in != call
    }

    /// Whether the member was not asked in this call yet to raise its token to `floor`.
    pub(crate) fn wants_raise(&self, floor: FencingToken, call: u64) -> bool {
        self.raised != Some((floor, call))
    }

    /// Whether a raise of this call is under way.
    pub(crate) fn is_raising(&self, call: u64) -> bool {
        self.raised.is_some_and(|(_, raised_in)| raised_in == call) && self.is_in_flight()
    }

    pub(crate) fn ask(&mut self, budget: Duration) {
        if self.send(Request::Ask, budget) {
            (self.standing, self.dirty) = (Standing::Open, true);
        }
    }

    /// Settles the ballot's token. A leading member must have that token, or its grant does not
    /// count. A request of a ballot that was given up may have reached another member late. That
    /// member is then ahead by one. So the leading member is asked again, which moves it further.
    pub(crate) fn settle(&mut self, settled: FencingToken, budget: Duration) {
        let Some(part) = self
            .part()
            .filter(|part| self.token_role == TokenRole::Authority && part.token < settled)
        else {
            return;
        };
        let own = part.token;
        let base = self.base;
        if self.caught_up < MOST_CATCHING_UP && self.send(Request::Release, budget) {
            self.standing = Standing::Open;
            self.catching_up = true;
            self.caught_up += 1;
            return;
        }
        let text = format!(
            "its token {own}, which includes token_base {base}, is smaller than another member's \
             token {settled}; choose a token_base above all tokens of the other members"
        );
        (self.standing, self.trouble) =
            (Standing::Failed, Some(Error::new(ErrorKind::InvalidOption, text)));
    }

    pub(crate) fn raise(&mut self, floor: FencingToken, budget: Duration, call: u64) {
        self.raised = Some((floor, call));
        self.send(Request::Raise(floor), budget);
    }

    /// Renews the lease, for another length if one is given.
    pub(crate) fn beat(&mut self, lease: Option<Duration>, budget: Duration, call: u64) {
        self.beaten_in = call;
        if let Some(lease) = lease {
            let lapse = self.clock.now().after(budget.saturating_add(lease));
            self.extended = self.extended.max(Some(lapse));
        }
        self.send(Request::Beat(lease, call), budget);
    }

    /// Until when a lease of this claim may live, if the lease of a grant lives until `granted`.
    pub(crate) fn lapse(&self, granted: Tick) -> Tick {
        self.extended.map_or(granted, |extended| extended.max(granted))
    }

    /// Leaves the member's grant to another owner. Returns false if the member has none.
    pub(crate) fn leave_grant(&mut self) -> bool {
        let is_granted = self.part().is_some();
        if is_granted && let Seat::Idle(claim) = &mut self.seat {
            claim.leave_grant();
        }
        is_granted
    }

    pub(crate) fn release(&mut self, budget: Duration, call: u64) {
        self.released_in = call;
        self.send(Request::Release, budget);
    }

    /// Returns false if another request is under way.
    fn send(&mut self, request: Request, budget: Duration) -> bool {
        let claim = match std::mem::replace(&mut self.seat, Seat::Gone) {
            Seat::Idle(claim) => claim,
            other => {
                self.seat = other;
                return false;
            }
        };
        self.fresh = true;
        let asks = matches!(request, Request::Ask);
        let flight = Box::pin(carry(claim, request, budget, self.clock.now()));
        self.seat = if asks { Seat::Asking(flight) } else { Seat::Other(flight) };
        true
    }

    /// Polls the request that is under way. Ready when it is answered, or when there is none.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.fresh = false;
        let flight = match &mut self.seat {
            Seat::Asking(flight) | Seat::Other(flight) => flight,
            Seat::Idle(_) | Seat::Gone => return Poll::Ready(()),
        };
        let Poll::Ready((claim, answer)) = flight.as_mut().poll(cx) else { return Poll::Pending };
        self.seat = Seat::Idle(claim);
        self.learn(answer);
        Poll::Ready(())
    }

    fn learn(&mut self, answer: Answer) {
        match answer {
            Answer::Asked(at, Ok(Attempt::Granted(grant))) => {
                let token = based(grant.token, self.base);
                self.standing = Standing::Granted(Part { token, at, lease: grant.lease });
            }
            Answer::Asked(_, Ok(Attempt::Busy { queued, retry_after })) => {
                self.standing = Standing::Refused(retry_after);
                self.dirty = queued || self.in_doubt;
            }
            Answer::Asked(_, Err(error)) => {
                self.in_doubt |= error.is_outcome_unknown();
                (self.standing, self.dirty) = (Standing::Failed, self.in_doubt);
                self.trouble = Some(error);
            }
            Answer::Raised(Ok(Some(token))) => {
                if let Standing::Granted(part) = &mut self.standing {
                    part.token = part.token.max(token);
                }
            }
            Answer::Raised(Ok(None)) => self.standing = Standing::Lost(LossReason::Evicted),
            Answer::Beaten(sent, Ok(RenewalOutcome::Alive(lease)), call) => {
                if let Standing::Granted(part) = &mut self.standing {
                    (part.at, part.lease) = (sent, lease);
                    self.confirmed_in = call;
                }
            }
            Answer::Beaten(_, Ok(RenewalOutcome::Lost(reason)), _) => {
                self.standing = Standing::Lost(reason)
            }
            Answer::Released(Ok(_)) if self.catching_up => {
                (self.standing, self.dirty, self.catching_up) = (Standing::Open, false, false);
            }
            Answer::Released(Ok(released)) => {
                (self.standing, self.dirty) = (Standing::Returned(released), false);
            }
            Answer::Released(Err(error)) if self.catching_up => {
                (self.standing, self.trouble, self.catching_up) =
                    (Standing::Failed, Some(error), false);
            }
            Answer::Raised(Err(error))
            | Answer::Beaten(_, Err(error), _)
            | Answer::Released(Err(error)) => {
                self.trouble = Some(error);
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Request {
    Ask,
    Beat(Option<Duration>, u64),
    Raise(FencingToken),
    Release,
}

/// Carries out a request. The bound is inside, so that the claim survives it.
async fn carry(
    mut claim: Box<dyn Claim>,
    request: Request,
    budget: Duration,
    sent: Tick,
) -> (Box<dyn Claim>, Answer) {
    let answer = match request {
        Request::Ask => Answer::Asked(sent, bounded(budget, claim.attempt(Wait::No)).await),
        Request::Beat(None, call) => {
            Answer::Beaten(sent, bounded(budget, claim.renew(None)).await, call)
        }
        Request::Beat(Some(lease), call) => {
            Answer::Beaten(sent, bounded(budget, claim.renew(Some(lease))).await, call)
        }
        Request::Raise(floor) => Answer::Raised(bounded(budget, claim.raise_token(floor)).await),
        Request::Release => Answer::Released(bounded(budget, claim.release()).await),
    };
    (claim, answer)
}

impl fmt::Debug for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vote")
            .field("place", &self.place)
            .field("standing", &self.standing)
            .finish_non_exhaustive()
    }
}
