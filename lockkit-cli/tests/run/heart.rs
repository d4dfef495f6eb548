//! A "heart": a process that records until when it lived.

use std::{
    env,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
    process::{self, Command},
    time::Duration,
};

use lockkit_fixture::is_alive;
use nix::sys::signal::{SigSet, Signal};
use rustix::{
    process::{Pid, setsid},
    time::{ClockId, clock_gettime},
};

use crate::{
    procfs::{Busy, watchdog_of},
    support::{Place, until},
};

/// Names the folder of its files.
const FOLDER: &str = "LOCKKIT_TEST_HEART";
/// How many nanoseconds before the deadline the measurement begins. A test that gets no processor
/// for a part of that time still measures all that matters.
const NEAR: u64 = 1_000_000_000;
/// A timer of the kernel may be late by this much. lockkit and its watchdog begin to kill more than
/// twice this time before the deadline.
const ROOM: Duration = Duration::from_millis(25);
/// If this is set, the process is the grandchild.
const LEAF: &str = "LOCKKIT_TEST_HEART_LEAF";

/// The nanoseconds of the clock of deadlines.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// The heart's side. It beats for ever, beside a grandchild in a session of its own. Both ignore
/// SIGTERM.
pub(crate) fn beat_if_told() -> bool {
    let Some(folder) = env::var_os(FOLDER) else { return false };
    let folder = Path::new(&folder);
    SigSet::from(Signal::SIGTERM).thread_block().unwrap();
    let name = if env::var_os(LEAF).is_some() {
        setsid().unwrap();
        "leaf"
    } else {
        #[expect(clippy::zombie_processes, reason = "it ends after this one, or with it")]
        let _leaf = Command::new(env::current_exe().unwrap()).env(LEAF, "1").spawn().unwrap();
        if let Some(file) = env::var_os("LOCKKIT_DEADLINE_FILE") {
            fs::write(folder.join("deadline-file"), format!("{}\n", file.to_str().unwrap()))
                .unwrap();
        }
        "child"
    };
    let beats = File::create(folder.join(name)).unwrap();
    beats.write_at(format!("{:10}\n", process::id()).as_bytes(), 0).unwrap();
    loop {
        beats.write_at(format!("{:20}\n", now()).as_bytes(), 11).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How both ended before their deadline.
pub(crate) struct InTime {
    pub(crate) deadline: u64,
    pub(crate) last: u64,
    /// The longest time between two looks of the test. It is that long if the machine stops.
    pub(crate) gap: Duration,
    /// Measures lockkit since shortly before.
    pub(crate) busy: Busy,
}

/// A child and its grandchild, as the test sees them.
pub(crate) struct Hearts<'a>(&'a Place);

impl<'a> Hearts<'a> {
    /// The command that becomes the child; it follows lockkit's own arguments.
    pub(crate) fn command() -> String {
        env::current_exe().unwrap().to_str().unwrap().to_owned()
    }

    /// Sets the environment that makes the command a heart.
    pub(crate) fn tell(command: &mut Command, place: &Place) {
        command.env(FOLDER, place.folder.path());
    }

    /// Waits until both beat.
    pub(crate) fn of(place: &'a Place) -> Self {
        let hearts = Self(place);
        for name in ["child", "leaf"] {
            until(name, || hearts.read(name));
        }
        hearts
    }

    /// The number of the process, and its last beat.
    fn read(&self, name: &str) -> Option<(i32, u64)> {
        let text = fs::read_to_string(self.0.path(name)).ok()?;
        let mut lines = text.lines();
        Some((lines.next()?.trim().parse().ok()?, lines.next()?.trim().parse().ok()?))
    }

    pub(crate) fn are_gone(&self) -> bool {
        ["child", "leaf"].into_iter().all(|name| !is_alive(self.read(name).unwrap().0))
    }

    /// The last beat of both, once they have ended.
    pub(crate) fn last_beat(&self) -> u64 {
        until("the end of both hearts", || self.are_gone().then_some(()));
        self.beat()
    }

    fn beat(&self) -> u64 {
        ["child", "leaf"].into_iter().map(|name| self.read(name).unwrap().1).max().unwrap()
    }

    /// Asserts that both end before their deadline. lockkit or its watchdog kills them. The
    /// bound is later by the time for which they ran or waited for a processor.
    pub(crate) fn assert_in_time(&self, lockkit: Pid) -> InTime {
        let lockkit = lockkit.as_raw_nonzero().get();
        let watchdog = until("the watchdog", || watchdog_of(lockkit));
        let mut deadline = 0;
        let mut looked = now();
        let mut gap = 0;
        // The test may see the last renewal a little late.
        let mut is_over = |close| {
            gap = gap.max(now() - looked);
            looked = now();
            deadline = self.deadline().unwrap_or(0).max(deadline);
            (deadline > 0 && (now() + close >= deadline || self.are_gone())).then_some(())
        };
        until("the deadline", || is_over(NEAR));
        let mut busy = [lockkit, watchdog].map(Busy::of);
        until("the end of both hearts", || {
            let gone = is_over(0).filter(|()| self.are_gone());
            // Whichever process killed the hearts waits no more.
            busy.iter_mut().for_each(Busy::measure);
            gone
        });
        let last = self.beat();
        let [ours, of_watchdog] = [busy[0].time(), busy[1].time()];
        let late = ours.max(of_watchdog).saturating_sub(ROOM);
        assert!(
            last < deadline + u64::try_from(late.as_nanos()).unwrap(),
            "they lived for {} µs too long; lockkit was busy for {ours:?}, its watchdog for \
             {of_watchdog:?}",
            (last - deadline) / 1_000
        );
        let [busy, _] = busy;
        InTime { deadline, last, gap: Duration::from_nanos(gap), busy }
    }

    /// Removes the files, to make room for other hearts.
    pub(crate) fn forget(self) {
        for name in ["child", "leaf", "deadline-file"] {
            fs::remove_file(self.0.path(name)).unwrap();
        }
    }

    /// The deadline as the command can read it, while it lives.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let file = self.0.text("deadline-file");
        fs::read_to_string(file.trim()).ok()?.lines().next()?.parse().ok()
    }
}
