//! Lets a backend send the requests of several claims as one.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{
    FutureExt as _,
    future::{Shared, WeakShared},
};

/// The claims' parts of a request that was not sent yet.
pub type Members<M> = Arc<Mutex<Vec<M>>>;
/// The answer to a request, which all of its members get.
pub type BatchAnswer<A> = Pin<Box<dyn Future<Output = Arc<A>> + Send>>;

/// The requests that claims can still join, one of each sort. Each claim that waits for a request
/// drives it. The request belongs to none of them, and has no task. It ends when no claim waits for
/// it any more.
pub struct Batches<S, M, A> {
    open: Mutex<HashMap<S, Batch<M, A>>>,
}

struct Batch<M, A> {
    members: Members<M>,
    request: WeakShared<BatchAnswer<A>>,
}

impl<S: Copy + Eq + Hash, M, A: Send + Sync + 'static> Batches<S, M, A> {
    /// Joins the open request of this sort, if it has fewer than `most` members. Otherwise `send`
    /// makes another request. Returns the place among the members.
    ///
    /// # Cancel safety
    /// A caller that drops the request stays a member.
    pub fn join<F>(
        &self,
        sort: S,
        member: M,
        most: usize,
        send: impl FnOnce(Members<M>) -> F,
    ) -> (usize, BatchAnswer<A>)
    where
        F: Future<Output = Arc<A>> + Send + 'static,
    {
        let mut open = lock(&self.open);
        if let Some(batch) = open.get(&sort)
            && let Some(request) = batch.request.upgrade()
        {
            let mut members = lock(&batch.members);
            if members.len() < most {
                members.push(member);
                return (members.len() - 1, request.boxed());
            }
        }
        let members = Arc::new(Mutex::new(vec![member]));
        let request: Shared<BatchAnswer<A>> = send(Arc::clone(&members)).boxed().shared();
        if let Some(request) = request.downgrade() {
            // No call waits for the removed requests any more.
            open.retain(|_, batch| batch.request.upgrade().is_some());
            open.insert(sort, Batch { members, request });
        }
        (0, request.boxed())
    }

    /// Returns the members of a request. No other claim joins it after this.
    pub fn close(&self, sort: S, members: &Members<M>) -> Vec<M> {
        let mut open = lock(&self.open);
        if open.get(&sort).is_some_and(|batch| Arc::ptr_eq(&batch.members, members)) {
            open.remove(&sort);
        }
        std::mem::take(&mut *lock(members))
    }
}

impl<S, M, A> Default for Batches<S, M, A> {
    fn default() -> Self {
        Self { open: Mutex::default() }
    }
}

impl<S, M, A> fmt::Debug for Batches<S, M, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("open", &lock(&self.open).len()).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
