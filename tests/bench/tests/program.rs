//! Tests the program from outside: its exit code, the files and locks that it leaves, and its
//! output.

mod support;

use std::{fs, process::Command};

use lockkit_fixture::{RedisOptions, RedisServer, is_alive};
use rustix::process::{Pid, Signal, kill_process};

use self::support::{children_of, program, said, shown_of, start, until};

const PASSWORD: &str = "s3cr3tword";

fn redis() -> (RedisServer, String) {
    let mut server =
        RedisServer::start_as(RedisOptions::default().with_password(PASSWORD)).unwrap();
    // The program measures a server that works.
    server.never_stall();
    let url = server.url().replace("redis://", &format!("redis://:{PASSWORD}@"));
    (server, format!("{url}?connect_timeout=30s"))
}

fn send(signal: Signal, pid: u32) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

fn names_in_use(url: &str) -> Vec<String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let locker = lockkit::connect(url).await.unwrap();
        let names = locker.names("").await.unwrap();
        locker.shutdown().await.unwrap();
        names.iter().map(ToString::to_string).collect()
    })
}

/// Catches a program that kills its children, or lets the terminal kill them: a thousand locks
/// would remain.
#[test]
fn ctrl_c_leaves_no_process_no_lock_and_no_report() {
    let (_server, url) = redis();
    let folder = tempfile::tempdir().unwrap();
    let mut run = start(&["--url", &url, "--quick", "--only", "idle-locks"], folder.path());
    let children = children_of(run.id());
    for child in &children {
        // Until a child runs its own program, the system shows the command line of its parent.
        let own = || {
            let line = shown_of(*child, "cmdline");
            !line.is_empty() && line != shown_of(run.id(), "cmdline")
        };
        until("the child runs", || own().then_some(()));
        let shown = shown_of(*child, "cmdline") + &shown_of(*child, "environ");
        assert!(!shown.contains(PASSWORD), "{shown}");
    }
    until("the child has its locks", || (!names_in_use(&url).is_empty()).then_some(()));
    send(Signal::INT, run.id());
    let status = run.wait().unwrap();
    assert_eq!(status.code(), Some(2), "{}", said(folder.path()));
    assert!(!children.iter().any(is_alive));
    assert_eq!(names_in_use(&url), Vec::<String>::new());
    assert!(!folder.path().join("out/report.json").exists());
    assert!(!said(folder.path()).contains(PASSWORD), "{}", said(folder.path()));
}

#[test]
fn a_child_ends_when_its_parent_is_killed() {
    let (_server, url) = redis();
    let folder = tempfile::tempdir().unwrap();
    let mut run = start(&["--url", &url, "--quick", "--only", "idle-locks"], folder.path());
    let children = children_of(run.id());
    run.kill().unwrap();
    run.wait().unwrap();
    for child in children {
        until("the child ends", || (!is_alive(child)).then_some(()));
    }
    until("its locks are given back", || names_in_use(&url).is_empty().then_some(()));
}

#[test]
fn a_whole_run_shows_no_password_and_writes_its_reports() {
    let (_server, url) = redis();
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--url",
        &url,
        "--url",
        "mem=memory://",
        "--quick",
        "--rounds",
        "1",
        "--slice",
        "30ms",
        "--only",
        "uncontended",
        "hot-name",
    ];
    let status = start(&arguments, folder.path()).wait().unwrap();
    assert!(status.success(), "{}", said(folder.path()));
    let told = said(folder.path());
    let numbered = told.lines().filter(|line| line.contains("/4 ")).collect::<Vec<_>>();
    let cases = ["1/4 uncontended, 1 task", "2/4 hot-name, ", "3/4 hot-name, ", "4/4 hot-name, "];
    assert!(
        numbered.len() == 4
            && numbered.iter().zip(cases).all(|(line, case)| line.starts_with(case)),
        "{told}"
    );
    let mut texts = vec![told];
    for file in fs::read_dir(folder.path().join("out")).unwrap() {
        texts.push(fs::read_to_string(file.unwrap().path()).unwrap());
    }
    assert_eq!(texts.len(), 4, "three reports");
    for text in texts {
        assert!(!text.contains(PASSWORD), "{text}");
    }
    let json = fs::read_to_string(folder.path().join("out/report.json")).unwrap();
    let begun = json.split_once("\"started_at\": \"").unwrap().1.split('"').next().unwrap();
    assert!(begun.len() == 20 && begun.ends_with('Z'), "{begun}");
    assert!(json.contains("\"mem\"") && json.contains("redis://:***@127.0.0.1"), "{json}");
}

#[test]
fn a_bad_url_gives_one_line_and_exit_code_2() {
    for (url, reason) in [
        ("nosuch://me:s3cr3tword@h/", "nosuch://"),
        ("redis://me:s3cr3tword@127.0.0.1:1/", "127.0.0.1:1"),
        ("s3cr3tword", "no scheme"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(program())
            .args(["--url", url, "--out"])
            .arg(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<_> = said.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(errors.len(), 1, "{said}");
        assert!(errors[0].contains(reason) && said.lines().last() == Some(errors[0]), "{said}");
        assert!(!said.contains(PASSWORD), "{said}");
    }
}

/// `memory://` has no rslock, and neither has a program that was built without it.
#[test]
fn an_unmeasurable_peer_gives_one_line_and_exit_code_2() {
    let reason = if cfg!(feature = "rslock") {
        "error: cannot measure --peer rslock, because rslock needs a single Redis server"
    } else {
        "error: cannot measure --peer rslock, because this program was built without rslock"
    };
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--url", "memory://", "--quick", "--only", "uncontended", "--peer", "rslock"];
    let status = start(&arguments, folder.path()).wait().unwrap();
    assert_eq!(status.code(), Some(2), "{}", said(folder.path()));
    let said = said(folder.path());
    assert!(said.lines().last().unwrap().starts_with(reason), "{said}");
    assert!(!folder.path().join("out/report.json").exists());
}

/// The parser of the command line repeats words that it can't understand.
#[test]
fn a_mistyped_command_line_shows_no_password() {
    let url = "redis://me:s3cr3tword@h/";
    let labelled = format!("a b={url}");
    let option = format!("--rul={url}");
    for arguments in [
        &[url][..],
        &["run", url],
        &["--url", &labelled],
        &["--url", url, url],
        &["--only", "uncontended", url],
        &["--rounds", url],
        &[option.as_str()],
        &["compare", "a", "b", url],
        &["--urls-from", "/nowhere/at/all", "--url", url],
    ] {
        let output = Command::new(program()).args(arguments).output().unwrap();
        let said = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .concat();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("error: ") && !said.contains(PASSWORD), "{arguments:?}: {said}");
    }
}

#[test]
fn a_file_can_contain_the_urls() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("urls");
    fs::write(&file, "# two of them\n\n one=memory://\nmemory://\n").unwrap();
    let quick = ["--quick", "--rounds", "1", "--slice", "10ms", "--only", "uncontended"];
    let arguments = [&["--urls-from", file.to_str().unwrap()][..], &quick].concat();
    let status = start(&arguments, folder.path()).wait().unwrap();
    assert!(status.success(), "{}", said(folder.path()));
    let json = fs::read_to_string(folder.path().join("out/report.json")).unwrap();
    assert!(json.contains("\"one\"") && json.contains("\"memory\""), "{json}");
    assert!(said(folder.path()).contains("2 stores in 1 round of 10ms"), "{}", said(folder.path()));
    assert!(said(folder.path()).contains("\n1/1 uncontended, 1 task\n"), "{}", said(folder.path()));
    let markdown = fs::read_to_string(folder.path().join("out/report.md")).unwrap();
    assert!(markdown.contains("* 1 round. In each round"), "{markdown}");
    let report = folder.path().join("out/report.json");
    let output = Command::new(program()).arg("compare").args([&report, &report]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "one round is too few to decide: {told}");
    assert!(told.contains("No figure could be compared"), "{told}");
}

/// Recovery does not apply to the memory of one process: the program writes reports without
/// figures.
#[test]
fn a_run_that_measured_nothing_fails() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("out")).unwrap();
    fs::write(folder.path().join("out/own-names.svg"), "").unwrap();
    let arguments = ["--url", "memory://", "--quick", "--only", "recovery"];
    let status = start(&arguments, folder.path()).wait().unwrap();
    assert_eq!(status.code(), Some(2), "{}", said(folder.path()));
    assert!(said(folder.path()).contains("nothing could be measured"), "{}", said(folder.path()));
    assert!(said(folder.path()).contains("measuring 1 store in "), "{}", said(folder.path()));
    assert!(folder.path().join("out/report.md").exists());
    assert!(!folder.path().join("out/own-names.svg").exists(), "the plot of an earlier run");
}
