//! A wake-up by the store: decides whether the waiter or the background task acts on it.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use crate::sync::AtomicBool;

/// Before the grant a wake-up is for the waiter; after it, for the background task. The wake-up and
/// the grant each write before they read. So a wake-up at the moment of the grant always reaches
/// one of the two.
#[derive(Debug)]
pub(in crate::driver) struct WakeFlag {
    /// A wake-up came, and no attempt or renewal has acted on it yet.
    woken: AtomicBool,
    granted: AtomicBool,
}

/// The task that acts on a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) enum WakeTarget {
    Keeper,
    /// No task: an earlier wake-up is still pending, and covers this one.
    Nobody,
    Waiter,
}

impl WakeFlag {
    pub(in crate::driver) fn new() -> Self {
        Self { woken: AtomicBool::new(false), granted: AtomicBool::new(false) }
    }

    pub(in crate::driver) fn wake(&self) -> WakeTarget {
        let known = self.woken.swap(true, SeqCst);
        match (self.granted.load(SeqCst), known) {
            (false, _) => WakeTarget::Waiter,
            (true, false) => WakeTarget::Keeper,
            (true, true) => WakeTarget::Nobody,
        }
    }

    /// From here on a wake-up asks for a renewal. The first [look](Self::is_woken) after this finds
    /// a wake-up that came during the attempt.
    pub(in crate::driver) fn grant(&self) {
        self.granted.store(true, SeqCst);
    }

    pub(in crate::driver) fn is_granted(&self) -> bool {
        self.granted.load(Relaxed)
    }

    pub(in crate::driver) fn is_woken(&self) -> bool {
        self.woken.load(SeqCst)
    }

    /// An attempt begins, and covers all wake-ups before it.
    pub(in crate::driver) fn begin_attempt(&self) {
        self.woken.store(false, Relaxed);
    }

    /// A renewal begins, and covers all wake-ups before it; true if there was one.
    pub(in crate::driver) fn begin_renewal(&self) -> bool {
        self.woken.swap(false, AcqRel)
    }

    /// The renewal did not ask the store, so the wake-ups that it took are pending again.
    pub(in crate::driver) fn put_back(&self, woken: bool) {
        self.woken.fetch_or(woken, AcqRel);
    }
}

#[cfg(all(test, lockkit_loom))]
mod models {
    use loom::{
        sync::{
            Arc, Mutex,
            atomic::{AtomicBool as Flag, Ordering::Relaxed},
        },
        thread,
    };

    use super::*;
    use crate::sync::check;

    /// The part of the agenda that matters for wake-ups.
    struct Agenda {
        wake: WakeFlag,
        state: Mutex<State>,
        /// The change in the store that the wake-ups are about.
        news: Flag,
    }

    #[derive(Default)]
    struct State {
        /// `None`: no timer is in. Otherwise: whether it is due at once.
        timer: Option<bool>,
    }

    impl Agenda {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                wake: WakeFlag::new(),
                state: Mutex::default(),
                news: Flag::new(false),
            })
        }

        fn wake(&self) -> WakeTarget {
            self.news.store(true, Relaxed);
            let told = self.wake.wake();
            if told == WakeTarget::Keeper {
                // As `Agenda::hasten`: a renewal in flight sees it when it ends.
                let mut state = self.state.lock().unwrap();
                if state.timer.is_some() {
                    state.timer = Some(true);
                }
            }
            told
        }

        fn insert(&self) {
            let mut state = self.state.lock().unwrap();
            state.timer = Some(self.wake.is_woken());
        }

        fn is_due_at_once(&self) -> bool {
            self.state.lock().unwrap().timer == Some(true)
        }

        /// A renewal that is due; true if it saw the news.
        fn renew(&self, looks: bool) -> bool {
            assert!(self.state.lock().unwrap().timer.take().is_some());
            let woken = self.wake.begin_renewal();
            let seen = looks && self.news.load(Relaxed);
            if !looks {
                self.wake.put_back(woken);
            }
            self.insert();
            seen
        }
    }

    /// A wake-up during the attempt must not swallow a later one either.
    #[test]
    fn loom_c8_a_wake_up_around_the_grant_reaches_the_waiter_or_makes_the_first_renewal_due() {
        check(|| {
            let agenda = Agenda::new();
            let wakes = [(); 2].map(|()| {
                let agenda = Arc::clone(&agenda);
                thread::spawn(move || agenda.wake())
            });
            agenda.wake.grant();
            agenda.insert();
            let told = wakes.map(|wake| wake.join().unwrap());
            assert!(
                agenda.is_due_at_once(),
                "{told:?}: the grant looks no more, and no renewal is due"
            );
        });
    }

    #[test]
    fn loom_c10_a_wake_up_during_a_renewal_is_seen_by_it_or_makes_the_next_one_due() {
        for looks in [true, false] {
            check(move || {
                let agenda = Agenda::new();
                agenda.wake.grant();
                agenda.insert();
                let wakes = [(); 2].map(|()| {
                    let agenda = Arc::clone(&agenda);
                    thread::spawn(move || agenda.wake())
                });
                let seen = agenda.renew(looks);
                let told = wakes.map(|wake| wake.join().unwrap());
                assert!(seen || agenda.is_due_at_once(), "{told:?}: nobody looks after it");
            });
        }
    }
}
