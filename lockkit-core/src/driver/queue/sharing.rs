//! The tasks of one process that have a name at the same time or compete for it, and the room that
//! is left beside them.

use std::collections::HashMap;

use super::contender::Contender;
use crate::{
    clock::Tick,
    driver::held::Ticket,
    spi::{Mode, Occupancy},
};

/// Contenders for one name, by their tickets. Finding room beside holders takes no longer when
/// there are many of them.
#[derive(Default)]
pub(super) struct Peers {
    all: HashMap<Ticket, Peer>,
    usage: Usage,
    waiting: usize,
    /// No contender is stale before this time.
    stale_from: Option<Tick>,
}

struct Peer {
    contender: Contender,
    mode: Mode,
    /// The store has refused it, so a later request waits behind it.
    waits: bool,
}

/// The part of a name that the contenders take together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    exclusive: u64,
    shared: u64,
    permits: u64,
    /// How many permits the name has, as the last contender says.
    limit: u32,
}

impl Peers {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn has(&self, ticket: Ticket) -> bool {
        self.all.contains_key(&ticket)
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    pub(super) fn contenders(&self) -> impl Iterator<Item = &Contender> {
        self.all.values().map(|peer| &peer.contender)
    }

    /// Whether one of them waits in the store.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    pub(super) fn insert(&mut self, contender: Contender, mode: Mode) {
        self.remove(contender.ticket);
        self.usage.add(mode);
        let from = self.stale_from.map_or(contender.at, |from| from.min(contender.at));
        self.stale_from = Some(from);
        self.all.insert(contender.ticket, Peer { contender, mode, waits: false });
    }

    pub(super) fn remove(&mut self, ticket: Ticket) {
        if let Some(peer) = self.all.remove(&ticket) {
            self.usage.subtract(peer.mode);
            self.waiting -= usize::from(peer.waits);
        }
        if self.all.is_empty() {
            // This frees the memory of the map, too.
            *self = Self::default();
        }
    }

    /// Removes all contenders if one of `mode` cannot have the name beside them.
    pub(super) fn retain_beside(&mut self, mode: Mode) {
        let is_alone = mode == Mode::Exclusive || self.usage.is_exclusive();
        if is_alone {
            *self = Self::default();
        }
    }

    /// Marks that this contender waits in the store, and gives its next sign of life by `stale_at`.
    pub(super) fn wait(&mut self, ticket: Ticket, stale_at: Tick) -> bool {
        let Some(peer) = self.all.get_mut(&ticket) else { return false };
        peer.contender.competes_until(stale_at);
        self.waiting += usize::from(!peer.waits);
        peer.waits = true;
        true
    }

    /// Removes the contenders that have given no sign of life for too long.
    pub(super) fn drop_stale(&mut self, now: Tick) {
        if self.stale_from.is_none_or(|from| now < from) {
            return;
        }
        let stale: Vec<_> = self
            .contenders()
            .filter(|contender| !contender.competes_at(now))
            .map(|contender| contender.ticket)
            .collect();
        for ticket in stale {
            self.remove(ticket);
        }
        self.stale_from = self.contenders().map(|contender| contender.at).min();
    }

    /// The part that they take, without those that wait in the store for more permits than `mode`.
    pub(super) fn usage_before(&self, mode: Mode) -> Usage {
        let Mode::Permits { count, .. } = mode else { return self.usage };
        let wants_more = |peer: &Peer| match peer.mode {
            Mode::Permits { count: wanted, .. } => peer.waits && wanted > count,
            Mode::Exclusive | Mode::Shared => false,
        };
        let mut usage = self.usage;
        for peer in self.all.values().filter(|peer| wants_more(peer)) {
            usage.subtract(peer.mode);
        }
        usage
    }

    /// Whether one of them waits in the store for no more permits than `mode`, or for something
    /// else than permits.
    pub(super) fn has_waiting_before(&self, mode: Mode) -> bool {
        let wants_more = |peer: &Peer| match (peer.mode, mode) {
            (Mode::Permits { count: wanted, .. }, Mode::Permits { count, .. }) => wanted > count,
            _ => false,
        };
        self.all.values().any(|peer| peer.waits && !wants_more(peer))
    }
}

impl Usage {
    fn add(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.exclusive += 1,
            Mode::Shared => self.shared += 1,
            Mode::Permits { count, limit } => {
                self.permits += u64::from(count.get());
                self.limit = limit.get();
            }
        }
    }

    fn subtract(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.exclusive -= 1,
            Mode::Shared => self.shared -= 1,
            Mode::Permits { count, .. } => self.permits -= u64::from(count.get()),
        }
    }

    pub(super) fn is_exclusive(self) -> bool {
        self.exclusive > 0
    }

    /// The sum of both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            exclusive: self.exclusive + other.exclusive,
            shared: self.shared + other.shared,
            permits: self.permits + other.permits,
            limit: if self.permits > 0 { self.limit } else { other.limit },
        }
    }

    /// Whether `mode` has another limit than the contenders. Then only the store can say which is
    /// right.
    pub(super) fn disagrees(self, mode: Mode) -> bool {
        match mode {
            Mode::Permits { limit, .. } => self.permits > 0 && self.limit != limit.get(),
            Mode::Exclusive | Mode::Shared => false,
        }
    }

    /// Whether `mode` has room beside the contenders.
    pub(super) fn has_room(self, mode: Mode) -> bool {
        self.occupancy().with(mode).is_some()
    }

    fn occupancy(self) -> Occupancy {
        match self {
            Self { exclusive: 1.., .. } => Occupancy::Full,
            Self { shared: 1.., .. } => Occupancy::Shared,
            Self { permits: 1.., .. } => {
                Occupancy::Permits(u32::try_from(self.permits).unwrap_or(u32::MAX))
            }
            _ => Occupancy::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const WRITER: Mode = Mode::Exclusive;

    fn permits(count: u32, limit: u32) -> Mode {
        let count = NonZeroU32::new(count).unwrap();
        let limit = NonZeroU32::new(limit).unwrap();
        Mode::Permits { count, limit }
    }

    fn has_room(mode: Mode, others: &[Mode]) -> bool {
        let mut usage = Usage::default();
        others.iter().for_each(|other| usage.add(*other));
        let together = Usage::default().and(usage).and(Usage::default());
        assert_eq!(together.has_room(mode), usage.has_room(mode));
        usage.has_room(mode)
    }

    #[test]
    fn c1_permits_have_room_up_to_their_limit() {
        for (count, taken, expected) in [(1, 2, true), (1, 3, false), (3, 0, true), (2, 2, false)] {
            let others = vec![permits(1, 3); taken];
            let found = has_room(permits(count, 3), &others);
            assert_eq!(found, expected, "{count} beside {taken} of 3");
        }
        let most = permits(u32::MAX, u32::MAX);
        assert!(!has_room(most, &[most; 3]), "the sum does not overflow");
    }

    #[test]
    fn a_cancelled_call_takes_nothing() {
        let mut peers = Peers::default();
        let [first, second, third] = [1, 2, 3].map(|n| Ticket::new(n).unwrap());
        let never = Tick::NEVER;
        peers.insert(Contender::rival(first, never), permits(2, 4));
        peers.insert(Contender::rival(second, never), permits(2, 4));
        assert!(peers.wait(first, never) && peers.wait(first, never) && !peers.wait(third, never));
        assert!(!peers.usage().has_room(permits(1, 4)));
        peers.remove(first);
        peers.remove(third);
        assert!(peers.usage().has_room(permits(2, 4)) && !peers.has_waiting());
        peers.drop_stale(Tick::NEVER);
        assert!(peers.is_empty() && peers.usage().has_room(WRITER));
    }
}
