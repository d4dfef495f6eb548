//! Shows the progress of a run: a bar on a terminal, a line for each case elsewhere.

use std::{
    io::{IsTerminal as _, stderr},
    sync::{Mutex, PoisonError},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::run::Progress;

/// Shows the progress to a person, or to a log.
#[derive(Debug)]
pub(crate) struct Shown {
    bar: ProgressBar,
    /// The last case, without its round and store, because a log has one line for each case.
    last: Mutex<String>,
    is_terminal: bool,
}

impl Shown {
    pub(crate) fn new() -> Self {
        let is_terminal = stderr().is_terminal();
        let bar = if is_terminal { ProgressBar::new(0) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}")
        {
            bar.set_style(style);
        }
        Self { bar, last: Mutex::default(), is_terminal }
    }
}

impl Progress for Shown {
    fn begins(&self, steps: u64) {
        self.bar.set_length(steps);
    }

    fn step(&self, what: &str) {
        if self.is_terminal {
            self.bar.set_message(what.to_owned());
            self.bar.inc(1);
            return;
        }
        let case = what.split(", round ").next().unwrap_or(what);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != case {
            case.clone_into(&mut last);
            eprintln!("{case}");
        }
    }

    fn warns(&self, what: &str) {
        eprintln!("warning: {what}");
    }

    fn ends(&self) {
        self.bar.finish_and_clear();
    }
}
