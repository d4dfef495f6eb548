//! Tests a command on a terminal.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    mem,
    os::fd::OwnedFd,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::{
    Test,
    support::{PATIENCE, Place, Running},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("terminal::a_command_reads_from_it_and_the_shell_gets_it_back", reads),
        ("terminal::ctrl_c_reaches_the_command", interrupt),
        ("terminal::ctrl_c_reaches_a_script_around_it", script),
        ("terminal::a_script_around_it_reads_on", script_reads),
        ("terminal::a_pager_behind_it_keeps_the_terminal", pager),
        ("terminal::ctrl_z_is_answered", suspend),
        ("terminal::a_command_from_the_background_reads_in_the_foreground", foreground),
        ("terminal::a_foreground_job_starts_in_the_foreground", starts_in_foreground),
        (
            "terminal::a_command_that_stops_itself_for_the_terminal_goes_on_in_the_foreground",
            stops_itself,
        ),
        ("terminal::a_wait_is_one_live_line", live),
        ("terminal::grades_of_doctor_have_colors_unless_no_color_is_set", colors),
    ]
}

/// Keys that are typed before the prompt appears may be lost.
const PROMPT: &str = "$ ";

/// A shell with job control in a session of its own, on a terminal of its own.
struct Shell {
    _shell: Running,
    keys: File,
    shown: Arc<Mutex<String>>,
}

impl Shell {
    fn start(place: &Place) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let path = ptsname(&keys, Vec::new()).unwrap();
        let side = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
        let clone = || Stdio::from(OwnedFd::from(side.try_clone().unwrap()));
        let mut command = Command::new("setsid");
        command.args(["--ctty", "bash", "--norc", "--noprofile", "-i"]);
        command.stdin(clone()).stdout(clone()).stderr(clone());
        command.env("LOCKKIT_URL", place.url()).env("PS1", PROMPT).env("TERM", "dumb");
        command.env("L", env!("CARGO_BIN_EXE_lockkit"));
        let shell = Running::start(command);
        let shown = Arc::new(Mutex::new(String::new()));
        let keys = File::from(keys);
        let mut screen = keys.try_clone().unwrap();
        let to = Arc::clone(&shown);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut buffer) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Self { _shell: shell, keys, shown }
    }

    fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for a text on the screen, after all texts of earlier waits.
    fn shows(&self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            {
                let mut shown = self.shown.lock().unwrap();
                if let Some(at) = shown.find(text) {
                    let rest = shown.split_off(at + text.len());
                    return mem::replace(&mut *shown, rest);
                }
                assert!(
                    begun.elapsed() < PATIENCE,
                    "{text:?} does not come; the screen shows {:?}",
                    *shown
                );
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn reads() -> Result<(), Failed> {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    // The terminal echoes the keys, so the answer must differ from them.
    shell.types("$L run job sh -c 'echo re\"\"ady; read x; echo \"got <$x>\"; exit 5'\n");
    shell.shows("ready");
    shell.types("hello\n");
    shell.shows("got <hello>");
    // The shell reads again, and knows the code.
    shell.shows(PROMPT);
    shell.types("echo code=$?\n");
    shell.shows("code=5");
    Ok(())
}

fn interrupt() -> Result<(), Failed> {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.types("$L run job sh -c 'trap \"echo cau\"\"ght; exit 6\" INT; echo re\"\"ady; while :; do sleep 0.05; done'\n");
    shell.shows("ready");
    shell.types("\x03");
    shell.shows("caught");
    shell.shows(PROMPT);
    shell.types("echo code=$?\n");
    shell.shows("code=6");
    shell.types("$L run job sh -c 'echo re\"\"ady; exec sleep 600'\n");
    shell.shows("ready");
    shell.types("\x03");
    shell.shows(PROMPT);
    shell.types("echo code=$?\n");
    shell.shows("code=130");
    Ok(())
}

fn script() -> Result<(), Failed> {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    let script = place.path("script");
    let lines = "$L run job sh -c 'echo ready; exec sleep 600'\necho \"the script goes on\"\n";
    std::fs::write(&script, lines)?;
    shell.types(&format!("dash {}\n", script.display()));
    shell.shows("ready");
    shell.types("\x03");
    let before = shell.shows(PROMPT);
    assert!(!before.contains("goes on"), "{before}");
    shell.types("echo code=$?\n");
    shell.shows("code=130");
    Ok(())
}

/// Only lockkit gives the terminal back to the script.
fn script_reads() -> Result<(), Failed> {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    let script = place.path("script");
    std::fs::write(
        &script,
        "$L run job sh -c 'echo first; read x; echo \"got <$x>\"'\necho second; read y; echo \"then <$y>\"\n",
    )?;
    shell.types(&format!("dash {}\n", script.display()));
    shell.shows("first");
    shell.types("a\n");
    shell.shows("got <a>");
    shell.shows("second");
    shell.types("b\n");
    shell.shows("then <b>");
    Ok(())
}

/// The shell that reads is behind lockkit in the pipeline, in the same process group.
fn pager() -> Result<(), Failed> {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    // Without `exec`, a Ctrl-C that comes while the job's shell starts its child would be lost.
    shell.types("$L run job sh -c 'echo on\"\"e; exec sleep 600' | sh -c 'read x; echo \"re\"ad $x; read y </dev/tty; echo \"key <$y>\"; read z </dev/tty'\n");
    shell.shows("read one");
    shell.types("q\n");
    shell.shows("key <q>");
    shell.types("\x03");
    shell.shows(PROMPT);
    shell.types("echo code=$?\n");
    shell.shows("code=130");
    Ok(())
}

fn suspend() -> Result<(), Failed> {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.types("stty tostop; $L run job sh -c 'echo re\"\"ady; read x; echo \"got <$x>\"'\n");
    shell.shows("ready");
    shell.types("\x1a");
    shell.shows("lockkit continues the stopped command");
    shell.types("on\n");
    shell.shows("got <on>");
    shell.shows(PROMPT);
    shell.types("echo code=$?\n");
    shell.shows("code=0");
    Ok(())
}

/// The shell believes that its job runs, and does not send it SIGCONT.
fn foreground() -> Result<(), Failed> {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.types("$L run job sh -c 'echo re\"\"ady; read x; echo \"got <$x>\"' &\n");
    shell.shows("ready");
    shell.shows("waits for the terminal");
    shell.types("fg\n");
    shell.types("hello\n");
    shell.shows("got <hello>");
    shell.shows(PROMPT);
    shell.types("echo code=$?\n");
    shell.shows("code=0");
    Ok(())
}

/// Catches a lockkit that takes its own watchdog for a neighbour in its process group, until the
/// watchdog has its own session. The race fails in most of these runs.
fn starts_in_foreground() -> Result<(), Failed> {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    let script = place.path("where");
    // The fifth field is the process group, and the eighth is the terminal's foreground group.
    std::fs::write(
        &script,
        "read pid name state parent group session tty foreground rest </proc/$$/stat\n\
         [ $group = $foreground ] && echo in-front || echo behind\n",
    )?;
    for _ in 0..20 {
        shell.types(&format!("$L run job sh {}\n", script.display()));
        let before = shell.shows("in-front");
        assert!(!before.contains("behind"), "{before}");
        shell.shows(PROMPT);
    }
    Ok(())
}

/// The command does as `top` does: it catches SIGTTOU, and sends itself SIGSTOP. Catches a lockkit
/// that expects only SIGTTOU and SIGTTIN, and leaves such a command stopped with the lock held.
fn stops_itself() -> Result<(), Failed> {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.types(
        "$L run job sh -c 'trap \"kill -STOP \\$\\$\" TTOU; kill -TTOU $$; echo went o\"\"n' &\n",
    );
    shell.shows("no terminal");
    shell.types("fg\n");
    shell.shows("went on");
    shell.shows(PROMPT);
    shell.types("echo code=$?\n");
    shell.shows("code=0");
    Ok(())
}

fn live() -> Result<(), Failed> {
    let place = Place::new();
    let mut shell = Shell::start(&place);
    shell.types("stty columns 200; $L run job sleep 600 &\n");
    crate::support::runtime().block_on(async {
        let mutex = place.locker().await.mutex("job").unwrap();
        let look = async {
            while mutex.inspect().await.unwrap().holders.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.expect("nobody holds it");
    });
    shell.types("$L run job true\n");
    let waited = || {
        shell.shows("waiting for \"job\" for ");
        shell
            .shows("s: held by lockkit pid ")
            .strip_suffix("s: held by lockkit pid ")
            .unwrap()
            .parse::<u64>()
    };
    let first = waited()?;
    shell.shows("\r");
    assert!(waited()? > first, "it is not drawn anew");
    shell.types("\x03");
    shell.shows(PROMPT);
    shell.types("echo code=$?\n");
    shell.shows("code=130");
    shell.types("kill %1; wait; echo go\"\"ne\n");
    shell.shows("gone");
    Ok(())
}

/// Catches unwanted colors and missing colors (<https://no-color.org>: an empty variable does not
/// count).
fn colors() -> Result<(), Failed> {
    let place = Place::new();
    place.redis.command(["CONFIG", "SET", "appendonly", "no"])?;
    let mut shell = Shell::start(&place);
    // The sequences of the shell itself are no colors.
    for (line, has_colors) in [
        ("$L doctor", true),
        ("NO_COLOR= $L doctor", true),
        ("NO_COLOR=1 $L doctor", false),
        ("$L doctor | cat", false),
    ] {
        shell.shows(PROMPT);
        shell.types(&format!("{line}; echo en\"\"d\n"));
        let shown = shell.shows("end\r");
        let diagnostics = shown.split_once("GRADE").unwrap_or_else(|| panic!("{line}: {shown}")).1;
        for (severity, sequence) in
            [("weak", "\x1b[31mweak\x1b[0m"), ("good", "\x1b[32mgood\x1b[0m")]
        {
            assert!(
                diagnostics
                    .contains(&format!("\n{}", if has_colors { sequence } else { severity })),
                "{line}: {shown}"
            );
        }
        assert_eq!(diagnostics.contains("\x1b["), has_colors, "{line}: {shown}");
    }
    Ok(())
}
