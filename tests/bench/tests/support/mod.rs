//! Starts the program as a user does, and finds its child processes in the system.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The bound for work that takes a moment, or longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_lockkit-bench")
}

/// Starts the program, with its output in `folder`.
pub(crate) fn start(arguments: &[&str], folder: &Path) -> Child {
    let output = |name: &str| Stdio::from(fs::File::create(folder.join(name)).unwrap());
    let mut command = Command::new(program());
    command.args(arguments).arg("--out").arg(folder.join("out"));
    command.stdin(Stdio::null()).stdout(output("stdout")).stderr(output("stderr"));
    command.spawn().unwrap()
}

/// All output of the program.
pub(crate) fn said(folder: &Path) -> String {
    ["stdout", "stderr"].map(|name| fs::read_to_string(folder.join(name)).unwrap()).concat()
}

/// The processes that the program has started, as soon as there are any.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    until("it starts a process", || {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
            .unwrap_or_default();
        let others = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let others =
            others.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        let all: Vec<String> = others.chain([children]).collect();
        let pids: Vec<u32> = all
            .iter()
            .flat_map(|line| line.split_whitespace())
            .map(|pid| pid.parse().unwrap())
            .collect();
        (!pids.is_empty()).then_some(pids)
    })
}

/// The `cmdline` or `environ` of a process, which other users may read.
pub(crate) fn shown_of(pid: u32, what: &str) -> String {
    let read = fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    String::from_utf8_lossy(&read).into_owned()
}

/// Asks until there is an answer.
pub(crate) fn until<T>(what: &str, ask: impl Fn() -> Option<T>) -> T {
    lockkit_fixture::until(PATIENCE, what, ask)
}
