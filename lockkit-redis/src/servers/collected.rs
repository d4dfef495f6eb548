//! Collects the attempts and releases that are sent together on one connection, and knows when that
//! is worthwhile.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use lockkit_core::Tick;
use redis::RedisResult;
use tokio::sync::oneshot;

use crate::{
    family::{Family, Permits},
    keys::Keys,
};

/// How many requests a batch has at most. The server runs nothing else meanwhile, for up to 0.6 ms.
const MOST: usize = 32;
/// How many requests of any kind are under way before others are collected.
const BUSY: usize = 4;

/// A request of one owner about one name.
#[derive(Debug)]
pub(crate) enum Request {
    /// Acquire it, if it is free. The lease is in ms, and `not_after` is the server's time in µs.
    Acquire { owner: String, lease: i64, not_after: i64, permits: Option<Permits> },
    /// Free it. The grant is `token:owner`, or the owner of permits.
    Release { grant: String },
}

/// The answer to a request that was not left over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// The server's time in µs.
    pub(crate) now: i64,
    /// The token, 1 if a grant was freed, or -1 if the server refused a command of the request. Then
    /// the server may have done a part of it.
    pub(crate) number: i64,
}

/// `None` if the request was left over.
pub(super) type Answer = RedisResult<Option<Done>>;

/// The batches of one connection.
#[derive(Default)]
pub(super) struct Batches {
    /// How many requests are under way, with the batches.
    requests: AtomicUsize,
    exclusive: Mutex<Next>,
    counted: Mutex<Next>,
    /// The server does not let this user run batches.
    forbidden: AtomicBool,
}

/// The next batches for the names of one family. Each family has a script of its own.
#[derive(Default)]
pub(super) struct Next {
    /// The requests of the next batches.
    pub(super) collected: VecDeque<Entry>,
    /// How many batches are under way.
    pub(super) under_way: usize,
}

pub(super) struct Entry {
    pub(super) keys: Arc<Keys>,
    pub(super) request: Request,
    /// When the caller gives up.
    pub(super) deadline: Tick,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// Counts a request, until its caller hears the answer or gives up.
pub(super) struct UnderWay<'a>(&'a Batches);

impl<'a> UnderWay<'a> {
    pub(super) fn begin(batches: &'a Batches) -> Self {
        batches.requests.fetch_add(1, Ordering::Relaxed);
        Self(batches)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Batches {
    /// True if a request should join a batch.
    pub(super) fn are_due(&self) -> bool {
        self.requests.load(Ordering::Relaxed) >= BUSY && !self.forbidden.load(Ordering::Relaxed)
    }

    /// The server does not let this user run batches.
    pub(super) fn forbid(&self) {
        self.forbidden.store(true, Ordering::Relaxed);
    }

    pub(super) fn lock(&self, family: Family) -> MutexGuard<'_, Next> {
        let next = match family {
            Family::Exclusive => &self.exclusive,
            Family::Counted => &self.counted,
        };
        next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Next {
    /// The requests of a batch, without those whose callers gave up.
    pub(super) fn take(&mut self) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(self.collected.len().min(MOST));
        while entries.len() < MOST
            && let Some(entry) = self.collected.pop_front()
        {
            if !entry.answer.is_closed() {
                entries.push(entry);
            }
        }
        entries
    }
}
