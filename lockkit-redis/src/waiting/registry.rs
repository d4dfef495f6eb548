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

use super::{ClockReading, Handover, Waiter};
use crate::{family::Family, keys::Keys, servers::Link};

/// The waiters of this process, in a group for each name.
pub(crate) struct WaiterRegistry {
    /// Where the messages for this process go.
    client: String,
    /// A message may come from another server than the one that it comes in from: it proves
    /// nothing.
    gossip: bool,
    inner: Mutex<Inner>,
    /// Some group is empty, and its channel could not be left at once.
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
    /// When the store was last asked about all of them, or the group was entered; `None` if that
    /// tells nothing now.
    pub(super) refreshed: Option<Tick>,
    /// Since when an answer to what was asked before tells nothing.
    pub(super) disturbed: Option<Tick>,
    pub(super) last_seen: Option<ClockReading>,
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

impl WaiterRegistry {
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
                // There is space in the queue again, and maybe nobody who sends anything more.
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
    pub(crate) fn wake_all(&self) {
        let mut inner = self.lock();
        let Inner { groups, owners } = &mut *inner;
        for group in groups.values_mut() {
            group.disturb(owners);
        }
    }

    /// Leaves the channels that could not be left when their last waiter went.
    pub(crate) fn sweep(&self) {
        if self.orphans.load(Ordering::Relaxed) && self.orphans.swap(false, Ordering::AcqRel) {
            // Where one finds no place in the queue, the others need not ask.
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

    /// True if nothing is left of a group without waiters.
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

    /// The channel to subscribe on this connection before a request about this group, if there is
    /// one.
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

    /// This connection's server does not let us subscribe.
    pub(crate) fn refused(&self, base: &str, link: &Link) {
        if let Some(group) = self.lock().groups.get_mut(base) {
            group.subscriptions.retain(|known| known.number != link.number() || known.confirmed);
        }
    }

    /// Only the node that has the slot confirms: what was subscribed elsewhere is left.
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

    /// We asked for it, or the slot has moved to another node.
    fn on_unsubscribed(&self, channel: &[u8], link: u64) {
        let mut inner = self.lock();
        let Inner { groups, owners } = &mut *inner;
        let Some(group) = self.base_of(channel).and_then(|base| groups.get_mut(base)) else {
            return;
        };
        // What is not confirmed was asked for after what is answered here.
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

    /// What is known of the store may be wrong: the next waiter that looks asks for all.
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
