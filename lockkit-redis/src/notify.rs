//! Wake-ups: who in this process waits for which channel, and which of them is woken.
//!
//! One message wakes one waiter, the one that waits longest. A ring is spent by the next attempt that is *answered*;
//! a waiter that leaves with an unspent ring passes it on.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use lockkit_core::spi::Hint;
use redis::{PushInfo, PushKind, Value};

use crate::link::Link;

/// All waiters of this process on one server.
#[derive(Default)]
pub(crate) struct Waiters {
    channels: Mutex<HashMap<Arc<str>, Channel>>,
    /// Some channel has no waiter left, and could not be unsubscribed at once.
    orphans: AtomicBool,
}

#[derive(Default)]
struct Channel {
    /// By ticket, so first come, first served.
    queue: BTreeMap<u64, Waiter>,
    last_ticket: u64,
    /// The connection that a SUBSCRIBE was sent on.
    link: Weak<Link>,
    confirmed: bool,
}

struct Waiter {
    hint: Hint,
    rung: bool,
}

impl Waiters {
    /// Takes a place at the end of the queue.
    pub(crate) fn join(self: &Arc<Self>, channel: &Arc<str>, hint: Hint) -> Place {
        let mut channels = self.lock();
        let entry = channels.entry(Arc::clone(channel)).or_default();
        entry.last_ticket += 1;
        let ticket = entry.last_ticket;
        entry.queue.insert(ticket, Waiter { hint, rung: false });
        Place { waiters: Arc::clone(self), channel: Arc::clone(channel), ticket, owes: false }
    }

    /// Hears what a connection pushes. Runs inside the connection's own task.
    pub(crate) fn on_push(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Message => {}
            // There is room in the queue again, and maybe nobody who sends anything more.
            PushKind::Unsubscribe => return self.sweep(),
            _ => return,
        }
        let Some(Value::BulkString(channel)) = push.data.first() else { return };
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        if let Some(entry) = self.lock().get_mut(channel) {
            entry.ring_first();
        }
    }

    /// Makes everybody look: messages may have been missed.
    pub(crate) fn ring_all(&self) {
        for channel in self.lock().values_mut() {
            for waiter in channel.queue.values_mut() {
                waiter.ring();
            }
        }
    }

    /// Unsubscribes what could not be unsubscribed when its last waiter left.
    pub(crate) fn sweep(&self) {
        if self.orphans.load(Ordering::Relaxed) && self.orphans.swap(false, Ordering::AcqRel) {
            // Where one finds no room, the others need not ask.
            let mut room = true;
            self.lock().retain(|name, channel| {
                if !room || !channel.queue.is_empty() {
                    return true;
                }
                room = self.close(name, channel);
                !room
            });
        }
    }

    /// True if nothing is left of a channel that nobody waits for.
    ///
    /// Called under the lock, so that the UNSUBSCRIBE is queued before the SUBSCRIBE of a later waiter.
    fn close(&self, name: &str, channel: &Channel) -> bool {
        let closed = channel.link.upgrade().is_none_or(|link| link.unsubscribe(name));
        if !closed {
            self.orphans.store(true, Ordering::Release);
        }
        closed
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Channel>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiters").field("channels", &self.lock().len()).finish()
    }
}

impl Channel {
    fn ring_first(&mut self) {
        // If all are rung, each has an attempt before it that will see whatever this message is about.
        if let Some(waiter) = self.queue.values_mut().find(|waiter| !waiter.rung) {
            waiter.ring();
        }
    }
}

impl Waiter {
    fn ring(&mut self) {
        self.rung = true;
        self.hint.ring();
    }
}

/// A place in the queue of one channel, given up when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    channel: Arc<str>,
    ticket: u64,
    /// The ring that the present attempt is to spend.
    owes: bool,
}

impl Place {
    /// An attempt begins. A ring from here on asks for one more.
    pub(crate) fn attempt(&mut self) {
        if let Some(waiter) =
            self.waiters.lock().get_mut(&self.channel).and_then(|c| c.queue.get_mut(&self.ticket))
        {
            self.owes |= std::mem::take(&mut waiter.rung);
        }
    }

    /// The attempt was answered: whoever has the lock now will ring when it is freed.
    pub(crate) fn answered(&mut self) {
        self.owes = false;
    }

    /// True if the channel is not known to be subscribed on this connection. The caller then sends SUBSCRIBE.
    pub(crate) fn must_subscribe(&self, link: &Arc<Link>) -> bool {
        let mut channels = self.waiters.lock();
        let Some(entry) = channels.get_mut(&self.channel) else { return false };
        if !std::ptr::eq(entry.link.as_ptr(), Arc::as_ptr(link)) {
            // One who still uses an older connection must not make us forget the subscription on the newer one.
            if entry.link.upgrade().is_some_and(|known| known.number() > link.number()) {
                return true;
            }
            entry.link = Arc::downgrade(link);
            entry.confirmed = false;
        }
        !entry.confirmed
    }

    /// The SUBSCRIBE was confirmed on this connection.
    pub(crate) fn subscribed(&self, link: &Arc<Link>) {
        if let Some(entry) = self.waiters.lock().get_mut(&self.channel) {
            // Another waiter may have gone on to a newer connection meanwhile.
            entry.confirmed |= std::ptr::eq(entry.link.as_ptr(), Arc::as_ptr(link));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut channels = self.waiters.lock();
        let Entry::Occupied(mut entry) = channels.entry(Arc::clone(&self.channel)) else { return };
        let left = entry.get_mut().queue.remove(&self.ticket);
        if self.owes || left.is_some_and(|waiter| waiter.rung) {
            entry.get_mut().ring_first();
        }
        if entry.get().queue.is_empty() && self.waiters.close(&self.channel, entry.get()) {
            entry.remove();
        }
    }
}
