//! The watcher: one plain thread per backend. The system reports to it what other processes do to
//! our names, and when they end. It changes no record. It wakes the claims that a change concerns,
//! and they look for themselves.

mod inotify;
mod poller;

use std::{
    collections::VecDeque,
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    process,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use lockkit_core::{Clock, ErrorKind, Result, Tick};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use self::{
    inotify::{Inotify, News},
    poller::FolderPoller,
};
use crate::{
    error::ours,
    folder::{Folder, LockPaths},
    session::SessionId,
    store::Store,
};

/// How long news can wait if no claim waits. Our own changes, above all, then need no thread that
/// wakes for each.
const REST: Duration = Duration::from_millis(1);
/// The pause between two looks at a closed session file: the system closes it right before it
/// unlocks it.
const DYING: Duration = Duration::from_millis(1);
/// After this many looks, some other process has closed the file.
const MOST_LOOKS: u32 = 1_000;
/// How many dead sessions it remembers. An event may come after the death of an owner that is still
/// in the record.
const MOST_DEAD: usize = 256;

/// How often it tries to remove from a record what claims have left there.
const CLEANUP_PAUSE: Duration = Duration::from_secs(1);

/// The watcher's thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) line: UnixStream,
    thread: Option<JoinHandle<()>>,
    /// A forked child has the line, too, but not the thread.
    pid: u32,
}

impl Watcher {
    /// Starts the thread, which hears of all changes from now on.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the system has no room for a thread.
    pub(crate) fn start(store: Arc<Store>, polling: bool) -> Result<Self> {
        let failed = |error: io::Error| {
            let reason = format!("could not start the thread that watches for changes: {error}");
            ours(ErrorKind::Unavailable, reason).with_source(error)
        };
        let (line, orders) = UnixStream::pair().map_err(failed)?;
        for end in [&line, &orders] {
            end.set_nonblocking(true).map_err(failed)?;
        }
        let inotify = if polling { None } else { open(&store) };
        let watch = Watch {
            store,
            inotify,
            polling,
            orders,
            dying: Vec::new(),
            dead: VecDeque::new(),
            poller: FolderPoller::default(),
            cleans_at: Clock::Boot.now(),
            had_news: false,
        };
        let thread = thread::Builder::new().name("lockkit-file".to_owned());
        let thread = thread.spawn(move || watch.run()).map_err(failed)?;
        Ok(Self { line, thread: Some(thread), pid: process::id() })
    }

    /// Asks it to clean up now.
    pub(crate) fn wake(&self) {
        // A line that is full of orders wakes it, too.
        let _ = (&self.line).write(&[0]);
    }

    /// Whether the thread has ended by itself.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.pid != process::id() {
            return;
        }
        // To close the line is not enough: a forked child has it open, too.
        let _ = self.line.shutdown(Shutdown::Both);
        let Some(thread) = self.thread.take() else { return };
        // This may run in the thread itself: a wake-up may drop the last handle of a locker.
        if thread.thread().id() != thread::current().id() {
            // The thread returns nothing.
            let _ = thread.join();
        }
    }
}

fn open(store: &Store) -> Option<Inotify> {
    match Inotify::open(&store.folder) {
        Ok(inotify) => Some(inotify),
        Err(error) => {
            tracing::warn!(
                folder = ?store.folder.root(),
                %error,
                "the system does not report changes of files, so lockkit polls every {:?} to {:?}; \
                 on Linux, raise fs.inotify.max_user_instances or max_user_watches",
                poller::SHORTEST,
                poller::LONGEST,
            );
            None
        }
    }
}

/// Checks whether the system reports changes in this folder.
///
/// # Errors
/// The reason why it does not.
pub(crate) fn check(folder: &Folder) -> io::Result<()> {
    Inotify::open(folder).map(drop)
}

struct Watch {
    store: Arc<Store>,
    inotify: Option<Inotify>,
    polling: bool,
    /// A byte is an order to clean up. The end of the line is an order to end.
    orders: UnixStream,
    /// Sessions whose files were closed, and how often each was looked at since.
    dying: Vec<(SessionId, u32)>,
    dead: VecDeque<SessionId>,
    poller: FolderPoller,
    cleans_at: Tick,
    /// Whether the last look found any news.
    had_news: bool,
}

impl Watch {
    fn run(mut self) {
        // This finds what happened before inotify was open.
        self.poller.look_at_all(&self.store);
        while self.wait() {
            match self.orders() {
                Orders::End => return,
                Orders::None if Clock::Boot.now() < self.cleans_at => {}
                Orders::None | Orders::CleanUp => self.clean_up(),
            }
            let mut news = News::default();
            match &mut self.inotify {
                Some(inotify) => {
                    if inotify.read(&mut news).is_err() {
                        news.unwatched = true;
                    }
                }
                None => news.everything = self.poller.is_due(),
            }
            if news.unwatched {
                self.inotify = None;
            }
            if self.inotify.is_none() && !self.polling && (news.unwatched || news.everything) {
                // The folder may have been removed and made again.
                self.inotify = Inotify::open(&self.store.folder).ok();
            }
            self.had_news = news.any;
            self.hear(news);
        }
    }

    /// Waits until there is something to do; returns false if it can't wait.
    fn wait(&self) -> bool {
        let now = Clock::Boot.now();
        let dying = (!self.dying.is_empty()).then_some(DYING);
        let cleaning = (!self.store.cleanups.is_empty()).then(|| now.until(self.cleans_at));
        let poller = self.inotify.is_none().then(|| now.until(self.poller.due()));
        let rests = self.had_news && !self.store.local_claims.anybody_waits();
        let rest = rests.then_some(REST);
        let patience = [dying, cleaning, poller, rest].into_iter().flatten().min();
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let mut files = vec![PollFd::new(&self.orders, PollFlags::IN)];
        files.extend(
            self.inotify
                .as_ref()
                .filter(|_| !rests)
                .map(|inotify| PollFd::new(inotify, PollFlags::IN)),
        );
        // If the poll fails, the waiters still look by themselves, and the next claim starts
        // another thread.
        matches!(poll(&mut files, patience.as_ref()), Ok(_) | Err(Errno::INTR))
    }

    fn orders(&self) -> Orders {
        let mut orders = [0; 64];
        match (&self.orders).read(&mut orders) {
            Ok(0) => Orders::End,
            Ok(_) => Orders::CleanUp,
            Err(_) => Orders::None,
        }
    }

    fn clean_up(&mut self) {
        if !self.store.cleanups.is_empty() {
            self.store.clean_up();
        }
        self.cleans_at = Clock::Boot.now().after(CLEANUP_PAUSE);
    }

    fn hear(&mut self, news: News) {
        if let Some(session) = self.store.present_session()
            && (news.everything || news.unwatched || news.sessions.contains(&session.id))
            && !session.stands().unwrap_or(true)
        {
            tracing::warn!(folder = ?self.store.folder.root(), "another program removed the \
                                                                session's file, so all locks of \
                                                                the session are lost");
            self.store.local_claims.wake_all();
        }
        self.dying.extend(news.sessions.into_iter().map(|session| (session, 0)));
        let anybody_died = self.see_who_died();
        if news.everything || news.unwatched {
            return self.poller.look_at_all(&self.store);
        }
        if anybody_died {
            self.store.local_claims.awaited().iter().for_each(|paths| self.look_at(paths));
        }
        for paths in news.names.iter().filter_map(|key| self.store.local_claims.paths(key)) {
            // Most news is of our own changes, and to read a record takes seven system calls.
            if !self.store.gates.is_last_of_ours(&paths) {
                self.look_at(&paths);
            }
        }
    }

    /// Returns true if a session died.
    fn see_who_died(&mut self) -> bool {
        let before = self.dead.len();
        let store = &self.store;
        let dead = &mut self.dead;
        self.dying.retain_mut(|(session, looks)| {
            *looks += 1;
            let died = store.is_dead(*session).unwrap_or(false);
            if died {
                dead.push_back(*session);
            }
            !died && *looks < MOST_LOOKS
        });
        let anybody_died = self.dead.len() > before;
        while self.dead.len() > MOST_DEAD {
            self.dead.pop_front();
        }
        anybody_died
    }

    fn look_at(&self, paths: &LockPaths) {
        let record = self.store.read(paths).ok().map(|mut record| {
            record.without(self.dead.as_slices().0);
            record.without(self.dead.as_slices().1);
            record
        });
        self.store.local_claims.hear(paths, record.as_ref());
        self.store.local_claims.tell_observers(paths);
    }
}

enum Orders {
    End,
    None,
    CleanUp,
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tempfile::TempDir;

    use super::*;
    use crate::gate_cache::GateCache;

    fn watcher(root: &TempDir) -> Watcher {
        let folder = Folder::new(root.path().to_owned());
        folder.make().unwrap();
        Watcher::start(Arc::new(Store::new(folder, GateCache::new())), false).unwrap()
    }

    #[test]
    fn it_ends_though_a_child_that_was_forked_has_its_line() {
        let root = TempDir::new().unwrap();
        let watcher = watcher(&root);
        let childs = watcher.line.try_clone().unwrap();
        let (done, is_done) = mpsc::channel();
        let ending = thread::spawn(move || {
            drop(watcher);
            done.send(()).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(60)).expect("it waits for the child");
        ending.join().unwrap();
        drop(childs);
    }

    #[test]
    fn a_child_that_was_forked_does_not_end_it() {
        let root = TempDir::new().unwrap();
        let watcher = watcher(&root);
        let line = watcher.line.try_clone().unwrap();
        drop(Watcher { line, thread: None, pid: process::id() + 1 });
        assert!(!watcher.is_over());
        // The thread would have ended at the next order.
        (&watcher.line).write_all(&[0]).expect("the line stands");
    }
}
