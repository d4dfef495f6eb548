//! Keeps all waiters of this process on one store.

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

use super::{ClockReading, Handover, Waiter};
use crate::{family::Family, keys::Keys, servers::Link};

/// The waiters of this process, in a group for each name.
pub(crate) struct WaiterRegistry {
    /// Names the channel for messages to this process.
    client: String,
    /// True if servers forward messages to each other. Then a message may come from another server
    /// than the connection's own, and proves nothing.
    gossip: bool,
    inner: Mutex<Inner>,
    /// A group is empty, and its channel could not be left at once.
    orphans: AtomicBool,
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) groups: HashMap<Arc<str>, WaiterGroup>,
    pub(super) owners: HashMap<OwnerId, Waiter>,
}

/// The waiters of one name.
pub(super) struct WaiterGroup {
    pub(super) keys: Arc<Keys>,
    pub(super) family: Family,
    pub(super) waiters: HashSet<OwnerId>,
    /// When the store was last asked about all of them, or when the group was entered. `None` if
    /// that time says nothing now.
    pub(super) refreshed: Option<Tick>,
    /// An answer to a request from before this time says nothing.
    pub(super) disturbed: Option<Tick>,
    pub(super) last_seen: Option<ClockReading>,
    /// When the lock lapses without a renewal, as far as we know.
    pub(super) lapse: Tick,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

/// A subscription on one connection to the channel inside the name's slot. It exists only where
/// messages stay in the slot.
pub(super) struct Subscription {
    link: Weak<Link>,
    number: u64,
    confirmed: bool,
}

impl Subscription {
    /// Leaves the channel. False if that is not possible now.
    fn leave(&self, channel: &str) -> bool {
        self.link.upgrade().is_none_or(|link| link.unsubscribe(channel))
    }
}

impl WaiterRegistry {
    /// `client` names the channel of this process. `gossip` is true if servers forward messages to
    /// each other.
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

    /// Handles a message that a connection pushes. Runs inside the connection's own task.
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
                // The queue has room again, and maybe no later request would leave these channels.
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

    /// Makes all waiters look again, because messages may have been missed.
    pub(crate) fn wake_all(&self) {
        let mut inner = self.lock();
        let Inner { groups, owners } = &mut *inner;
        for group in groups.values_mut() {
            group.disturb(owners);
        }
    }

    /// Leaves the channels that could not be left when their last waiter left.
    pub(crate) fn sweep(&self) {
        if self.orphans.load(Ordering::Relaxed) && self.orphans.swap(false, Ordering::AcqRel) {
            // If one of them finds no room in the queue, the others are not tried.
            let mut sent = true;
            self.lock().groups.retain(|_, group| {
                if !sent || !group.waiters.is_empty() {
                    return true;
                }
                sent = self.close(group);
                !sent
            });
        }
    }

    /// True if nothing remains of a group without waiters.
    ///
    /// Called under the lock, so that the UNSUBSCRIBE is queued before the SUBSCRIBE of a later
    /// waiter.
    pub(super) fn close(&self, group: &WaiterGroup) -> bool {
        let channel = self.slot_channel(&group.keys);
        let closed = group.subscriptions.iter().all(|known| known.leave(&channel));
        if !closed {
            self.orphans.store(true, Ordering::Release);
        }
        closed
    }

    /// The channel to subscribe to on this connection before a request about this group, if there
    /// is one.
    pub(crate) fn must_subscribe(&self, base: &str, link: &Arc<Link>) -> Option<String> {
        if !link.is_sharded() || !link.pushes() {
            return None;
        }
        let mut inner = self.lock();
        let group = inner.groups.get_mut(base)?;
        match group.subscriptions.iter().find(|known| known.number == link.number()) {
            Some(known) if known.confirmed => return None,
            Some(_) => {}
            None => group.subscriptions.push(Subscription {
                link: Arc::downgrade(link),
                number: link.number(),
                confirmed: false,
            }),
        }
        Some(self.slot_channel(&group.keys))
    }

    /// Records that this connection's server does not let us subscribe.
    pub(crate) fn refused(&self, base: &str, link: &Link) {
        if let Some(group) = self.lock().groups.get_mut(base) {
            group.subscriptions.retain(|known| known.number != link.number() || known.confirmed);
        }
    }

    /// Records a subscription. Only the node that has the slot confirms it, so the channel is left
    /// on all other connections.
    fn on_subscribed(&self, channel: &[u8], link: u64) {
        let mut inner = self.lock();
        let Some(group) = self.base_of(channel).and_then(|base| inner.groups.get_mut(base)) else {
            return;
        };
        let channel = self.slot_channel(&group.keys);
        group.subscriptions.retain_mut(|known| {
            known.confirmed |= known.number == link;
            known.number == link || !known.leave(&channel)
        });
    }

    /// Records the end of a subscription: we asked for it, or the slot has moved to another node.
    fn on_unsubscribed(&self, channel: &[u8], link: u64) {
        let mut inner = self.lock();
        let Inner { groups, owners } = &mut *inner;
        let Some(group) = self.base_of(channel).and_then(|base| groups.get_mut(base)) else {
            return;
        };
        // An unconfirmed subscription was requested after the one that ends here.
        let count = group.subscriptions.len();
        group.subscriptions.retain(|known| known.number != link || !known.confirmed);
        if group.subscriptions.len() < count {
            group.disturb(owners);
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

impl WaiterGroup {
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

    /// Our knowledge of the store may be wrong, so the next waiter that looks asks about all
    /// waiters.
    fn disturb(&mut self, owners: &mut HashMap<OwnerId, Waiter>) {
        self.refreshed = None;
        self.disturbed = Some(Clock::Boot.now());
        for owner in &self.waiters {
            if let Some(waiter) = owners.get_mut(owner) {
                waiter.wake.wake();
            }
        }
    }
}

impl fmt::Debug for WaiterRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaiterRegistry")
            .field("client", &self.client)
            .field("groups", &self.lock().groups.len())
            .finish()
    }
}
