//! A run as several processes side by side.
//!
//! Most of a run is waiting for leases, and one process can't wait for two cases at once: the leak oracle counts what the
//! whole process has open.

use std::{
    env,
    io::{self, BufReader, Read as _, Write as _},
    process::{Child, Command, ExitCode, Stdio},
    thread,
};

use libtest_mimic::Arguments;

/// Tells a lane that it is one: `2/3` is the second of three.
const VARIABLE: &str = "LOCKKIT_CONFORMANCE_LANE";

/// Runs this program so many times at once, each time with its own part of the cases, and passes on what they print. To be
/// called before any store is started: each lane starts its own.
///
/// `None`: this process is to run cases itself. It is a lane, or has been asked for something that is not worth splitting, a
/// list or a single case.
///
/// # Errors
/// The program can't be started again.
pub fn in_lanes(count: usize) -> io::Result<Option<ExitCode>> {
    if env::var_os(VARIABLE).is_some() {
        thread::spawn(end_with_the_parent);
        return Ok(None);
    }
    let arguments = Arguments::from_args();
    if count < 2 || arguments.list || arguments.exact {
        return Ok(None);
    }
    let mut lanes = Vec::new();
    for index in 1..=count {
        let mut lane = Command::new(env::current_exe()?)
            .args(env::args_os().skip(1))
            .env(VARIABLE, format!("{index}/{count}"))
            // For as long as this process lives: see `end_with_the_parent`.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let printer = lane.stdout.take().map(|output| thread::spawn(|| pass_on(BufReader::new(output))));
        lanes.push((lane, printer));
    }
    let mut all_passed = true;
    for (lane, printer) in &mut lanes {
        all_passed &= lane.wait_keeping_stdin()?;
        if let Some(printer) = printer.take() {
            all_passed &= printer.join().is_ok_and(|printed| printed.is_ok());
        }
    }
    Ok(Some(if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Whether the case at this place of the plan is this process's to run.
pub(crate) fn is_ours(place: usize) -> bool {
    env::var(VARIABLE).map_or(true, |lane| is_of_lane(&lane, place))
}

/// A lane that can't be read is told apart from one without cases: it has them all.
fn is_of_lane(lane: &str, place: usize) -> bool {
    let parsed =
        lane.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    parsed.is_none_or(|(index, count): (usize, usize)| count == 0 || place % count == index % count)
}

/// Whole lines, so that those of the lanes don't mix.
fn pass_on(output: impl io::BufRead) -> io::Result<()> {
    for line in output.split(b'\n') {
        let mut line = line?;
        line.push(b'\n');
        io::stdout().lock().write_all(&line)?;
    }
    Ok(())
}

/// Nobody would read what a lane without its parent finds, and its servers would stay.
fn end_with_the_parent() {
    let _ = io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(1);
}

trait WaitKeepingStdin {
    fn wait_keeping_stdin(&mut self) -> io::Result<bool>;
}

impl WaitKeepingStdin for Child {
    /// [`Child::wait`] closes standard input first, which would end the lane.
    fn wait_keeping_stdin(&mut self) -> io::Result<bool> {
        let stdin = self.stdin.take();
        let status = self.wait();
        drop(stdin);
        Ok(status?.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_is_in_one_lane() {
        for count in 1..5 {
            let lanes: Vec<_> = (1..=count).map(|index| format!("{index}/{count}")).collect();
            for place in 0..20 {
                assert_eq!(
                    lanes.iter().filter(|lane| is_of_lane(lane, place)).count(),
                    1,
                    "{place} of {count}"
                );
            }
        }
    }

    #[test]
    fn a_lane_that_makes_no_sense_leaves_nothing_out() {
        for lane in ["", "1", "x/2", "1/0", "-1/2"] {
            assert!((0..4).all(|place| is_of_lane(lane, place)), "{lane}");
        }
    }
}
