//! Sends attempts and releases together while a connection is busy. The client and the server spend
//! more time on a request than on a free lock.
//!
//! 1. While some requests are under way on a connection, further ones are collected.
//! 2. They are sent as one request: at once, or with the answer to an earlier batch.
//! 3. A request that is left over did nothing. Its task sends it alone. Of a request that the server
//!    refused, it may have done a part.

use std::{
    future::Future as _,
    io, mem,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use lockkit_core::{Clock, Tick};
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::{sync::oneshot, task::unconstrained, time};

pub(crate) use super::collected::{Done, Request};
use super::{
    collected::{Answer, Batches, Entry, UnderWay},
    link::Link,
};
use crate::{
    error,
    family::{Family, Permits},
    keys::Keys,
    script::{self, Arg, Call},
};

/// How many batches are under way at once. With one, the client and the server would wait for each
/// other.
const UNDER_WAY: usize = 3;
/// How much longer a batch lasts than its callers wait. The callers must see their own timeout.
const SLACK: Duration = Duration::from_secs(1);

/// A request that was collected, until its answer.
struct Member<'a> {
    batches: &'a Batches,
    family: Family,
    answer: oneshot::Receiver<Answer>,
}

/// A batch that is under way.
struct Batch {
    link: Arc<Link>,
    family: Family,
    is_over: bool,
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
    let entry = Entry { keys: Arc::clone(keys), request, deadline, answer: sender };
    let family = keys.family();
    let mut member = Member { batches: &link.batches, family, answer };
    link.batches.lock(family).collected.push_back(entry);
    send_next(link, family);
    let answer = (&mut member.answer).await;
    // The batch took too long, or its runtime has ended. The connection may still be good.
    answer.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if !self.answer.is_terminated() {
            self.answer.close();
            // Waits until a batch that has the request is on the connection, before the caller
            // sends anything else. If the client library's queue is full, the batch is not there
            // yet. Then a lock may be left for a lease, but no other owner gets it.
            drop(self.batches.lock(self.family));
        }
    }
}

/// Sends what was collected, as far as few batches are under way.
fn send_next(link: &Arc<Link>, family: Family) {
    loop {
        let mut next = link.batches.lock(family);
        if next.under_way >= UNDER_WAY {
            return;
        }
        let entries = next.take();
        let Some(deadline) = entries.iter().map(|entry| entry.deadline).max() else { return };
        next.under_way += 1;
        let mut exchange = Box::pin(unconstrained(exchange(Arc::clone(link), family, entries)));
        // The first step puts the batch on the connection, unless the client library's queue is
        // full. The lock keeps this in order with the requests of callers that give up.
        let first = exchange.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(next);
        let batch = Batch { link: Arc::clone(link), family, is_over: false };
        if let Poll::Ready((entries, answer)) = first {
            answer_all(entries, &answer);
            batch.end();
            continue;
        }
        let patience = Clock::Boot.now().until(deadline).saturating_add(SLACK);
        #[expect(clippy::disallowed_methods, reason = "one for each batch, until its answer")]
        link.runtime().spawn(async move {
            let link = Arc::clone(&batch.link);
            // Without a bound, a silent server would keep the connection for ever.
            if let Ok((entries, answer)) = time::timeout(patience, exchange).await {
                answer_all(entries, &answer);
                if let Err(error) = answer {
                    // The next batch meets a server that is silent now.
                    let _ = time::timeout(SLACK, refused(&link, family, &error)).await;
                }
            }
            batch.end();
            send_next(&link, family);
        });
    }
}

impl Batch {
    fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let mut next = self.link.batches.lock(self.family);
        next.under_way -= 1;
        if !self.is_over {
            // The runtime has ended, and sends no batch any more. The callers get an error.
            let collected = mem::take(&mut next.collected);
            drop(next);
            drop(collected);
        }
    }
}

/// The server's time, and a number for each request.
type Numbers = (i64, Vec<i64>);

/// Sends a batch. In its keys and arguments, the releases come before the attempts.
async fn exchange(
    link: Arc<Link>,
    family: Family,
    mut entries: Vec<Entry>,
) -> (Vec<Entry>, RedisResult<Numbers>) {
    let _request = UnderWay::begin(&link.batches);
    entries.sort_by_key(|entry| matches!(entry.request, Request::Acquire { .. }));
    let answer = run(&link, family, &entries).await;
    (entries, answer)
}

/// Gives the answers to the callers. One that gave up needs none.
fn answer_all(entries: Vec<Entry>, answer: &RedisResult<Numbers>) {
    for (at, entry) in entries.into_iter().enumerate() {
        let own = match answer {
            Ok((now, numbers)) => {
                let number = numbers.get(at).copied().unwrap_or_default();
                Ok((number != 0).then_some(Done { now: *now, number }))
            }
            // The server did nothing: it doesn't know the script, or refuses the keys of one
            // request, or the first write.
            Err(error) if is_refusal(error) => Ok(None),
            Err(error) => Err(error.clone()),
        };
        let _ = entry.answer.send(own);
    }
}

fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Does what the next batches need after a refusal. This batch is not sent again, because the
/// requests of callers that gave up would come after what these have sent since.
async fn refused(link: &Link, family: Family, error: &RedisError) {
    if error::lacks_right_of_script(error) {
        link.batches.forbid();
    }
    if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) {
        // The server learns the script.
        let call = Call { script: &family.scripts().batch, keys: &[], args: &[] };
        if let Err(error) = link.ask(&call.by_text()).await {
            tracing::debug!(target: "lockkit", %error, "the server did not take a script");
        }
    }
}

async fn run(link: &Link, family: Family, entries: &[Entry]) -> RedisResult<Numbers> {
    let releases = entries.iter().filter(|entry| matches!(entry.request, Request::Release { .. }));
    let mut args = vec![Arg::Number(i64::try_from(releases.count()).unwrap_or_default())];
    for entry in entries {
        match &entry.request {
            Request::Release { grant } => args.push(Arg::Text(grant)),
            Request::Acquire { owner, lease, not_after, permits } => {
                args.extend([Arg::Text(owner), Arg::Number(*lease), Arg::Number(*not_after)]);
                if let Some(Permits { count, limit }) = *permits {
                    args.extend([Arg::Number(count.into()), Arg::Number(limit.into())]);
                }
            }
        }
    }
    let call = Call { script: &family.scripts().batch, keys: &keys(family, entries), args: &args };
    let reply = link.ask(&call.by_hash()).await?;
    let Value::Array(fields) = &reply else { return Err(script::strange(&reply)) };
    let (now, numbers) = fields.split_first().ok_or_else(|| script::strange(&reply))?;
    if numbers.len() != entries.len() {
        return Err(script::strange(&reply));
    }
    Ok((script::number(now)?, numbers.iter().map(script::number).collect::<RedisResult<_>>()?))
}

/// The keys of a batch, in the order of its script.
fn keys(family: Family, entries: &[Entry]) -> Vec<&str> {
    let mut keys = Vec::with_capacity(1 + 3 * entries.len());
    keys.push(entries.first().map_or("", |entry| &entry.keys.counter));
    match family {
        Family::Exclusive => {
            keys.extend(entries.iter().map(|entry| entry.keys.lock.as_str()));
            keys.extend(entries.iter().map(|entry| entry.keys.queue.as_str()));
        }
        Family::Counted => {
            for Entry { keys: own, .. } in entries {
                keys.extend([own.queue.as_str(), &own.holders, &own.lock]);
            }
        }
    }
    keys
}
