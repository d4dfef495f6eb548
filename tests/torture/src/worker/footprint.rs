//! Counts the tasks and open files of a process, which must have no more of them at its end.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, time::sleep};

/// The time for background tasks to close their files.
const SOON: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
pub(super) struct Footprint {
    pub(super) tasks: u64,
    pub(super) files: u64,
}

impl Footprint {
    pub(super) fn now() -> Self {
        let files = fs::read_dir("/proc/self/fd").map_or(0, |files| {
            files
                .filter(|file| file.as_ref().is_ok_and(|file| !is_of_the_process(&file.path())))
                .count()
        });
        let tasks = Handle::current().metrics().num_alive_tasks();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Self { tasks: count(tasks), files: count(files) }
    }

    /// The tasks and files beyond these, after a time for them to end.
    pub(super) async fn left(self) -> Self {
        let start = Instant::now();
        loop {
            let now = Self::now();
            let left = Self {
                tasks: now.tasks.saturating_sub(self.tasks),
                files: now.files.saturating_sub(self.files),
            };
            if (left.tasks == 0 && left.files == 0) || start.elapsed() > SOON {
                return left;
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

/// The process creates the files that wait for timers and sockets once, at their first use. They
/// live as long as the process.
fn is_of_the_process(file: &Path) -> bool {
    fs::read_link(file).is_ok_and(|target| target.to_string_lossy().starts_with("anon_inode:"))
}
