//! The watcher: one plain thread per backend, which hears from the system what other processes do to our names, and when
//! they end. It changes no record; it rings those whom a change concerns, and they look for themselves.

mod eyes;

use std::{
    collections::VecDeque,
    io,
    os::unix::net::UnixStream,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use lockkit_core::{ErrorKind, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use self::eyes::{Eyes, News};
use crate::{error::ours, folder::Place, session::SessionId, store::Store};

/// How often it looks where the system tells nothing.
const BLIND: Duration = Duration::from_millis(100);
/// The file of a process that ends is closed right before it is unlocked.
const DYING: Duration = Duration::from_millis(1);
/// After so many looks it was not the process that has closed it.
const MOST_LOOKS: u32 = 1_000;
/// An event may come behind the death of somebody whom its record still knows.
const MOST_DEAD: usize = 256;

/// The watcher's thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts it: whatever happens from now on is heard.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the system has no room for a thread.
    pub(crate) fn start(store: Arc<Store>, polling: bool) -> Result<Self> {
        let failed = |error: io::Error| {
            let reason = format!("no thread can be started that hears of changes: {error}");
            ours(ErrorKind::Unavailable, reason).with_source(error)
        };
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let eyes = if polling { None } else { open(&store) };
        let watch = Watch { store, eyes, polling, stopped, dying: Vec::new(), dead: VecDeque::new() };
        let thread = thread::Builder::new().name("lockkit-file".to_owned());
        let thread = thread.spawn(move || watch.run()).map_err(failed)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return };
        // The last of a locker may go in a ring of ours.
        if thread.thread().id() != thread::current().id() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn open(store: &Store) -> Option<Eyes> {
    match Eyes::open(&store.folder) {
        Ok(eyes) => Some(eyes),
        Err(error) => {
            tracing::warn!(
                folder = ?store.folder.root(),
                %error,
                "the system does not tell of changes, so lockkit looks every {BLIND:?}; on Linux, raise \
                 fs.inotify.max_user_instances or max_user_watches"
            );
            None
        }
    }
}

struct Watch {
    store: Arc<Store>,
    eyes: Option<Eyes>,
    polling: bool,
    stopped: UnixStream,
    /// Sessions whose files were closed, and how often each was looked at since.
    dying: Vec<(SessionId, u32)>,
    dead: VecDeque<SessionId>,
}

impl Watch {
    fn run(mut self) {
        // What happened before the eyes were open.
        self.look_at_all();
        while self.wait() {
            let mut news = News::default();
            match &mut self.eyes {
                Some(eyes) => {
                    if eyes.read(&mut news).is_err() {
                        news.blinded = true;
                    }
                }
                None => news.everything = true,
            }
            if news.blinded {
                self.eyes = None;
            }
            if self.eyes.is_none() && !self.polling {
                // The folder may have been removed, and made again.
                self.eyes = Eyes::open(&self.store.folder).ok();
            }
            self.hear(news);
        }
    }

    /// Until there are news. False: it is to end.
    fn wait(&self) -> bool {
        let patience = match (&self.eyes, self.dying.is_empty()) {
            (_, false) => Some(DYING),
            (None, true) => Some(BLIND),
            (Some(_), true) => None,
        };
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let mut files = vec![PollFd::new(&self.stopped, PollFlags::IN)];
        files.extend(self.eyes.as_ref().map(|eyes| PollFd::new(eyes, PollFlags::IN)));
        match poll(&mut files, patience.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Nothing can be waited for any more: the polls of the waiters remain.
            Err(_) => return false,
        }
        files.first().is_some_and(|stop| stop.revents().is_empty())
    }

    fn hear(&mut self, news: News) {
        if let Some(session) = self.store.present_session()
            && (news.everything || news.blinded || news.sessions.contains(&session.id))
            && !session.stands().unwrap_or(true)
        {
            tracing::warn!(folder = ?self.store.folder.root(), "the session's file was removed: what it held is lost");
            self.store.locals.ring_all();
        }
        self.dying.extend(news.sessions.into_iter().map(|session| (session, 0)));
        let anybody_died = self.see_who_died();
        if news.everything || news.blinded {
            return self.look_at_all();
        }
        if anybody_died {
            self.store.locals.awaited().iter().for_each(|place| self.look_at(place));
        }
        for place in news.names.iter().filter_map(|key| self.store.locals.place(key)) {
            self.look_at(&place);
        }
    }

    /// True if one did.
    fn see_who_died(&mut self) -> bool {
        let before = self.dead.len();
        let (store, dead) = (&self.store, &mut self.dead);
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

    fn look_at(&self, place: &Place) {
        let record = self.store.read(place).ok().map(|mut record| {
            record.without(self.dead.as_slices().0);
            record.without(self.dead.as_slices().1);
            record
        });
        self.store.locals.hear(place, record.as_ref());
    }

    /// As if all had changed.
    fn look_at_all(&self) {
        for place in self.store.locals.places() {
            self.store.locals.hear(&place, self.store.read_living(&place).ok().as_ref());
        }
    }
}
