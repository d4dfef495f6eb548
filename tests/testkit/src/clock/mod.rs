//! A wall clock for one server, which a test can set.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

const SOURCE: &str = include_str!("wall_clock.c");
/// Gives the library the path of the file with the shift.
const VARIABLE: &str = "LOCKKIT_WALL_CLOCK";

/// The direction in which a clock is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockDirection {
    /// Into the past.
    Back,
    /// Into the future.
    Forward,
}

/// The wall clock of one server process, which may differ from the clock of the machine.
///
/// Only the `CLOCK_REALTIME` family is shifted, because only these clocks can be set. Monotonic
/// clocks continue as ever, and with them the timers of a server. If the kernel keeps the end of a
/// wait as a wall-clock time, that wait is not shifted: for example `pthread_cond_timedwait`.
#[derive(Debug)]
pub struct WallClock {
    library: PathBuf,
    file: PathBuf,
    shift: Mutex<Shift>,
}

#[derive(Debug)]
struct Shift {
    file: File,
    nanoseconds: i64,
}

impl WallClock {
    /// Builds the library that shifts the clock in `folder`, which must outlive the server.
    ///
    /// # Errors
    /// When there is no C compiler (the text says how to get one), or it fails.
    pub fn make(folder: &Path) -> Result<Self> {
        let library = folder.join("wall_clock.so");
        let source = folder.join("wall_clock.c");
        fs::write(&source, SOURCE)?;
        compile(&env::var_os("CC").unwrap_or_else(|| "cc".into()), &source, &library)?;
        let path = folder.join("wall_clock");
        let mut shift = Shift { file: File::create(&path)?, nanoseconds: 0 };
        shift.set(0)?;
        Ok(Self { library, file: path, shift: Mutex::new(shift) })
    }

    /// The command that runs the server under this clock. This program and its arguments come
    /// first, and those of the server follow.
    #[must_use]
    pub fn wrapper(&self) -> Vec<OsString> {
        let assign =
            |name: &str, path: &Path| [OsStr::new(name), path.as_os_str()].join(OsStr::new("="));
        vec!["env".into(), assign("LD_PRELOAD", &self.library), assign(VARIABLE, &self.file)]
    }

    /// Sets the difference between the server's clock and the machine's. The server may be paused.
    ///
    /// # Errors
    /// When the distance is over 292 years, or the file of the clock can't be written.
    pub fn set_offset(&self, distance: Duration, direction: ClockDirection) -> Result<()> {
        self.shift.lock().unwrap_or_else(PoisonError::into_inner).set(signed(distance, direction)?)
    }

    /// Moves the server's clock by `distance` from where it is now.
    ///
    /// # Errors
    /// As for [`set_offset`](Self::set_offset).
    pub fn step(&self, distance: Duration, direction: ClockDirection) -> Result<()> {
        let mut shift = self.shift.lock().unwrap_or_else(PoisonError::into_inner);
        let stepped = shift.nanoseconds.checked_add(signed(distance, direction)?);
        shift.set(stepped.context("no clock goes that far")?)
    }
}

impl Shift {
    fn set(&mut self, nanoseconds: i64) -> Result<()> {
        // Written twice, because the reader reads again until both copies are equal.
        let bytes = [nanoseconds.to_ne_bytes(); 2];
        self.file
            .write_all_at(bytes.as_flattened(), 0)
            .context("the clock's file can't be written")?;
        self.nanoseconds = nanoseconds;
        Ok(())
    }
}

fn signed(distance: Duration, direction: ClockDirection) -> Result<i64> {
    let distance = i64::try_from(distance.as_nanos()).context("no clock goes that far")?;
    Ok(match direction {
        ClockDirection::Back => -distance,
        ClockDirection::Forward => distance,
    })
}

fn compile(compiler: &OsStr, source: &Path, library: &Path) -> Result<()> {
    let mut command = Command::new(compiler);
    command
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(library)
        .arg(source);
    let output = command.output().with_context(|| {
        format!(
            "a server with a clock of its own needs a C compiler, and {} can't be started. This command installs \
             one: apt-get install --no-install-recommends gcc libc6-dev",
            compiler.display()
        )
    })?;
    if !output.status.success() {
        bail!(
            "{command:?} failed ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// The seconds since 1970, by a program under the clock.
    fn seconds(clock: &WallClock) -> i64 {
        let wrapper = clock.wrapper();
        let output =
            Command::new(&wrapper[0]).args(&wrapper[1..]).args(["date", "+%s"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }

    fn assert_near(clock: &WallClock, offset: i64) {
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let late = seconds(clock) - i64::try_from(real).unwrap() - offset;
        assert!((0..=30).contains(&late), "{late} s from {offset} s");
    }

    #[test]
    fn steps_add_up_and_an_offset_is_from_the_real_time() {
        let dir = tempfile::tempdir().unwrap();
        let clock = WallClock::make(dir.path()).unwrap();
        assert_near(&clock, 0);
        clock.step(HOUR, ClockDirection::Forward).unwrap();
        clock.step(3 * HOUR, ClockDirection::Back).unwrap();
        assert_near(&clock, -2 * 3600);
        clock.set_offset(HOUR, ClockDirection::Forward).unwrap();
        assert_near(&clock, 3600);
        clock.step(Duration::MAX, ClockDirection::Forward).unwrap_err();
        assert_near(&clock, 3600);
    }

    #[test]
    fn a_program_that_can_not_see_the_clock_does_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let clock = WallClock::make(dir.path()).unwrap();
        fs::remove_file(&clock.file).unwrap();
        let wrapper = clock.wrapper();
        let output = Command::new(&wrapper[0]).args(&wrapper[1..]).arg("true").output().unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("No such file"), "{output:?}");
    }

    #[test]
    fn a_missing_compiler_is_named_with_its_package() {
        let nowhere = Path::new("nowhere");
        let error =
            compile(OsStr::new("lockkit-no-such-cc"), nowhere, nowhere).unwrap_err().to_string();
        assert!(
            error.contains("lockkit-no-such-cc") && error.contains("apt-get install"),
            "{error}"
        );
    }
}
