//! All waiters of this process on one store.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use lockkit_core::{Clock, OwnerId, Tick};
use redis::{PushInfo, PushKind, Value};

use super::{Handover, Sighting, Waiter};
use crate::{family::Family, keys::Keys, servers::Link};

/// The waiters, by what they wait for.
pub(crate) struct Rooms {
    /// Where the messages for this process go.
    client: String,
    /// A message may come from another server than the one that it comes in from: it proves
    /// nothing.
    gossip: bool,
    inner: Mutex<Inner>,
    /// Some room is empty, and its channel could not be left at once.
    orphans: AtomicBool,
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) rooms: HashMap<Arc<str>, Room>,
    pub(super) owners: HashMap<OwnerId, Waiter>,
}

/// All who wait for one name.
pub(super) struct Room {
    pub(super) keys: Arc<Keys>,
    pub(super) family: Family,
    pub(super) waiters: HashSet<OwnerId>,
    /// When the store was last asked about all of them, or the room was entered; `None` if that
    /// tells nothing now.
    pub(super) refreshed: Option<Tick>,
    /// Since when an answer to what was asked before tells nothing.
    pub(super) disturbed: Option<Tick>,
    pub(super) last_seen: Option<Sighting>,
    /// When the lock lapses if nobody renews it, as far as we know.
    pub(super) lapse: Tick,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

/// The channel inside the name's slot, where messages stay there: that it was asked for on a
/// connection.
pub(super) struct Subscription {
    link: Weak<Link>,
    number: u64,
    confirmed: bool,
}

impl Subscription {
    /// False if it can't be left now.
    fn leave(&self, channel: &str) -> bool {
        self.link.upgrade().is_none_or(|link| link.unsubscribe(channel))
    }
}

impl Rooms {
    /// `client` names the channel of this process; `gossip` if servers forward messages to each
    /// other.
    pub(crate) fn new(client: String, gossip: bool) -> Self {
        Self {
            client,
            gossip,
            inner: Mutex::default(),
            orphans: AtomicBool::new(false),
            turn: Arc::default(),
        }
    }

    pub(crate) fn client(&self) -> &str {
        &self.client
    }

    /// Hears what a connection pushes. Runs inside the connection's own task.
    pub(crate) fn on_push(&self, push: &PushInfo, link: u64) {
        match (&push.kind, &*push.data) {
            (PushKind::Message, [_, Value::BulkString(message)]) => {
                self.on_message(message, link, !self.gossip)
            }
            (PushKind::SMessage, [_, Value::BulkString(message)]) => {
                self.on_message(message, link, true)
            }
            (PushKind::SSubscribe, [Value::BulkString(channel), ..]) => {
                self.on_subscribed(channel, link)
            }
            (PushKind::SUnsubscribe, [Value::BulkString(channel), ..]) => {
                self.on_unsubscribed(channel, link);
                // There is room in the queue again, and maybe nobody who sends anything more.
                self.sweep();
            }
            _ => {}
        }
    }

    fn on_message(&self, message: &[u8], link: u64, may_prove: bool) {
        let Some((owner, handover)) = Handover::from_message(message, link) else { return };
        if let Some(waiter) = self.lock().owners.get_mut(&owner) {
            waiter.told(handover.filter(|_| may_prove));
        }
    }

    /// Makes everybody look: messages may have been missed.
    pub(crate) fn ring_all(&self) {
        let mut inner = self.lock();
        let Inner { rooms, owners } = &mut *inner;
        for room in rooms.values_mut() {
            room.disturb(owners);
        }
    }

    /// Leaves the channels that could not be left when their last waiter went.
    pub(crate) fn sweep(&self) {
        if self.orphans.load(Ordering::Relaxed) && self.orphans.swap(false, Ordering::AcqRel) {
            // Where one finds no place in the queue, the others need not ask.
            let mut sent = true;
            self.lock().rooms.retain(|_, room| {
                if !sent || !room.waiters.is_empty() {
                    return true;
                }
                sent = self.close(room);
                !sent
            });
        }
    }

    /// True if nothing is left of a room that nobody waits in.
    ///
    /// Called under the lock, so that the UNSUBSCRIBE is queued before the SUBSCRIBE of a later
    /// waiter.
    pub(super) fn close(&self, room: &Room) -> bool {
        let channel = self.slot_channel(&room.keys);
        let closed = room.subscriptions.iter().all(|known| known.leave(&channel));
        if !closed {
            self.orphans.store(true, Ordering::Release);
        }
        closed
    }

    /// The channel to subscribe on this connection before a request about this room, if there is
    /// one.
    pub(crate) fn must_subscribe(&self, base: &str, link: &Arc<Link>) -> Option<String> {
        if !link.is_sharded() || !link.pushes() {
            return None;
        }
        let mut inner = self.lock();
        let room = inner.rooms.get_mut(base)?;
        match room.subscriptions.iter().find(|known| known.number == link.number()) {
            Some(known) if known.confirmed => return None,
            Some(_) => {}
            None => room.subscriptions.push(Subscription {
                link: Arc::downgrade(link),
                number: link.number(),
                confirmed: false,
            }),
        }
        Some(self.slot_channel(&room.keys))
    }

    /// This connection's server does not let us subscribe.
    pub(crate) fn refused(&self, base: &str, link: &Link) {
        if let Some(room) = self.lock().rooms.get_mut(base) {
            room.subscriptions.retain(|known| known.number != link.number() || known.confirmed);
        }
    }

    /// Only the node that has the slot confirms: what was subscribed elsewhere is left.
    fn on_subscribed(&self, channel: &[u8], link: u64) {
        let mut inner = self.lock();
        let Some(room) = self.base_of(channel).and_then(|base| inner.rooms.get_mut(base)) else {
            return;
        };
        let channel = self.slot_channel(&room.keys);
        room.subscriptions.retain_mut(|known| {
            known.confirmed |= known.number == link;
            known.number == link || !known.leave(&channel)
        });
    }

    /// We asked for it, or the slot has moved to another node.
    fn on_unsubscribed(&self, channel: &[u8], link: u64) {
        let mut inner = self.lock();
        let Inner { rooms, owners } = &mut *inner;
        let Some(room) = self.base_of(channel).and_then(|base| rooms.get_mut(base)) else { return };
        // What is not confirmed was asked for after what is answered here.
        let count = room.subscriptions.len();
        room.subscriptions.retain(|known| known.number != link || !known.confirmed);
        if room.subscriptions.len() < count {
            room.disturb(owners);
        }
    }

    fn base_of<'a>(&self, channel: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(channel).ok()?.strip_suffix(&self.client)?.strip_suffix(":wake:")
    }

    fn slot_channel(&self, keys: &Keys) -> String {
        [&keys.slot_channels(), &*self.client].concat()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    pub(super) fn new(keys: Arc<Keys>, family: Family) -> Self {
        Self {
            keys,
            family,
            waiters: HashSet::new(),
            refreshed: Some(Clock::Boot.now()),
            disturbed: None,
            last_seen: None,
            lapse: Tick::NEVER,
            subscriptions: Vec::new(),
            turn: Arc::default(),
        }
    }

    /// What is known of the store may be wrong: the next waiter that looks asks for all.
    fn disturb(&mut self, owners: &mut HashMap<OwnerId, Waiter>) {
        self.refreshed = None;
        self.disturbed = Some(Clock::Boot.now());
        for owner in &self.waiters {
            if let Some(waiter) = owners.get_mut(owner) {
                waiter.hint.ring();
            }
        }
    }
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rooms")
            .field("client", &self.client)
            .field("rooms", &self.lock().rooms.len())
            .finish()
    }
}
