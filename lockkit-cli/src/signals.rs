//! The signals that lockkit hears.

use std::{
    cell::{Cell, RefCell},
    fmt, fs,
    future::poll_fn,
    task::Poll,
};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::error::{Error, Result};

const HEARD: [Signal; 10] = [
    Signal::CHILD,
    Signal::CONT,
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::TSTP,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
];

/// Hears each signal from the moment this value is made. A program makes only one, so that no
/// signal is lost between two values.
pub(crate) struct Signals {
    streams: RefCell<Vec<(Signal, unix::Signal)>>,
    last_end: Cell<Option<Signal>>,
}

impl Signals {
    /// Begins to listen. A signal that lockkit's caller had ignored, as nohup does, stays ignored,
    /// for the child too.
    pub(crate) fn listen() -> Result<Self> {
        let ignored = ignored();
        let listen = |signal: Signal| {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw()));
            stream
                .map(|stream| (signal, stream))
                .map_err(|error| Error::of("could not listen for signals", error))
        };
        // Without SIGCHLD lockkit would not notice the child's end.
        let wanted =
            HEARD.into_iter().filter(|signal| *signal == Signal::CHILD || !is_in(ignored, *signal));
        let streams = wanted.map(listen).collect::<Result<_>>()?;
        Ok(Self { streams: RefCell::new(streams), last_end: Cell::new(None) })
    }

    /// Waits for a signal. Cancel safe.
    pub(crate) async fn next(&self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in self.streams.borrow_mut().iter_mut() {
                if stream.poll_recv(context).is_ready() {
                    if ends(*signal) {
                        self.last_end.set(Some(*signal));
                    }
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for a signal that ends a program which waits for something.
    pub(crate) async fn end(&self) -> Signal {
        loop {
            let signal = self.next().await;
            if ends(signal) {
                return signal;
            }
        }
    }

    /// The last signal so far that ends a program, even if lockkit passed it on to the child.
    pub(crate) fn last_end(&self) -> Option<Signal> {
        self.last_end.get()
    }
}

/// Whether the signal ends a program.
pub(crate) fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::HUP | Signal::INT | Signal::QUIT | Signal::TERM)
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

/// The ignored signals, as a bit set. To ask the kernel for a disposition takes unsafe code.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(set: u64, signal: Signal) -> bool {
    let bit = u32::try_from(signal.as_raw() - 1).ok().and_then(|shift| 1_u64.checked_shl(shift));
    bit.is_some_and(|bit| set & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_count_from_one() {
        assert!(is_in(0b1, Signal::HUP));
        assert!(is_in(1 << 14, Signal::TERM));
        assert!(!is_in(!(1 << 14), Signal::TERM));
    }
}
