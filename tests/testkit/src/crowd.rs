//! Starts programs side by side, and listens to all of them.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

/// The longest wait for a line.
const PATIENCE: Duration = Duration::from_secs(60);

/// Programs that run at once, and the lines that they write. They are killed when this value is
/// dropped.
#[derive(Debug)]
pub struct Crowd {
    programs: Vec<Child>,
    lines: Receiver<(usize, String)>,
}

impl Crowd {
    /// Starts each of these programs. They are numbered from 0.
    ///
    /// # Errors
    /// The system can't start one of them.
    pub fn start(commands: impl IntoIterator<Item = Command>) -> Result<Self> {
        let (said, lines) = mpsc::channel();
        // With the value in place, an error kills the programs that were started before.
        let mut crowd = Self { programs: Vec::new(), lines };
        for (number, mut command) in commands.into_iter().enumerate() {
            let mut program = command.stdout(Stdio::piped()).spawn()?;
            let output = BufReader::new(program.stdout.take().context("it has no output")?);
            crowd.programs.push(program);
            let said = said.clone();
            // Ends with the output, or when the receiver is dropped.
            thread::spawn(move || {
                output.lines().map_while(Result::ok).try_for_each(|line| said.send((number, line)))
            });
        }
        Ok(crowd)
    }

    /// The next line, and the number of the program that wrote it.
    ///
    /// # Errors
    /// All have ended, or they write nothing for a minute.
    pub fn hear(&self) -> Result<(usize, String)> {
        self.lines.recv_timeout(PATIENCE).context("no program says anything")
    }

    /// The process id of a program.
    #[must_use]
    pub fn id(&self, number: usize) -> u32 {
        self.programs[number].id()
    }

    /// Kills a program (SIGKILL).
    ///
    /// # Errors
    /// It had ended already.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        let program = &mut self.programs[number];
        program.kill()?;
        let status = program.wait()?;
        ensure!(status.code().is_none(), "program {number} ended by itself before: {status}");
        Ok(())
    }

    /// Waits until a program has ended by itself.
    ///
    /// # Errors
    /// It failed.
    pub fn ends(&mut self, number: usize) -> Result<()> {
        let status = self.programs[number].wait()?;
        ensure!(status.success(), "program {number} failed: {status}");
        Ok(())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for program in &mut self.programs {
            // It may have ended already.
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}
