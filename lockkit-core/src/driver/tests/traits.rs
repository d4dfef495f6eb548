//! Proofs by the compiler: futures that can be spawned, and values that threads can share.

use std::time::Duration;

use super::{World, ms};
use crate::{
    Error, Grants, Hold, LockGuard, Locker, Lost, Mutex, Once, ReleaseRequest, RwLock, Semaphore,
    TicketError, driver::held::Held, fake::Kind,
};

fn shared<T: Send + Sync + 'static>() {}

fn send<T: Send>(_: T) {}

#[test]
fn values_can_be_shared_between_threads() {
    shared::<Error>();
    shared::<LockGuard>();
    shared::<Hold>();
    shared::<Locker>();
    shared::<Lost>();
    shared::<Mutex>();
    shared::<Once>();
    shared::<ReleaseRequest>();
    shared::<RwLock>();
    shared::<Semaphore>();
    shared::<TicketError>();
}

#[expect(dead_code, reason = "that it compiles is the proof")]
fn futures_can_be_spawned(
    mutex: &Mutex,
    guard: LockGuard,
    leaving: LockGuard,
    rw_lock: &RwLock,
    semaphore: &Semaphore,
    once: &Once,
    locker: &Locker,
) {
    send(mutex.lock());
    send(mutex.try_lock());
    send(mutex.lock_timeout(Duration::ZERO));
    send(mutex.inspect());
    send(mutex.force_release(guard.fencing_token()));
    send(mutex.scope(|hold| async move { hold.renew().await }));
    send(once.run(1, |hold, _| async move { hold.renew().await }));
    send(once.last());
    send(rw_lock.read());
    send(rw_lock.write());
    send(semaphore.acquire_many(2));
    send(locker.shutdown());
    send(locker.resume(""));
    send(guard.run(async {}));
    send(guard.renew());
    send(guard.lost().wait());
    send(guard.lost().into_future());
    send(guard.expiring(ms(1)).wait());
    send(guard.expiring(ms(1)).into_future());
    send(guard.extend(ms(100)));
    send(guard.release_requested());
    send(locker.request_release(guard.name(), Grants::All, ""));
    send(guard.release());
    send(leaving.into_ticket());
}

#[tokio::test(start_paused = true)]
async fn the_futures_of_an_owner_can_be_spawned() {
    shared::<crate::Owner>();
    shared::<crate::ReentrantGuard>();
    let world = World::new(Kind::Ttl);
    let mutex = world.locker.owner().mutex("a").unwrap();
    send(mutex.lock());
    send(mutex.try_lock());
    send(mutex.lock_timeout(ms(1)));
    send(mutex.lock().await.unwrap().release());
}

#[tokio::test(start_paused = true)]
async fn the_futures_of_several_locks_can_be_spawned() {
    let world = World::new(Kind::Ttl);
    let set = world.locker.mutex_set(["a", "b"]).unwrap();
    send(world.locker.lock_all(["a", "b"]));
    send(set.lock());
    send(set.try_lock());
    send(set.lock_timeout(ms(1)));
    let guard = set.lock().await.unwrap();
    send(guard.run(async {}));
    send(guard.renew());
    send(guard.lost().wait());
    send(guard.lost().into_future());
    send(guard.release());
}

#[test]
fn sizes_stay_small() {
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert_eq!(size_of::<Lost>(), size_of::<usize>());
    assert_eq!(size_of::<LockGuard>(), 3 * size_of::<usize>());
    // With the claim, the name and the timer a guard takes less than 512 bytes: see the bench
    // `held_guards`.
    assert_eq!(size_of::<Hold>(), 2 * size_of::<usize>());
    assert!(size_of::<Held>() <= 336, "{}", size_of::<Held>());
    let world = World::new(Kind::Ttl);
    let mutex = world.mutex("a");
    assert!(size_of_val(&mutex.lock()) <= 2_048, "{}", size_of_val(&mutex.lock()));
}

#[tokio::test(start_paused = true)]
async fn a_scope_can_be_spawned() {
    let world = World::new(Kind::Ttl);
    let mutex = world.mutex("a");
    let scope = async move { mutex.scope(|hold| async move { hold.is_held() }).await };
    assert!(tokio::spawn(scope).await.unwrap().unwrap());
    world.clean("").await;
}
