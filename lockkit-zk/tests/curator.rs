//! lockkit and Apache Curator's InterProcessMutex and InterProcessReadWriteLock on the same paths.

mod interop;

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use interop::{Both, SESSION_TIMEOUT, SOON};
use lockkit_core::{
    ErrorKind, FencingToken, LockGuard, Locker,
    spi::{Mode, Released},
};
use tokio::time::timeout;

/// Long enough for an answer, short enough to wait for.
const BRIEFLY: u64 = 300;
const STORM: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn c1_a_mutex_that_java_holds_is_taken_and_comes_with_its_release() {
    let both = Both::start().await;
    // The name is one path component, which Java must write in the same way as lockkit.
    let mutex = both.locker.mutex("orders/42").unwrap();
    let path = both.path("mutex", "orders%2F42");
    assert_eq!(both.java.acquire("a", "mutex", &path).await, "acquired");
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert_eq!(
        mutex.lock_timeout(Duration::from_millis(BRIEFLY)).await.unwrap_err().kind(),
        ErrorKind::Timeout
    );
    // The call ends at its bound. On a busy machine the claim leaves the queue in the background.
    both.until_waiters(|| mutex.inspect(), 0).await;
    assert_eq!(
        both.admin.list_children(&path).await.unwrap().len(),
        1,
        "those who gave up are gone"
    );

    let waiter = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await.unwrap() }
    });
    both.until_waiters(|| mutex.inspect(), 1).await;
    assert!(!waiter.is_finished());
    both.java.release("a").await;
    let guard = timeout(SOON, waiter).await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a_mutex_that_lockkit_holds_is_taken_for_java_and_comes_with_its_release() {
    let both = Both::start().await;
    let mutex = both.locker.mutex("orders/43").unwrap();
    let path = both.path("mutex", "orders%2F43");
    let guard = mutex.try_lock().await.unwrap().unwrap();
    assert_eq!(both.java.tell("a", &format!("acquire mutex {BRIEFLY} {path}")).await, "timeout");

    let waiter = tokio::spawn(both.java.acquire("a", "mutex", &path));
    both.until_waiters(|| mutex.inspect(), 1).await;
    assert!(!waiter.is_finished() && guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(waiter.await.unwrap(), "acquired");
    assert!(mutex.try_lock().await.unwrap().is_none());
    both.java.release("a").await;
    mutex.try_lock().await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c8_whoever_came_first_is_served_first_on_both_sides() {
    let both = Both::start().await;
    let mutex = both.locker.mutex("queue").unwrap();
    let path = both.path("mutex", "queue");
    let served = Arc::new(Mutex::new(Vec::new()));
    let guard = mutex.lock().await.unwrap();

    let mut waiters = Vec::new();
    for number in 0..6 {
        let served = Arc::clone(&served);
        waiters.push(if number % 2 == 0 {
            let java = Arc::clone(&both.java);
            let owner = number.to_string();
            let acquired = java.acquire(&owner, "mutex", &path);
            tokio::spawn(async move {
                assert_eq!(acquired.await, "acquired");
                served.lock().unwrap().push(number);
                java.release(&owner).await;
            })
        } else {
            let mutex = mutex.clone();
            tokio::spawn(async move {
                let guard = mutex.lock().await.unwrap();
                served.lock().unwrap().push(number);
                guard.release().await.unwrap();
            })
        });
        both.until_waiters(|| mutex.inspect(), number + 1).await;
    }
    guard.release().await.unwrap();
    for waiter in waiters {
        timeout(SOON, waiter).await.unwrap().unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_readers_share_and_a_waiting_java_writer_blocks_the_lockkit_readers_behind_it() {
    let both = Both::start().await;
    let lock = both.locker.rw_lock("table").unwrap();
    let path = both.path("rwlock", "table");
    let ours = lock.read().await.unwrap();
    assert_eq!(both.java.acquire("reader", "read", &path).await, "acquired");
    assert!(lock.try_write().await.unwrap().is_none());
    let another = lock.try_read().await.unwrap().unwrap();
    another.release().await.unwrap();

    let writer = tokio::spawn(both.java.acquire("writer", "write", &path));
    both.until_waiters(|| lock.inspect(), 1).await;
    assert!(lock.try_read().await.unwrap().is_none());
    let behind = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read().await.unwrap() }
    });
    both.until_waiters(|| lock.inspect(), 2).await;
    ours.release().await.unwrap();
    assert!(!writer.is_finished() && !behind.is_finished());
    both.java.release("reader").await;
    assert_eq!(writer.await.unwrap(), "acquired");
    assert!(!behind.is_finished());
    assert_eq!(lock.inspect().await.unwrap().holders[0].mode, Mode::Exclusive);
    both.java.release("writer").await;
    timeout(SOON, behind).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a_waiting_lockkit_writer_blocks_the_java_readers_behind_it() {
    let both = Both::start().await;
    let lock = both.locker.rw_lock("table").unwrap();
    let path = both.path("rwlock", "table");
    assert_eq!(both.java.acquire("reader", "read", &path).await, "acquired");
    let ours = lock.read().await.unwrap();

    let writer = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.unwrap() }
    });
    both.until_waiters(|| lock.inspect(), 1).await;
    assert_eq!(both.java.tell("late", &format!("acquire read {BRIEFLY} {path}")).await, "timeout");
    let behind = tokio::spawn(both.java.acquire("late", "read", &path));
    both.until_waiters(|| lock.inspect(), 2).await;
    both.java.release("reader").await;
    assert!(!writer.is_finished() && !behind.is_finished());
    ours.release().await.unwrap();
    let writer = timeout(SOON, writer).await.unwrap().unwrap();
    assert_eq!(lock.inspect().await.unwrap().waiters, Some(1));
    assert!(!behind.is_finished());
    writer.release().await.unwrap();
    assert_eq!(behind.await.unwrap(), "acquired");
    lock.try_read().await.unwrap().unwrap().release().await.unwrap();
    both.java.release("late").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a_lockkit_writer_waits_for_a_java_writer_that_became_a_reader() {
    let both = Both::start().await;
    let lock = both.locker.rw_lock("table").unwrap();
    let path = both.path("rwlock", "table");
    assert_eq!(both.java.acquire("a", "write", &path).await, "acquired");
    let mut writer = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.unwrap() }
    });
    both.until_waiters(|| lock.inspect(), 1).await;
    assert_eq!(both.java.tell("a", &format!("downgrade {path}")).await, "downgraded");
    both.java.release("a").await;
    // The writer sees that release at once, and must not take it for its turn.
    let granted = timeout(Duration::from_millis(BRIEFLY), &mut writer).await;
    assert!(granted.is_err(), "a writer beside a reader: {granted:?}");
    let seen = lock.inspect().await.unwrap();
    assert_eq!(
        (seen.holders.len(), seen.holders[0].mode, seen.waiters),
        (1, Mode::Shared, Some(1))
    );
    both.java.release("a").await;
    timeout(SOON, writer).await.unwrap().unwrap().release().await.unwrap();
    both.until_empty(&path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_locks_of_a_killed_java_process_end_with_its_session() {
    let both = Both::start().await;
    let mutex = both.locker.mutex("orphan").unwrap();
    assert_eq!(both.java.acquire("a", "mutex", &both.path("mutex", "orphan")).await, "acquired");
    let waiter = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await.unwrap() }
    });
    both.until_waiters(|| mutex.inspect(), 1).await;
    let killed = Instant::now();
    both.java.kill().await;
    let guard = timeout(SOON, waiter).await.unwrap().unwrap();
    // The server got its last sign of life at most a third of the timeout before.
    assert!(killed.elapsed() > SESSION_TIMEOUT / 2, "{:?}", killed.elapsed());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_a_java_holder_is_shown_by_its_data_and_can_not_be_evicted() {
    let both = Both::start().await;
    let mutex = both.locker.mutex("seen").unwrap();
    let path = both.path("mutex", "seen");
    assert_eq!(both.java.acquire("a", "mutex", &path).await, "acquired");
    let node = both.admin.list_children(&path).await.unwrap().remove(0);
    let (data, stat) = both.admin.get_data(&format!("{path}/{node}")).await.unwrap();
    assert!(!data.is_empty());

    let seen = mutex.inspect().await.unwrap();
    let [holder] = &seen.holders[..] else { panic!("{seen:?}") };
    assert_eq!((holder.owner, holder.token, holder.mode), (None, None, Mode::Exclusive));
    assert_eq!(holder.label.as_deref(), Some(str::from_utf8(&data).unwrap()));

    let token = FencingToken::new(stat.czxid.cast_unsigned());
    assert_eq!(mutex.force_release(token).await.unwrap(), Released::NotHeld);
    assert_eq!(both.admin.list_children(&path).await.unwrap(), [node]);
    both.java.release("a").await;

    let guard = mutex.lock().await.unwrap();
    assert!(guard.fencing_token() > token, "tokens rise across both sides");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_mutexes_exclude_each_other_in_a_storm() {
    storm("mutex", "mutex").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_read_write_locks_exclude_each_other_in_a_storm() {
    storm("rw", "rwlock").await;
}

/// Three owners in Java and four on two lockkit sessions lock, give up, and drop their waiting
/// calls at random.
async fn storm(java_kind: &str, kind: &str) {
    let both = Both::start().await;
    let path = both.path(kind, "storm");
    let folder = both.folder();
    let command =
        format!("storm {java_kind} {} {} {path}", STORM.as_millis(), folder.path().display());
    let javas: Vec<_> = (0..3).map(|owner| both.java.tell(&owner.to_string(), &command)).collect();
    let mut ours = Vec::new();
    for locker in [&both.locker, &both.another_locker().await] {
        for _ in 0..2 {
            let locker = locker.clone();
            let folder = folder.path().to_owned();
            let is_mutex = kind == "mutex";
            ours.push(tokio::spawn(async move { one_of_ours(&locker, is_mutex, &folder).await }));
        }
    }
    for task in ours {
        let (grants, violations) = task.await.unwrap();
        println!("lockkit: {grants} grants");
        assert_eq!(violations, 0);
        assert!(grants > 5, "{grants}");
    }
    for java in javas {
        let answer = java.await;
        println!("Java: {answer} (grants, violations)");
        let (grants, violations) = answer.split_once(' ').unwrap();
        assert_eq!(violations, "0", "{answer}");
        assert!(grants.parse::<u32>().unwrap() > 5, "{answer}");
    }
    both.until_empty(&path).await;
}

async fn one_of_ours(locker: &Locker, is_mutex: bool, folder: &Path) -> (u32, u32) {
    let mutex = locker.mutex("storm").unwrap();
    let rw_lock = locker.rw_lock("storm").unwrap();
    let end = Instant::now() + STORM;
    let mut grants = 0;
    let mut violations = 0;
    while Instant::now() < end {
        let wait = Duration::from_millis(rand::random_range(0..20));
        let patience = rand::random_range(0..4);
        let write = rand::random_range(0..4) == 0;
        let asked = async {
            match (patience, is_mutex, write) {
                (0, true, _) => mutex.lock_timeout(wait).await,
                (0, false, true) => rw_lock.write_timeout(wait).await,
                (0, false, false) => rw_lock.read_timeout(wait).await,
                (_, true, _) => mutex.lock().await,
                (_, false, true) => rw_lock.write().await,
                (_, false, false) => rw_lock.read().await,
            }
        };
        // Some callers drop the future instead of giving up.
        let guard = if patience == 1 {
            timeout(wait, asked).await.ok()
        } else {
            Some(timeout(SOON, asked).await.unwrap())
        };
        let guard = match guard {
            // Such a short wait may end before the server answers.
            Some(Err(error))
                if patience == 0
                    && matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable) =>
            {
                None
            }
            guard => guard.map(Result::unwrap),
        };
        if let Some(guard) = guard {
            grants += 1;
            violations += u32::from(!is_alone(folder, &guard).await);
            guard.release().await.unwrap();
        }
    }
    (grants, violations)
}

/// Leaves a file while the lock is held. If two holders meet, the later one sees the other's file.
async fn is_alone(folder: &Path, guard: &LockGuard) -> bool {
    let prefix = if guard.mode() == Mode::Exclusive { "exclusive-" } else { "shared-" };
    let mine = format!("{prefix}lockkit-{}", guard.owner());
    fs::write(folder.join(&mine), "").unwrap();
    let names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    tokio::time::sleep(Duration::from_micros(rand::random_range(0..1_000))).await;
    fs::remove_file(folder.join(&mine)).unwrap();
    names
        .iter()
        .all(|name| *name == mine || guard.mode() == Mode::Shared && name.starts_with("shared-"))
}
