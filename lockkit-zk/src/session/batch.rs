//! Sends the requests for several nodes together while a session is busy. The client and the
//! servers spend most of their time on a request, and little on its node.
//!
//! 1. While some requests are under way on a session, further ones are collected.
//! 2. They are sent as one transaction, of which the servers apply all or nothing. In the same
//!    flush, one request reads the queues of the nodes that it makes.
//! 3. A request that is left over did nothing. Its claim sends it alone.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join;
use lockkit_core::{
    Clock, Tick,
    spi::{Batches, Members, bounded},
};
use tokio::{
    runtime::{Handle, Id},
    sync::Semaphore,
};
use zookeeper_client::{
    Acls, Client, CreateMode, Error, MultiReadResult, MultiReader, MultiWriteError,
    MultiWriteResult, MultiWriter,
};

use super::lock;
use crate::error::{Fate, fate};

/// How many requests are under way before others are collected.
const BUSY: usize = 4;
/// How many batches are under way at once. With one, the client and the servers would wait for
/// each other.
const UNDER_WAY: usize = 3;
/// How many requests a batch has at most.
const MOST: usize = 32;
/// How long a batch waits for its turn at most.
const TURN: Duration = Duration::from_millis(500);
/// How long all requests are sent alone after a batch had no turn. Callers that are not polled keep
/// their turns, and must not delay the others again and again.
const ALONE: Duration = Duration::from_secs(5);

/// A change of one node.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// Make a node in this folder, whose name begins with the prefix.
    Create { folder: Arc<str>, prefix: Arc<str>, data: Vec<u8>, acls: Acls<'static> },
    /// Delete this node.
    Delete { path: Arc<str> },
}

/// The outcome of a request.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    Created(Created),
    Deleted,
    LeftOver,
}

/// A new node.
#[derive(Clone, Debug)]
pub(crate) struct Created {
    pub(crate) path: String,
    /// The zxid that made the node.
    pub(crate) zxid: i64,
    /// The children of its folder, read after that.
    pub(crate) queue: Result<Vec<String>, Error>,
}

type Answer = Vec<Result<Done, Error>>;

/// The requests that may share a batch. Deletions do not wait for the answers to creations, and a
/// refused creation does not undo them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sort {
    runtime: Option<Id>,
    op_timeout: Duration,
    creates: bool,
}

/// The batches of one session.
#[derive(Debug)]
pub(crate) struct NodeBatches {
    /// How many requests are under way, with the batches.
    requests: AtomicUsize,
    turns: Semaphore,
    batches: Batches<Sort, Member, Answer>,
    /// Until then, all requests are sent alone.
    alone_until: Mutex<Option<Tick>>,
    /// Keeps a batch in order with the requests of callers that give up.
    order: Mutex<()>,
}

#[derive(Debug)]
struct Member {
    request: Request,
    caller: Weak<()>,
}

/// A caller that waits for the answer to its request.
struct Caller<'a> {
    batches: &'a NodeBatches,
    lives: Option<Arc<()>>,
}

/// Counts a request, until its caller hears the answer or gives up.
pub(crate) struct UnderWay<'a>(&'a NodeBatches);

impl NodeBatches {
    pub(super) fn new() -> Self {
        Self {
            requests: AtomicUsize::new(0),
            turns: Semaphore::new(UNDER_WAY),
            batches: Batches::default(),
            alone_until: Mutex::default(),
            order: Mutex::default(),
        }
    }

    /// Counts a request that is sent alone.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.requests.fetch_add(1, Relaxed);
        UnderWay(self)
    }

    /// Sends a request with others. On a quiet session it is left over.
    ///
    /// # Errors
    /// Unless the error is final, the request may have been applied.
    ///
    /// # Cancel safety
    /// A request whose call was dropped is not sent later than the drop.
    pub(crate) async fn send(
        self: &Arc<Self>,
        client: &Arc<Client>,
        request: Request,
        op_timeout: Duration,
    ) -> Result<Done, Error> {
        let is_alone = || lock(&self.alone_until).is_some_and(|until| Clock::Boot.now() < until);
        if self.requests.load(Relaxed) < BUSY || is_alone() {
            return Ok(Done::LeftOver);
        }
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let creates = matches!(request, Request::Create { .. });
        let sort = Sort { runtime, op_timeout, creates };
        let lives = Arc::new(());
        let member = Member { request, caller: Arc::downgrade(&lives) };
        let _caller = Caller { batches: self, lives: Some(lives) };
        let send = |members| {
            let (own, client) = (Arc::clone(self), Arc::clone(client));
            async move { Arc::new(own.exchange(&client, sort, &members).await) }
        };
        let (place, answer) = self.batches.join(sort, member, MOST, send);
        answer.await.get(place).cloned().unwrap_or(Ok(Done::LeftOver))
    }

    async fn exchange(
        &self,
        client: &Arc<Client>,
        sort: Sort,
        members: &Members<Member>,
    ) -> Answer {
        // A claim has most of its time left after that.
        let patience = TURN.min(sort.op_timeout / 8);
        let turn = bounded(patience, async { Ok(self.turns.acquire().await) }).await;
        if turn.is_err() {
            *lock(&self.alone_until) = Some(Clock::Boot.now().after(ALONE));
        }
        let (mut batch, sent) = {
            let _order = lock(&self.order);
            let batch = Batch::of(self.batches.close(sort, members));
            if turn.is_err() || batch.requests.is_empty() {
                return batch.answers;
            }
            match batch.send(client) {
                Ok(sent) => (batch, sent),
                Err(_) => return batch.answers,
            }
        };
        let under_way = self.begin();
        let (written, read) = sent.await;
        drop((turn, under_way));
        batch.take(client, written, read).await;
        batch.answers
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.lives = None;
        // Waits until a batch that has the request is on the connection, before the caller sends
        // anything else.
        drop(lock(&self.batches.order));
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Relaxed);
    }
}

/// The requests of one transaction.
struct Batch {
    answers: Answer,
    /// The place of each request among the members.
    requests: Vec<(usize, Request)>,
}

type Written = Result<Vec<MultiWriteResult>, MultiWriteError>;
type Read = Result<Vec<MultiReadResult>, Error>;

impl Batch {
    /// All nodes of a transaction get the same zxid. So there is one node for each folder, because
    /// the zxid is the token, and tokens of one lock differ.
    fn of(members: Vec<Member>) -> Self {
        let answers = vec![Ok(Done::LeftOver); members.len()];
        let mut folders = HashSet::new();
        let requests = members
            .into_iter()
            .enumerate()
            .filter(|(_, member)| member.caller.strong_count() > 0)
            .map(|(place, member)| (place, member.request))
            .filter(|(_, request)| match request {
                Request::Create { folder, .. } => folders.insert(Arc::clone(folder)),
                Request::Delete { .. } => true,
            })
            .collect();
        Self { answers, requests }
    }

    /// Puts the transaction and the read on the connection.
    fn send<'a>(
        &self,
        client: &'a Client,
    ) -> Result<impl Future<Output = (Written, Read)> + Send + use<'a>, Error> {
        let mut writer: MultiWriter<'a> = client.new_multi_writer();
        let mut reader: MultiReader<'a> = client.new_multi_reader();
        for (_, request) in &self.requests {
            match request {
                Request::Create { folder, prefix, data, acls } => {
                    let options = CreateMode::EphemeralSequential.with_acls(*acls);
                    writer.add_create(prefix, data, &options)?;
                    reader.add_get_children(folder)?;
                }
                Request::Delete { path } => writer.add_delete(path, None)?,
            }
        }
        Ok(join(writer.commit(), reader.commit()))
    }

    async fn take(&mut self, client: &Client, written: Written, read: Read) {
        let results = match written.map_err(Error::from) {
            Ok(results) => results,
            // One of the requests was refused, so nothing was done.
            Err(error) if matches!(fate(&error), Fate::Refused) => return,
            Err(error) => {
                for (place, _) in &self.requests {
                    self.answers[*place] = Err(error.clone());
                }
                return;
            }
        };
        let mut zxid = Err(Error::NoNode);
        let mut queues = read.map(Vec::into_iter);
        for ((place, _), result) in self.requests.iter().zip(results) {
            let MultiWriteResult::Create { path, stat } = result else {
                self.answers[*place] = Ok(Done::Deleted);
                continue;
            };
            let queue = match &mut queues {
                Ok(queues) => queue(queues.next()),
                Err(error) => Err(error.clone()),
            };
            if !stat.is_invalid() {
                zxid = Ok(stat.czxid);
            } else if matches!(zxid, Err(Error::NoNode)) {
                zxid = zxid_of(client, &path).await;
            }
            self.answers[*place] = match &zxid {
                Ok(zxid) => Ok(Done::Created(Created { path, zxid: *zxid, queue })),
                // Another client has deleted the node.
                Err(Error::NoNode) => Ok(Done::LeftOver),
                // The node is there, whatever the server refused.
                Err(error) if matches!(fate(error), Fate::Refused) => Err(Error::ConnectionLoss),
                Err(error) => Err(error.clone()),
            };
        }
    }
}

fn queue(result: Option<MultiReadResult>) -> Result<Vec<String>, Error> {
    match result {
        Some(MultiReadResult::Children { children }) => Ok(children),
        Some(MultiReadResult::Error { err }) => Err(err),
        _ => Err(Error::UnexpectedError("the server did not list a folder".into())),
    }
}

/// The transaction that made a node. Servers of the 3.8 series do not report it with the node
/// (ZOOKEEPER-4026).
async fn zxid_of(client: &Client, path: &str) -> Result<i64, Error> {
    let stat = client.check_stat(path).await?.ok_or(Error::NoNode)?;
    // Another client may have put its own node in the place of this one.
    if stat.ephemeral_owner != client.session_id().0 {
        return Err(Error::NoNode);
    }
    Ok(stat.czxid)
}
