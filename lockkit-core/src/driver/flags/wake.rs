//! A hint of the store to look again, and who looks.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use crate::sync::AtomicBool;

/// Before the grant a hint is for the waiter, after it for the keeper. Ringing and the grant each
/// write before they read, so that a hint which comes in the very moment is not taken for the
/// other's by both.
#[derive(Debug)]
pub(in crate::driver) struct WakeFlag {
    /// A hint came that no attempt or renewal has looked after yet.
    rung: AtomicBool,
    granted: AtomicBool,
}

/// Who is to be told of a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) enum WakeTarget {
    Keeper,
    /// An earlier hint is still to be looked after, and this one with it.
    Nobody,
    Waiter,
}

impl WakeFlag {
    pub(in crate::driver) fn new() -> Self {
        Self { rung: AtomicBool::new(false), granted: AtomicBool::new(false) }
    }

    pub(in crate::driver) fn ring(&self) -> WakeTarget {
        let known = self.rung.swap(true, SeqCst);
        match (self.granted.load(SeqCst), known) {
            (false, _) => WakeTarget::Waiter,
            (true, false) => WakeTarget::Keeper,
            (true, true) => WakeTarget::Nobody,
        }
    }

    /// From here on a hint asks for a renewal. One that came during the attempt is found by the
    /// first [look](Self::is_rung) after this.
    pub(in crate::driver) fn grant(&self) {
        self.granted.store(true, SeqCst);
    }

    pub(in crate::driver) fn is_granted(&self) -> bool {
        self.granted.load(Relaxed)
    }

    pub(in crate::driver) fn is_rung(&self) -> bool {
        self.rung.load(SeqCst)
    }

    /// An attempt begins, and looks after what was rung before.
    pub(in crate::driver) fn begin_attempt(&self) {
        self.rung.store(false, Relaxed);
    }

    /// A renewal begins, and looks after what was rung before; true if there was anything.
    pub(in crate::driver) fn begin_renewal(&self) -> bool {
        self.rung.swap(false, AcqRel)
    }

    /// The renewal did not look: what it took still stands, beside what was rung since.
    pub(in crate::driver) fn put_back(&self, rung: bool) {
        self.rung.fetch_or(rung, AcqRel);
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

    /// What the agenda does with it, as far as it matters here.
    struct Agenda {
        hint: WakeFlag,
        state: Mutex<State>,
        /// Something in the store that the hints are about.
        news: Flag,
    }

    #[derive(Default)]
    struct State {
        /// A timer is in, and due at once, or later.
        timer: Option<bool>,
    }

    impl Agenda {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                hint: WakeFlag::new(),
                state: Mutex::default(),
                news: Flag::new(false),
            })
        }

        fn ring(&self) -> WakeTarget {
            self.news.store(true, Relaxed);
            let told = self.hint.ring();
            if told == WakeTarget::Keeper {
                // As `Agenda::hasten`: one in flight sees it when it ends.
                let mut state = self.state.lock().unwrap();
                if state.timer.is_some() {
                    state.timer = Some(true);
                }
            }
            told
        }

        fn insert(&self) {
            let mut state = self.state.lock().unwrap();
            state.timer = Some(self.hint.is_rung());
        }

        fn is_due_at_once(&self) -> bool {
            self.state.lock().unwrap().timer == Some(true)
        }

        /// A renewal that is due; true if it saw the news.
        fn renew(&self, looks: bool) -> bool {
            assert!(self.state.lock().unwrap().timer.take().is_some());
            let rung = self.hint.begin_renewal();
            let seen = looks && self.news.load(Relaxed);
            if !looks {
                self.hint.put_back(rung);
            }
            self.insert();
            seen
        }
    }

    /// An earlier hint that was rung during the attempt must not swallow a later one either.
    #[test]
    fn loom_c8_a_hint_around_the_grant_reaches_the_waiter_or_makes_the_first_renewal_due() {
        check(|| {
            let agenda = Agenda::new();
            let rings = [(); 2].map(|()| {
                let agenda = Arc::clone(&agenda);
                thread::spawn(move || agenda.ring())
            });
            agenda.hint.grant();
            agenda.insert();
            let told = rings.map(|ring| ring.join().unwrap());
            assert!(
                agenda.is_due_at_once(),
                "{told:?}: the grant looks no more, and no renewal is due"
            );
        });
    }

    #[test]
    fn loom_c10_a_hint_during_a_renewal_is_seen_by_it_or_makes_the_next_one_due() {
        for looks in [true, false] {
            check(move || {
                let agenda = Agenda::new();
                agenda.hint.grant();
                agenda.insert();
                let rings = [(); 2].map(|()| {
                    let agenda = Arc::clone(&agenda);
                    thread::spawn(move || agenda.ring())
                });
                let seen = agenda.renew(looks);
                let told = rings.map(|ring| ring.join().unwrap());
                assert!(seen || agenda.is_due_at_once(), "{told:?}: nobody looks after it");
            });
        }
    }
}
