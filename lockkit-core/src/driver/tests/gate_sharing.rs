//! Tests of the process gate for names that tasks share: readers beside a writer, and permits.

use std::sync::Arc;

use tokio::{
    task::JoinSet,
    time::{self, Instant},
};

use super::{World, ms, secs};
use crate::{
    Clock, ErrorKind, LockGuard, Locker, Released, Result, RwLock, Semaphore,
    fake::{Fake, Kind, Op, Store, lock},
    spi::{Capabilities, Descriptor},
};

const TASKS: usize = 40;

fn world() -> World {
    World::gated(Kind::Memory)
}

impl World {
    fn rwlock(&self) -> RwLock {
        self.locker.rw_lock("a").unwrap()
    }

    fn permits(&self, limit: u32) -> Semaphore {
        self.locker.semaphore("a", limit).unwrap()
    }

    /// The semaphore as another process has it.
    fn foreign_permits(&self, limit: u32) -> Semaphore {
        self.locker.clone().with_process_gate(false).semaphore("a", limit).unwrap()
    }
}

/// Lets tasks ask one after the other. Returns their numbers in the order in which they were
/// served.
async fn crowd<F>(ask: impl Fn(usize) -> F) -> Vec<usize>
where
    F: Future<Output = Result<LockGuard>> + Send + 'static,
{
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for n in 0..TASKS {
        let order = Arc::clone(&order);
        let asked = ask(n);
        tasks.spawn(async move {
            let guard = asked.await.unwrap();
            lock(&order).push(n);
            time::sleep(ms(1)).await;
            guard.release().await.unwrap();
        });
        tokio::task::yield_now().await;
    }
    tasks.join_all().await;
    lock(&order).clone()
}

#[tokio::test(start_paused = true)]
async fn c12_permits_of_a_process_cost_one_attempt_each_and_go_in_order() {
    let world = world();
    let order = crowd(|_| {
        let permits = world.permits(3);
        async move { permits.acquire().await }
    })
    .await;
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(world.store.count(Op::Attempt), TASKS);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c12_readers_and_writers_of_a_process_cost_one_attempt_each_and_go_in_order() {
    let world = world();
    let order = crowd(|n| {
        let rwlock = world.rwlock();
        async move { if n % 4 == 0 { rwlock.write().await } else { rwlock.read().await } }
    })
    .await;
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(world.store.count(Op::Attempt), TASKS);
    world.clean("").await;
}

/// Catches a gate that lets tasks in one after the other although all have room.
#[tokio::test(start_paused = true)]
async fn readers_and_permits_that_have_room_ask_at_the_same_time() {
    let world = world();
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS / 2 {
        let rwlock = world.rwlock();
        let permits = world.permits(20);
        tasks.spawn(async move { rwlock.read().await.unwrap() });
        tasks.spawn(async move { permits.acquire().await.unwrap() });
    }
    let guards = tasks.join_all().await;
    assert!(start.elapsed() < ms(6), "{:?}: a request takes 2 ms", start.elapsed());
    drop(guards);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn of_a_crowd_behind_another_process_only_the_first_ones_wait_in_the_store() {
    let world = world();
    let held = world.foreign_permits(1).acquire().await.unwrap();
    let tasks = tokio::spawn(crowd({
        let permits = world.permits(1);
        move |_| {
            let permits = permits.clone();
            async move { permits.acquire().await }
        }
    }));
    time::sleep(ms(100)).await;
    assert_eq!(world.store.queued(), 1);
    assert_eq!(world.permits(1).inspect().await.unwrap().waiters, Some(40));
    held.release().await.unwrap();
    assert!(tasks.await.unwrap().is_sorted());
    world.clean("").await;
}

/// Catches a gate that lets all readers in because they have room together.
#[tokio::test(start_paused = true)]
async fn c8_readers_behind_a_reader_that_waits_in_the_store_enter_with_it() {
    let world = world();
    let foreign = world.locker.clone().with_process_gate(false).rw_lock("a").unwrap();
    let writes = foreign.write().await.unwrap();
    let mut readers = JoinSet::new();
    for _ in 0..TASKS {
        let rwlock = world.rwlock();
        readers.spawn(async move { rwlock.read().await.unwrap() });
        time::sleep(ms(10)).await;
    }
    assert_eq!(world.store.queued(), 1);
    writes.release().await.unwrap();
    let start = Instant::now();
    let readers = readers.join_all().await;
    assert!(start.elapsed() < ms(10), "{:?}: a request takes 2 ms", start.elapsed());
    drop((readers, foreign));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c12_a_reader_does_not_overtake_the_writer_that_waits_in_the_process() {
    let world = world();
    let rwlock = world.rwlock();
    let reads = rwlock.read().await.unwrap();
    let writes = tokio::spawn(async move { rwlock.write().await });
    time::sleep(ms(1)).await;
    let rwlock = world.rwlock();
    assert!(rwlock.try_read().await.unwrap().is_none(), "a try waits for nobody, and passes none");
    let read_again = tokio::spawn(async move { rwlock.read().await });
    time::sleep(ms(20)).await;
    assert!(!writes.is_finished() && !read_again.is_finished());
    assert_eq!(world.store.count(Op::Attempt), 1, "the process knows that it is taken");
    reads.release().await.unwrap();
    let writes = writes.await.unwrap().unwrap();
    assert!(!read_again.is_finished());
    writes.release().await.unwrap();
    read_again.await.unwrap().unwrap().release().await.unwrap();
    world.clean("").await;
}

/// The place of the task among other processes is in the store.
#[tokio::test(start_paused = true)]
async fn behind_long_holds_the_first_in_line_waits_in_the_store() {
    let world = world();
    let held = [world.permits(2).acquire().await.unwrap(), {
        time::sleep(ms(200)).await;
        world.permits(2).acquire().await.unwrap()
    }];
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let permits = world.permits(2);
            tokio::spawn(async move { permits.acquire().await })
        })
        .collect();
    time::sleep(ms(200)).await;
    assert_eq!(world.store.queued(), 0, "the younger one is held for 200 ms");
    time::sleep(ms(400)).await;
    assert_eq!(world.store.queued(), 1, "the others wait behind it");
    for guard in held {
        guard.release().await.unwrap();
    }
    for waiter in waiting {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_try_beside_a_writer_of_its_process_is_refused_without_a_request() {
    let world = world();
    let writes = world.rwlock().write().await.unwrap();
    assert!(world.rwlock().try_read().await.unwrap().is_none());
    assert!(world.rwlock().try_write().await.unwrap().is_none());
    assert_eq!(world.store.count(Op::Attempt), 1);
    drop(writes);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c13_another_limit_is_refused_by_the_store_and_not_waited_for() {
    let world = world();
    let held = world.permits(2).acquire_many(2).await.unwrap();
    for answer in [world.permits(1).try_acquire().await, world.permits(1).acquire().await.map(Some)]
    {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidOption);
    }
    drop(held);
    world.clean("").await;
}

/// Catches a gate that still counts a permit that was taken away.
#[tokio::test(start_paused = true)]
async fn c14_a_permit_that_an_operator_frees_makes_room_in_the_process() {
    let world = world();
    let permits = world.permits(2);
    let first = permits.acquire().await.unwrap();
    let second = permits.acquire().await.unwrap();
    let waiter = permits.clone();
    let waiter = tokio::spawn(async move { waiter.acquire().await });
    time::sleep(ms(10)).await;
    let freed = permits.force_release(first.fencing_token()).await.unwrap();
    assert_eq!(freed, Released::Freed);
    let third = time::timeout(secs(1), waiter).await.unwrap().unwrap().unwrap();
    assert!(second.is_held() && third.is_held());
    drop((first, second, third, permits));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c6_a_cancelled_call_makes_room_for_the_next_in_line() {
    let world = world();
    let reads = world.rwlock().read().await.unwrap();
    let rwlock = world.rwlock();
    let writes = tokio::spawn(async move { rwlock.write().await });
    time::sleep(ms(1)).await;
    let rwlock = world.rwlock();
    let read_again = tokio::spawn(async move { rwlock.read().await });
    time::sleep(ms(1)).await;
    writes.abort();
    let read_again = time::timeout(secs(1), read_again).await.unwrap().unwrap().unwrap();
    assert!(reads.is_held() && read_again.is_held());
    drop((reads, read_again));
    world.clean("").await;
}

/// Catches a gate that waits for ever for a task that is stuck.
#[tokio::test(start_paused = true)]
async fn c8_a_reader_that_is_not_polled_any_more_is_passed_over() {
    let world = world();
    let foreign = world.locker.clone().with_process_gate(false).rw_lock("a").unwrap();
    let writes = foreign.write().await.unwrap();
    let rwlock = world.rwlock();
    let mut stuck = Box::pin(rwlock.read());
    time::timeout(ms(10), stuck.as_mut()).await.unwrap_err();
    writes.release().await.unwrap();
    let mut waiting = Box::pin(foreign.read());
    let reads = time::timeout(secs(1), waiting.as_mut()).await.unwrap().unwrap();
    assert!(world.rwlock().try_read().await.unwrap().is_none(), "it may still act");
    time::sleep(secs(10)).await;
    let tried = world.rwlock().try_read().await.unwrap();
    assert!(tried.is_some(), "a try that nobody stands in the way of");
    drop((stuck, waiting, reads, tried));
    drop((rwlock, foreign));
    world.clean("").await;
}

/// Catches a gate that lets all tasks in because one asks with a wrong limit, and a gate that lets
/// that task wait.
#[tokio::test(start_paused = true)]
async fn c13_a_claim_with_another_limit_is_refused_and_opens_the_gate_for_no_other() {
    let world = world();
    let held = world.permits(1).acquire().await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let permits = world.permits(1);
        tasks.spawn(async move {
            let guard = permits.acquire().await.unwrap();
            time::sleep(ms(100)).await;
            guard.release().await.unwrap();
        });
        time::sleep(ms(1)).await;
    }
    let late = world.permits(2).acquire_timeout(ms(20)).await.map(Some);
    for answer in [world.permits(2).try_acquire().await, late] {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidOption);
    }
    held.release().await.unwrap();
    time::sleep(ms(50)).await;
    assert!(world.store.queued() <= 1, "{} wait in the store", world.store.queued());
    tasks.join_all().await;
    world.clean("").await;
}

/// Catches a gate that lets small claims wait for a large one, on a store that would grant the
/// small ones.
#[tokio::test(start_paused = true)]
async fn c8_small_claims_of_a_process_pass_one_that_waits_for_more_permits() {
    let permits = Capabilities { exclusive: true, permits: true, ..Capabilities::NONE };
    let store = Store::new(0);
    let fake =
        Fake::new(store, Kind::Ttl).described(|it| Descriptor { capabilities: permits, ..it });
    let locker = Locker::builder(Arc::new(fake)).clock(Clock::Tokio).build();
    let permits = locker.semaphore("a", 3).unwrap();
    let one = permits.acquire().await.unwrap();
    time::sleep(ms(300)).await;
    let many = permits.clone();
    let many = tokio::spawn(async move { many.acquire_many(3).await.unwrap() });
    time::sleep(ms(300)).await;
    let small = permits.acquire_timeout(secs(1)).await.expect("two permits are free");
    one.release().await.unwrap();
    small.release().await.unwrap();
    many.await.unwrap().release().await.unwrap();
}
