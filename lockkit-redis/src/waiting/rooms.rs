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
use crate::{family::Family, keys::Keys, link::Link};

/// The waiters, by what they wait for.
pub(crate) struct Rooms {
    /// Where the messages for this process go.
    client: String,
    /// A message may come from another server than the one that it comes in from: it proves nothing.
    gossip: bool,
    inner: Mutex<Inner>,
    /// Some room is empty, and its channel could not be left at once.
    orphans: AtomicBool,
    /// Held by the one who asks for all.
    pub(super) refreshing: tokio::sync::Mutex<()>,
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
    /// When the store was last asked about all of them, or the room was entered; `None` if that tells nothing now.
    pub(super) refreshed: Option<Tick>,
    pub(super) last_seen: Option<Sighting>,
    /// When the lock lapses if nobody renews it, as far as we know.
    pub(super) lapse: Tick,
    pub(super) subscription: Subscription,
}

/// The channel inside the name's slot, where messages stay there.
#[derive(Default)]
pub(super) struct Subscription {
    /// The connection that it was asked for on.
    link: Weak<Link>,
    confirmed: bool,
}

impl Rooms {
    /// `client` names the channel of this process; `gossip` if servers forward messages to each other.
    pub(crate) fn new(client: String, gossip: bool) -> Self {
        Self {
            client,
            gossip,
            inner: Mutex::default(),
            orphans: AtomicBool::new(false),
            refreshing: tokio::sync::Mutex::default(),
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
            (PushKind::SMessage, [_, Value::BulkString(message)]) => self.on_message(message, link, true),
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
            waiter.handover = handover.filter(|_| may_prove);
            waiter.ring();
        }
    }

    /// We asked for it, or the slot has moved to another node.
    fn on_unsubscribed(&self, channel: &[u8], link: u64) {
        let base = std::str::from_utf8(channel)
            .ok()
            .and_then(|text| text.strip_suffix(&self.client)?.strip_suffix(":wake:"));
        let mut inner = self.lock();
        let Inner { rooms, owners } = &mut *inner;
        let Some(room) = base.and_then(|base| rooms.get_mut(base)) else { return };
        if room.subscription.link.upgrade().is_none_or(|known| known.number() == link) {
            room.subscription = Subscription::default();
            room.disturb(owners);
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
    /// Called under the lock, so that the UNSUBSCRIBE is queued before the SUBSCRIBE of a later waiter.
    pub(super) fn close(&self, room: &Room) -> bool {
        let link = room.subscription.link.upgrade();
        let closed = link.is_none_or(|link| link.unsubscribe(&self.slot_channel(&room.keys)));
        if !closed {
            self.orphans.store(true, Ordering::Release);
        }
        closed
    }

    /// The channel to subscribe on this connection before a request about this room, if there is one.
    pub(crate) fn must_subscribe(&self, base: &str, link: &Arc<Link>) -> Option<String> {
        if !link.is_sharded() || !link.pushes() {
            return None;
        }
        let mut inner = self.lock();
        let room = inner.rooms.get_mut(base)?;
        let subscription = &mut room.subscription;
        if !std::ptr::eq(subscription.link.as_ptr(), Arc::as_ptr(link)) {
            // One who still uses an older connection must not make us forget the subscription on the newer one.
            if subscription.link.upgrade().is_none_or(|known| known.number() < link.number()) {
                *subscription = Subscription { link: Arc::downgrade(link), confirmed: false };
            }
        }
        (!subscription.confirmed).then(|| self.slot_channel(&room.keys))
    }

    /// The subscription was confirmed on this connection.
    pub(crate) fn subscribed(&self, base: &str, link: &Arc<Link>) {
        if let Some(room) = self.lock().rooms.get_mut(base) {
            // Another waiter may have gone on to a newer connection meanwhile.
            room.subscription.confirmed |= std::ptr::eq(room.subscription.link.as_ptr(), Arc::as_ptr(link));
        }
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
            last_seen: None,
            lapse: Tick::NEVER,
            subscription: Subscription::default(),
        }
    }

    /// What is known of the store may be wrong: the next waiter that looks asks for all.
    fn disturb(&mut self, owners: &mut HashMap<OwnerId, Waiter>) {
        self.refreshed = None;
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
