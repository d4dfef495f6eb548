//! Tests how many file operations a pair of lock and release costs.
#![cfg(target_os = "linux")]

use std::{
    cell::RefCell,
    fs,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use lockkit_core::{LockOptions, Locker, Mutex};
use lockkit_file::{Config, FileStore};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tempfile::TempDir;
use tokio::task::LocalSet;

const PAIRS: usize = 200;
/// Each expected event comes within this time.
const SOON: Duration = Duration::from_secs(60);

fn locker(folder: &Path) -> Locker {
    // Without polling, the watcher opens files when the system reports changes. Those are not
    // counted here.
    let locker = Locker::new(FileStore::open(Config::new(folder).with_polling()).unwrap());
    // The limits are large enough for a slow disk.
    let options = LockOptions::new().with_ttl(SOON * 4).with_op_timeout(SOON);
    locker.with_defaults(options).unwrap()
}

async fn pair(mutex: &Mutex) {
    mutex.lock().await.unwrap().release().await.unwrap();
}

struct Counter(OwnedFd);

impl Counter {
    fn new(folder: &Path) -> Self {
        let file = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        // With events for moves, inotify does not merge two openings of a file into one event.
        let all = WatchFlags::OPEN | WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_TO;
        inotify::add_watch(&file, folder, all).unwrap();
        Self(file)
    }

    /// How many files were opened, and how many were made or removed.
    fn count(&self) -> (usize, usize) {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut opened = 0;
        let mut made = 0;
        while let Ok(event) = reader.next() {
            let events = event.events();
            assert!(!events.contains(ReadFlags::QUEUE_OVERFLOW));
            opened += usize::from(events.contains(ReadFlags::OPEN));
            made += usize::from(events.intersects(ReadFlags::CREATE | ReadFlags::DELETE));
        }
        (opened, made)
    }
}

#[tokio::test]
async fn a_pair_opens_two_files_and_makes_none() {
    let folder = TempDir::new().unwrap();
    let mutex = locker(folder.path()).mutex("a").unwrap();
    // The first pairs make the files.
    pair(&mutex).await;
    pair(&mutex).await;
    let counter = Counter::new(&folder.path().join("names/mutex"));
    let mut opened = 0;
    let mut made = 0;
    let start = Instant::now();
    for _ in 0..PAIRS {
        pair(&mutex).await;
        let counted = counter.count();
        opened += counted.0;
        made += counted.1;
    }
    assert!(opened >= PAIRS, "the counter does not count");
    // The watcher's thread looks ten times a second. If it still reads the file that a pair
    // replaced, the next change removes that file and makes a new one.
    let looks = usize::try_from(start.elapsed().as_millis() / 100).unwrap() + 2;
    assert!(opened <= 3 * PAIRS, "{opened} files opened by {PAIRS} pairs");
    assert!(made <= 2 * looks, "{made} files made or removed by {PAIRS} pairs");
}

#[tokio::test]
async fn many_names_keep_few_files_open() {
    let folder = TempDir::new().unwrap();
    let locker = locker(folder.path());
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for number in 0..1_000 {
        pair(&locker.mutex(&format!("name-{number}")).unwrap()).await;
    }
    // Each of 64 names has two files open, and other tests of this program have files open, too.
    assert!(open() <= before + 2 * 64 + 64, "{} files are open, and {before} were", open());
}

/// Names do not wait for each other. Without turns, one task would have 32 pairs before the next
/// task has one.
#[tokio::test]
async fn c8_tasks_that_do_nothing_but_lock_have_turns() {
    let folder = TempDir::new().unwrap();
    let locker = locker(folder.path());
    let served = Rc::new(RefCell::new(Vec::new()));
    let tasks = LocalSet::new();
    for number in 0..16 {
        let mutex = locker.mutex(&format!("name-{number}")).unwrap();
        let served = Rc::clone(&served);
        tasks.spawn_local(async move {
            for _ in 0..PAIRS {
                pair(&mutex).await;
                served.borrow_mut().push(number);
            }
        });
    }
    tasks.await;
    let served = served.borrow();
    let switches =
        served.iter().zip(served.iter().skip(1)).filter(|(one, next)| one != next).count();
    assert!(switches * 2 >= served.len(), "{switches} switches in {} pairs", served.len());
}
