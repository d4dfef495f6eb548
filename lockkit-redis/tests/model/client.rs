//! One claim: the knowledge of its client, and the requests and answers under way.

use crate::{
    calls::{Answer, Call, Message, OWNERS, TICK, Tick},
    rules::{Flaw, Rules},
};

/// How far one call raises a token, in µs.
const AHEAD: i64 = 20 * 1000 * TICK;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Waiting,
    Holding,
    /// The claim has sent a transfer, and holds again if the answer comes in time.
    Moving,
    /// The former owner has made a ticket, and the next one asks for its grant.
    Resuming,
    /// The claim has given up, or its lease is over. It does not know yet that its release is
    /// final.
    Leaving,
    Done,
    /// The release of the next owner is final, and no claim uses the ticket. The former owner's
    /// grant stays until its lease ends.
    Unused,
    Crashed,
}

/// The state of a client's subscription, as the server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ear {
    Closed,
    Open,
    /// The server counts the subscription, but no client listens any more.
    Ghost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) call: Call,
    /// Which of the client's owners asks.
    pub(crate) owner: u8,
    pub(crate) sent: Tick,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    pub(crate) ear: Ear,
    pub(crate) changed: bool,
    /// The requests on the present connection, in order. `unanswered` has those on the one before.
    pub(crate) requests: Vec<Request>,
    pub(crate) unanswered: Vec<Request>,
    pub(crate) replies: Vec<(Request, Answer)>,
    pub(crate) messages: Vec<Message>,
    /// The request that the claim waits for. `refreshing` is the one for its waiters.
    pub(crate) asked: Option<Request>,
    pub(crate) refreshing: Option<Request>,
    /// The send time and the server time of the latest answer on this connection.
    anchor: Option<(Tick, Tick)>,
    /// The offset of the server's clock, as the client knows it.
    offset: Tick,
    queued: bool,
    /// Until when an unanswered attempt on this connection may be applied. `open_unanswered` is the
    /// same for the connection before.
    open: Option<Tick>,
    open_unanswered: Option<Tick>,
    pub(crate) token: i64,
    /// The value to which the token may have been raised.
    pub(crate) floor: i64,
    /// The number of the present owner. `successor` is true if the next one may have the lock.
    pub(crate) owner: u8,
    successor: bool,
    /// The token in a ticket that the present owner has not used so far, or 0.
    pub(crate) ticket: i64,
    pub(crate) deadline: Tick,
    pub(crate) attempts: u8,
    pub(crate) refreshes: u8,
    pub(crate) extends: u8,
    pub(crate) raises: u8,
    pub(crate) transfers: u8,
    pub(crate) resumes: u8,
    pub(crate) releases: u8,
}

impl Client {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self {
            phase: Phase::Waiting,
            ear: Ear::Closed,
            changed: false,
            requests: Vec::new(),
            unanswered: Vec::new(),
            replies: Vec::new(),
            messages: Vec::new(),
            asked: None,
            refreshing: None,
            anchor: None,
            offset: 0,
            queued: false,
            open: None,
            open_unanswered: None,
            token: 0,
            floor: 0,
            owner: 0,
            successor: false,
            ticket: 0,
            deadline: 0,
            attempts: rules.attempts,
            refreshes: rules.refreshes,
            extends: rules.extends,
            raises: rules.raises,
            transfers: rules.transfers,
            resumes: rules.resumes,
            releases: rules.releases,
        }
    }

    pub(crate) fn believes(&self, now: Tick) -> bool {
        self.phase == Phase::Holding && now < self.deadline
    }

    /// Like [`believes`](Self::believes), for a client that may have a flaw.
    pub(crate) fn acts(&self, rules: &Rules, now: Tick) -> bool {
        let moving = self.phase == Phase::Moving && rules.flaw == Some(Flaw::PreviousBelieves);
        self.believes(now) || moving && now < self.deadline
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Unused | Phase::Crashed)
    }

    /// True if no request is under way, or the claim no longer waits for it.
    fn idle(pending: Option<Request>, rules: &Rules, now: Tick) -> bool {
        pending.is_none_or(|request| now >= request.sent + rules.op_timeout)
    }

    /// Sends the next request of the claim, if it may send one.
    pub(crate) fn next(&mut self, rules: &Rules, now: Tick) -> Option<()> {
        if !Self::idle(self.asked, rules, now) {
            return None;
        }
        if self.phase == Phase::Moving {
            // The transfer was not answered in time.
            self.phase = Phase::Leaving;
            self.settle();
        }
        let call = match self.phase {
            Phase::Waiting if self.queued && rules.flaw == Some(Flaw::OnlyListens) => return None,
            Phase::Waiting => {
                self.attempts = self.attempts.checked_sub(1)?;
                let not_after = now + self.offset + rules.op_timeout;
                self.open = self.open.max(Some(not_after));
                Call::Acquire { lease: rules.lease, not_after }
            }
            Phase::Resuming => {
                self.resumes = self.resumes.checked_sub(1)?;
                let not_after = now + self.offset + rules.op_timeout;
                self.open = self.open.max(Some(not_after));
                Call::Resume { lease: rules.lease, not_after, token: self.ticket }
            }
            // The renewal asks for a longer lease than an attempt does: nothing may shorten it.
            Phase::Holding if now < self.deadline => {
                self.extends = self.extends.checked_sub(1)?;
                Call::Extend { lease: rules.lease + 2 }
            }
            Phase::Leaving => {
                self.releases = self.releases.checked_sub(1)?;
                let unanswered = if rules.flaw == Some(Flaw::UnansweredForgotten) {
                    None
                } else {
                    self.open_unanswered
                };
                let owned = rules.flaw != Some(Flaw::CancelOnlyLeaves) || self.token != 0;
                let successor = self.successor && rules.flaw != Some(Flaw::SuccessorForgotten);
                // A grant, once known, ends the wait, unless an attempt may still arrive.
                let waits =
                    self.token == 0 || self.open.is_some() || self.open_unanswered.is_some();
                Call::Release { unanswered, owned, successor, waits, token: self.token }
            }
            _ => return None,
        };
        self.ask(call, now);
        Some(())
    }

    fn ask(&mut self, call: Call, now: Tick) {
        self.asked = Some(Request { call, owner: self.owner, sent: now });
        self.requests.extend(self.asked);
    }

    pub(crate) fn raise(&mut self, rules: &Rules, now: Tick) -> Option<()> {
        if !self.believes(now) || !Self::idle(self.asked, rules, now) {
            return None;
        }
        self.raises = self.raises.checked_sub(1)?;
        // The floor is far ahead of the clock, and maybe another client's too; or it is below the
        // token.
        let ahead = (self.token / AHEAD + 1) * AHEAD;
        let floor = if self.raises.is_multiple_of(2) { ahead } else { self.token - 1 };
        self.floor = self.floor.max(floor);
        self.ask(Call::Raise { floor: floor.max(self.token) }, now);
        Some(())
    }

    /// True if no attempt may still arrive, and no other owner may have the lock.
    fn is_settled(&self) -> bool {
        self.open.is_none() && self.open_unanswered.is_none() && !self.successor
    }

    pub(crate) fn transfer(&mut self, first: bool, rules: &Rules, now: Tick) -> Option<()> {
        let may = self.is_settled() || rules.flaw == Some(Flaw::TransferWithUnanswered);
        if !self.believes(now)
            || !Self::idle(self.asked, rules, now)
            || !may
            || self.owner + 1 >= OWNERS
        {
            return None;
        }
        self.transfers = self.transfers.checked_sub(1)?;
        let not_after = now + self.offset + rules.op_timeout;
        self.ask(Call::Transfer { lease: rules.lease, not_after, first, token: self.token }, now);
        (self.phase, self.successor) = (Phase::Moving, true);
        Some(())
    }

    /// Makes a ticket, and sends nothing. A renewal may still arrive that was not answered in time.
    pub(crate) fn resume(&mut self, rules: &Rules, now: Tick) -> Option<()> {
        if !self.believes(now)
            || !Self::idle(self.asked, rules, now)
            || !self.is_settled()
            || self.resumes == 0
            || self.owner + 1 >= OWNERS
        {
            return None;
        }
        (self.phase, self.asked) = (Phase::Resuming, None);
        (self.owner, self.ticket) = (self.owner + 1, self.token);
        (self.token, self.floor, self.deadline) = (0, 0, 0);
        Some(())
    }

    pub(crate) fn refresh(&mut self, rules: &Rules, now: Tick) -> Option<()> {
        if self.phase != Phase::Waiting || !self.queued || !Self::idle(self.refreshing, rules, now)
        {
            return None;
        }
        self.refreshes = self.refreshes.checked_sub(1)?;
        self.refreshing = Some(Request { call: Call::Refresh, owner: self.owner, sent: now });
        self.requests.extend(self.refreshing);
        Some(())
    }

    /// True once it has asked. After a message it may ask as often as at its start.
    fn has_begun(&self, rules: &Rules) -> bool {
        self.attempts < rules.attempts
            || self.changed
            || self.ear != Ear::Closed
            || !self.requests.is_empty()
    }

    pub(crate) fn leave(&mut self, rules: &Rules) -> Option<()> {
        let may = match self.phase {
            Phase::Waiting => self.has_begun(rules),
            Phase::Holding | Phase::Resuming => true,
            _ => false,
        };
        if !may {
            return None;
        }
        self.phase = Phase::Leaving;
        self.asked = None;
        if rules.flaw == Some(Flaw::CancelSilent) && self.token == 0 {
            self.phase = Phase::Done;
        }
        self.settle();
        Some(())
    }

    pub(crate) fn ticked(&mut self, now: Tick) {
        if self.phase == Phase::Holding && now >= self.deadline {
            self.phase = Phase::Leaving;
            self.asked = None;
            self.settle();
        }
    }

    /// Takes the first reply. `skew` is the present skew of the server's clock.
    pub(crate) fn hear(
        &mut self,
        rules: &Rules,
        now: Tick,
        skew: Tick,
    ) -> Result<(), &'static str> {
        let (request, answer) = self.replies.remove(0);
        let pending =
            if request.call == Call::Refresh { &mut self.refreshing } else { &mut self.asked };
        if *pending != Some(request) {
            return Ok(());
        }
        *pending = None;
        self.offset = skew;
        let start = if rules.flaw == Some(Flaw::DeadlineFromReply) { now } else { request.sent };
        match answer {
            Answer::Busy { now } if self.phase == Phase::Resuming => {
                self.settled(now);
                self.phase = Phase::Leaving;
            }
            Answer::Busy { now } => {
                self.settled(now);
                self.anchor = Some((request.sent, now));
                self.queued = true;
            }
            Answer::Granted { now: then, lease, token } => {
                self.settled(then);
                if self.phase == Phase::Moving {
                    (self.owner, self.successor, self.floor) = (self.owner + 1, false, 0);
                    self.hold(token, start + lease, now);
                } else if matches!(self.phase, Phase::Waiting | Phase::Resuming) {
                    self.hold(token, start + lease, now);
                } else if self.believes(now) && token != self.token {
                    // The hold by proof lapsed early, and the attempt that was under way got the
                    // lock again.
                    if skew == 0 {
                        return Err("a retry got another token");
                    }
                    self.phase = Phase::Leaving;
                } else if self.phase == Phase::Holding {
                    self.deadline = self.deadline.max(start + lease);
                }
            }
            Answer::Extended { lease } => self.deadline = self.deadline.max(start + lease),
            Answer::Raised { token } => self.token = token,
            Answer::Gone if self.phase == Phase::Moving => self.phase = Phase::Done,
            Answer::Gone => self.phase = Phase::Leaving,
            Answer::Yielded => self.phase = Phase::Done,
            Answer::Late | Answer::Refused if self.phase == Phase::Moving => {
                self.phase = Phase::Leaving
            }
            Answer::Refreshed { now, waits } => {
                self.anchor = Some((request.sent, now));
                if !waits && rules.flaw != Some(Flaw::OnlyListens) {
                    self.queued = false;
                    self.attempts = self.attempts.max(1);
                }
            }
            Answer::Released { last: true } => {
                self.phase = if self.ticket == 0 { Phase::Done } else { Phase::Unused };
            }
            Answer::Released { last: false } | Answer::Late | Answer::Refused => {}
        }
        self.settle();
        Ok(())
    }

    /// Takes the first message as a proof; `None` if it proves nothing.
    pub(crate) fn prove(&mut self, rules: &Rules, now: Tick) -> Option<()> {
        let message = *self.messages.first()?;
        let deadline = match (rules.flaw, self.anchor?) {
            (Some(Flaw::ProofFromReceipt), _) => now + message.window,
            (flaw, (sent, answered)) => {
                let mut passed = message.now - answered;
                if flaw == Some(Flaw::ProofBeforeAnchor) {
                    passed = passed.max(0);
                }
                if passed < 0 || passed > now - sent && flaw != Some(Flaw::ProofWithoutClock) {
                    return None;
                }
                sent + passed + message.window
            }
        };
        if 2 * (deadline - now) < message.window && rules.flaw != Some(Flaw::ProofOfLittle) {
            return None;
        }
        self.messages.remove(0);
        self.hold(message.token, deadline, now);
        self.settle();
        Some(())
    }

    /// Takes the first message as a reason to ask.
    pub(crate) fn heed(&mut self) -> Option<()> {
        self.messages.first()?;
        self.messages.remove(0);
        self.queued = false;
        self.attempts = self.attempts.max(1);
        Some(())
    }

    /// Breaks the client's connection. The client continues with another one.
    pub(crate) fn change(&mut self, ear: Ear) -> Option<()> {
        if self.changed || self.ear != Ear::Open || self.is_over() {
            return None;
        }
        self.changed = true;
        self.ear = ear;
        self.unanswered.append(&mut self.requests);
        self.replies.clear();
        self.messages.clear();
        (self.asked, self.refreshing, self.anchor) = (None, None, None);
        self.open_unanswered = self.open_unanswered.max(self.open);
        self.open = None;
        Some(())
    }

    pub(crate) fn crash(&mut self, ear: Ear, rules: &Rules) -> Option<()> {
        if self.is_over() || !self.has_begun(rules) {
            return None;
        }
        self.phase = Phase::Crashed;
        self.unanswered.append(&mut self.requests);
        self.ear = ear;
        self.settle();
        Some(())
    }

    fn hold(&mut self, token: i64, deadline: Tick, now: Tick) {
        self.phase = if now < deadline { Phase::Holding } else { Phase::Leaving };
        (self.token, self.deadline, self.ticket) = (token, deadline, 0);
    }

    /// An attempt was answered at this server time. That settles all earlier requests on this
    /// connection.
    fn settled(&mut self, now: Tick) {
        self.open = None;
        self.open_unanswered = self.open_unanswered.filter(|&until| now <= until);
    }

    /// Forgets the values that make no difference any more, so that there are fewer states.
    fn settle(&mut self) {
        if self.phase != Phase::Waiting {
            (self.anchor, self.queued, self.refreshing) = (None, false, None);
            self.messages.clear();
            self.refreshes = 0;
        }
        if self.phase == Phase::Leaving || self.is_over() {
            (self.deadline, self.extends, self.raises, self.transfers, self.floor) =
                (0, 0, 0, 0, 0);
            (self.attempts, self.resumes, self.ticket) = (0, 0, self.ticket.min(1));
        }
        if self.is_over() {
            self.replies.clear();
            (self.asked, self.token, self.open, self.open_unanswered, self.releases) =
                (None, 0, None, None, 0);
            self.successor = false;
            if self.phase != Phase::Unused {
                (self.owner, self.ticket) = (0, 0);
            }
        }
    }
}
