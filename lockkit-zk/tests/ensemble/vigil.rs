//! Asks guards again and again whether they are held, on a thread that no runtime can delay.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use lockkit_core::LockGuard;
use tokio::task::JoinHandle;

const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// Watches some guards.
pub(crate) struct Vigil {
    guards: Vec<Arc<LockGuard>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    told: Vec<JoinHandle<Instant>>,
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

/// The observations of one guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The time before the last look that found the lock held. So the lock was held at this
    /// instant, whichever thread was scheduled late.
    pub(crate) held: Instant,
    /// The time after the first look that did not.
    pub(crate) lost: Option<Instant>,
}

impl Vigil {
    /// Begins to look, and to listen to the loss signals on this runtime.
    pub(crate) fn over(guards: Vec<impl Into<Arc<LockGuard>>>) -> Self {
        let guards: Vec<Arc<LockGuard>> = guards.into_iter().map(Into::into).collect();
        let told = guards.iter().map(|guard| {
            let lost = guard.lost();
            tokio::spawn(async move {
                lost.wait().await;
                Instant::now()
            })
        });
        let told = told.collect();
        let seen =
            Arc::new(Mutex::new(vec![Seen { held: Instant::now(), lost: None }; guards.len()]));
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let guards = guards.clone();
            let seen = Arc::clone(&seen);
            let over = Arc::clone(&over);
            move || {
                while !over.load(Relaxed) {
                    for (index, guard) in guards.iter().enumerate() {
                        let before = Instant::now();
                        let held = guard.is_held();
                        let after = Instant::now();
                        let mut seen = lock(&seen);
                        if held {
                            assert!(
                                seen[index].lost.is_none(),
                                "C3: once false, is_held() stays false"
                            );
                            seen[index].held = before;
                        } else {
                            seen[index].lost.get_or_insert(after);
                        }
                    }
                    thread::sleep(LOOK_AGAIN);
                }
            }
        });
        Self { guards, seen, told, over, thread: Some(thread) }
    }

    pub(crate) fn guard(&self, index: usize) -> &LockGuard {
        &self.guards[index]
    }

    pub(crate) fn seen(&self, index: usize) -> Seen {
        lock(&self.seen)[index]
    }

    /// When a loss signal fired.
    pub(crate) async fn told(&mut self, index: usize) -> Instant {
        (&mut self.told[index]).await.expect("it waits for a signal, no more")
    }

    /// Ends the watch, and returns the guards.
    pub(crate) fn end(mut self) -> Vec<LockGuard> {
        self.stop();
        let guards = std::mem::take(&mut self.guards).into_iter();
        guards.map(|guard| Arc::into_inner(guard).expect("the thread has ended")).collect()
    }

    fn stop(&mut self) {
        self.over.store(true, Relaxed);
        self.told.iter().for_each(JoinHandle::abort);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a guard that is lost stays lost");
        }
    }
}

impl Drop for Vigil {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
    }
}

fn lock(seen: &Mutex<Vec<Seen>>) -> MutexGuard<'_, Vec<Seen>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
