//! Sends attempts and releases together while a connection is busy. The client and the server spend
//! more time on a request than on a free lock.
//!
//! 1. While a few requests are under way on a connection, further ones are collected.
//! 2. With each answer, those that were collected are sent as one request.
//! 3. A request that is left over did nothing. Its task sends it alone.

use std::{
    future::Future as _,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use lockkit_core::{Clock, Tick};
use redis::{ErrorKind, RedisResult, Value};
use tokio::{runtime::Handle, sync::oneshot, task::unconstrained, time};

use super::link::{self, Link};
use crate::{
    family::BATCH,
    keys::Keys,
    script::{self, Arg, Call},
};

/// How many requests a batch has at most. The server runs nothing else meanwhile, for about 0.1 ms.
const MOST: usize = 32;
/// How many requests are under way before others are collected. Both sides have work meanwhile, and
/// a request waits for a quarter of a round trip at most, as long as there are few tasks.
const UNDER_WAY: usize = 4;

/// What one owner wants to do with an exclusive lock.
#[derive(Debug)]
pub(crate) enum Request {
    /// Acquire it, if it is free. The lease is in ms, and `not_after` is the server's time in µs.
    Acquire { owner: String, lease: i64, not_after: i64 },
    /// Free it. The grant is `token:owner`.
    Release { grant: String },
}

/// The answer to a request that was not left over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// The server's time in µs.
    pub(crate) now: i64,
    /// The token, or 1 if a lock was freed.
    pub(crate) number: i64,
}

/// `None` if the request was left over.
type Answer = RedisResult<Option<Done>>;

/// The requests of one connection.
pub(super) struct Batches {
    under_way: AtomicUsize,
    /// The requests that the next batch will have.
    collected: Mutex<Vec<Entry>>,
    /// Sends batches. It is the one that drives the connection.
    runtime: Handle,
}

struct Entry {
    keys: Arc<Keys>,
    request: Request,
    /// When the caller gives up.
    deadline: Tick,
    answer: oneshot::Sender<Answer>,
}

/// A request that is under way. With its end, the next batch may be sent.
pub(super) struct UnderWay(Arc<Link>);

/// A request that was collected, until its answer.
struct Member<'a> {
    batches: &'a Batches,
    answer: oneshot::Receiver<Answer>,
}

/// Sends a request in a batch. If the caller drops this future before that, the request is not
/// sent.
pub(crate) async fn join(
    link: &Arc<Link>,
    keys: &Arc<Keys>,
    request: Request,
    deadline: Tick,
) -> Answer {
    let (sender, answer) = oneshot::channel();
    let mut member = Member { batches: &link.batches, answer };
    link.batches.lock().push(Entry { keys: Arc::clone(keys), request, deadline, answer: sender });
    // All answers may have come meanwhile.
    send_next(link);
    // Without an answer, the runtime of the connection has ended.
    let answer = (&mut member.answer).await;
    answer.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::BrokenPipe).into()))
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if !self.answer.is_terminated() {
            self.answer.close();
            self.batches.lock().retain(|entry| !entry.answer.is_closed());
        }
    }
}

impl UnderWay {
    pub(super) fn begin(link: &Arc<Link>) -> Self {
        link.batches.under_way.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(link))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.batches.under_way.fetch_sub(1, Ordering::SeqCst);
        send_next(&self.0);
    }
}

impl Batches {
    /// Call it in the runtime that drives the connection.
    pub(super) fn new() -> Self {
        Self {
            under_way: AtomicUsize::new(0),
            collected: Mutex::default(),
            runtime: Handle::current(),
        }
    }

    /// True if a request is to be collected.
    pub(super) fn are_full(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) >= UNDER_WAY
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the next batch, if there is one and few requests are under way.
fn send_next(link: &Arc<Link>) {
    let mut collected = link.batches.lock();
    if collected.is_empty() || link.batches.are_full() {
        return;
    }
    let size = collected.len().min(MOST);
    let entries: Vec<Entry> = collected.drain(..size).collect();
    let deadline = entries.iter().map(|entry| entry.deadline).max();
    let under_way = UnderWay::begin(link);
    let mut exchange = Box::pin(unconstrained(exchange(Arc::clone(link), entries)));
    // The first step puts the batch on the connection. A caller that gives up waits for this lock.
    // So its request is either removed, or sent before all that it sends later.
    let sent = exchange.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
    drop(collected);
    if !sent {
        return;
    }
    let patience = deadline.map_or(Duration::ZERO, |deadline| Clock::Boot.now().until(deadline));
    #[expect(clippy::disallowed_methods, reason = "one for each batch, until its answer")]
    link.batches.runtime.spawn(async move {
        // Without a bound, a silent server would keep the connection for ever.
        let _ = time::timeout(patience, exchange).await;
        drop(under_way);
    });
}

/// Sends a batch, and gives the answers to the tasks.
async fn exchange(link: Arc<Link>, mut entries: Vec<Entry>) {
    // Alone, a request needs no batch.
    if entries.len() < 2 {
        reply_to(entries, |_| Ok(None));
        return;
    }
    entries.sort_by_key(|entry| matches!(entry.request, Request::Acquire { .. }));
    match run(&link, &entries).await {
        Ok((now, numbers)) => reply_to(entries, |at| {
            let number = numbers.get(at).copied().unwrap_or_default();
            Ok((number != 0).then_some(Done { now, number }))
        }),
        // The server did nothing: it doesn't know the script, or refuses the keys of one request.
        Err(error) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => {
            reply_to(entries, |_| Ok(None));
            if link::is_no_script(&error) {
                teach(&link).await;
            }
        }
        Err(error) => reply_to(entries, |_| Err(error.clone())),
    }
}

fn reply_to(entries: Vec<Entry>, answer: impl Fn(usize) -> Answer) {
    for (at, entry) in entries.into_iter().enumerate() {
        // A caller that gave up needs no answer.
        let _ = entry.answer.send(answer(at));
    }
}

/// Tells the server the script. The batch is not sent again, because the requests of callers that
/// gave up would come after what these have sent since.
async fn teach(link: &Link) {
    let call = Call { script: &BATCH, keys: &[], args: &[] };
    if let Err(error) = link.ask(&call.by_text()).await {
        tracing::debug!(target: "lockkit", %error, "the server did not take a script");
    }
}

/// Runs the script. Returns the server's time, and a number for each request. Releases come first.
async fn run(link: &Link, entries: &[Entry]) -> RedisResult<(i64, Vec<i64>)> {
    let mut keys = vec![entries.first().map_or("", |entry| &entry.keys.counter)];
    keys.extend(entries.iter().map(|entry| entry.keys.lock.as_str()));
    keys.extend(entries.iter().map(|entry| entry.keys.queue.as_str()));
    let mut earliest_end = i64::MAX;
    let mut releases = 0;
    let mut texts = Vec::with_capacity(2 * entries.len());
    for entry in entries {
        match &entry.request {
            Request::Release { grant } => {
                releases += 1;
                texts.push(Arg::Text(grant));
            }
            Request::Acquire { owner, lease, not_after } => {
                earliest_end = earliest_end.min(*not_after);
                texts.extend([Arg::Text(owner), Arg::Number(*lease)]);
            }
        }
    }
    let mut args = vec![Arg::Number(earliest_end), Arg::Number(releases)];
    args.extend(texts);
    let call = Call { script: &BATCH, keys: &keys, args: &args };
    let reply = link.ask(&call.by_hash()).await?;
    let mut numbers: Vec<i64> = redis::from_redis_value(reply)?;
    if numbers.len() != 1 + entries.len() {
        return Err(script::strange(&Value::Nil));
    }
    Ok((numbers.remove(0), numbers))
}
