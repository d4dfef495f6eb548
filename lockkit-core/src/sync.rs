//! The atomic types that threads share without a lock. The models of [loom](https://docs.rs/loom),
//! which try every interleaving, replace them by loom's types: with `--cfg lockkit_loom`, and in
//! tests only.

#[cfg(not(all(test, lockkit_loom)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize};

#[cfg(not(all(test, lockkit_loom)))]
pub(crate) use futures_util::task::AtomicWaker;
#[cfg(all(test, lockkit_loom))]
pub(crate) use loom::future::AtomicWaker;

#[cfg(all(test, lockkit_loom))]
pub(crate) use self::model::{AtomicBool, AtomicUsize, check};

/// Adds fences to loom's atomics, because loom treats `SeqCst` as `AcqRel` but respects fences. A
/// processor without `SeqCst` accesses builds them from fences too: one before each access, or one
/// after each. Code that is right by the language's rules is right both ways, so each model runs in
/// both. A missing `SeqCst` fails in one of them.
#[cfg(all(test, lockkit_loom))]
mod model {
    use std::cell::Cell;

    use loom::sync::atomic::{self, Ordering, fence};

    std::thread_local! {
        // loom runs all threads of a model on one thread.
        static FENCE_FIRST: Cell<bool> = const { Cell::new(false) };
    }

    /// Tries every interleaving of the model.
    pub(crate) fn check(model: impl Fn() + Clone + Send + Sync + 'static) {
        for first in [false, true] {
            FENCE_FIRST.set(first);
            loom::model(model.clone());
        }
    }

    fn fenced<T>(order: Ordering, access: impl FnOnce() -> T) -> T {
        let is_fenced = order == Ordering::SeqCst;
        let first = FENCE_FIRST.get();
        if is_fenced && first {
            fence(Ordering::SeqCst);
        }
        let seen = access();
        if is_fenced && !first {
            fence(Ordering::SeqCst);
        }
        seen
    }

    #[derive(Debug)]
    pub(crate) struct AtomicBool(atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> Self {
            Self(atomic::AtomicBool::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            fenced(order, || self.0.load(order))
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            fenced(order, || self.0.store(value, order));
        }

        pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
            fenced(order, || self.0.swap(value, order))
        }

        pub(crate) fn fetch_or(&self, value: bool, order: Ordering) -> bool {
            fenced(order, || self.0.fetch_or(value, order))
        }
    }

    #[derive(Debug)]
    pub(crate) struct AtomicUsize(atomic::AtomicUsize);

    impl AtomicUsize {
        pub(crate) fn new(value: usize) -> Self {
            Self(atomic::AtomicUsize::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> usize {
            fenced(order, || self.0.load(order))
        }

        pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
            fenced(order, || self.0.fetch_add(value, order))
        }

        pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
            fenced(order, || self.0.fetch_sub(value, order))
        }
    }
}
