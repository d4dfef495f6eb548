//! Tests `lockkit ls`, `show`, `watch` and `history`.

use std::io::{BufRead as _, BufReader};

use libtest_mimic::Failed;
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    Test, good, json,
    support::{Place, Running, run, said, until},
    told,
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("look::c14_ls_lists_what_is_used", ls),
        ("look::c14_show_has_holders_waiters_and_runs", show),
        ("look::c14_watch_has_a_line_for_each_change", watch),
        ("look::history_tells_how_runs_ended", history),
        ("look::a_history_keeps_the_newest_runs", long_history),
        ("look::names_are_those_of_the_namespace", namespace),
        ("look::a_reader_that_goes_is_no_error", head),
    ]
}

/// Holds `name` until the answer is dropped.
fn hold(place: &Place, options: &[&str], name: &str) -> Running {
    let up = place.path(&format!("up-{}", name.replace('/', "-")));
    let line = format!("echo up > {}; sleep 600", up.display());
    let _ = std::fs::remove_file(&up);
    let holder = Running::start(place.lockkit([&["run"], options, &[name, "-c", &line]].concat()));
    until("the holder", || up.exists().then_some(()));
    holder
}

fn ls() -> Result<(), Failed> {
    let place = Place::new();
    let none = good(place.lockkit(["ls"]));
    assert_eq!(
        (told(&none).as_str(), said(&none).as_str()),
        ("", "lockkit: no lock is held or waited for\n")
    );
    let _first = hold(&place, &[], "jobs/a");
    let _second = hold(&place, &["--permits=2/3", "--label=my label"], "jobs/b");
    let _third = hold(&place, &[], "other");
    let text = told(&good(place.lockkit(["ls", "jobs/"])));
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "KIND", "HOLDER", "TOKEN", "HELD", "LEFT", "WAITING"]);
    assert_eq!(lines[1][..4], ["jobs/a", "mutex", "lockkit", "pid"]);
    assert_eq!(lines[2][..5], ["jobs/b", "semaphore", "my", "label", "(2/3)"]);
    assert_eq!(lines.len(), 3, "{text}");
    let all = json(&good(place.lockkit(["--format=json", "ls"])));
    let names: Vec<_> = all.iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["jobs/a", "other", "jobs/b"], "by kind, then by name");
    let holder = &all[0]["holders"][0];
    assert!(
        holder["token"].is_u64() && holder["held_ms"].is_u64() && holder["left_ms"].is_u64(),
        "{holder}"
    );
    assert_eq!((&holder["mode"], &all[0]["waiting"]), (&"exclusive".into(), &0.into()));
    Ok(())
}

fn show() -> Result<(), Failed> {
    let place = Place::steady();
    assert!(told(&good(place.lockkit(["show", "job"]))).starts_with("No client holds \"job\""));
    good(place.lockkit(["run", "job", "true"]));
    assert!(told(&good(place.lockkit(["show", "job"]))).starts_with("mutex \"job\" is free."));
    assert_eq!(run(place.lockkit(["show", "--exit-code", "job"])).status.code(), Some(1));
    let _holder = hold(&place, &[], "job");
    good(place.lockkit(["show", "--exit-code", "job"]));
    let _waiter = Running::start(place.lockkit(["run", "job", "true"]));
    let lock = until("the waiter", || {
        let mut shown = json(&good(place.lockkit(["--format=json", "show", "job"])));
        assert_eq!(shown.len(), 1, "{shown:?}");
        let lock = shown.remove(0);
        (lock["waiting"] == 1 && lock["runs"].as_array()?.len() == 2).then_some(lock)
    });
    assert_eq!(lock["runs"][0]["outcome"], "exit 0");
    assert_eq!(lock["runs"][1]["outcome"], "running");
    assert_eq!(lock["runs"][1]["token"], lock["holders"][0]["token"]);
    Ok(())
}

fn watch() -> Result<(), Failed> {
    let place = Place::new();
    let mut holder = hold(&place, &[], "job");
    let mut watch =
        place.lockkit(["--format=json", "watch", "--kind=mutex", "job", "--until-free"]);
    let mut watch = Running(watch.spawn()?);
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert!(first["holders"][0]["token"].is_u64() && first["at_ms"].is_u64(), "{first}");
    holder.signal(Signal::TERM);
    holder.end();
    let last = next();
    assert_eq!(last["holders"], Value::Array(Vec::new()));
    assert_eq!(watch.end().code(), Some(0));
    let free = good(place.lockkit(["watch", "job", "--until-free"]));
    assert!(said(&free).contains("no client holds"), "{}", said(&free));
    Ok(())
}

fn history() -> Result<(), Failed> {
    // The command line gives up the record of a run after three seconds.
    let place = Place::steady();
    let none = good(place.lockkit(["history", "job"]));
    assert_eq!(
        (told(&none).as_str(), said(&none).as_str()),
        ("", "lockkit: no run under \"job\" is recorded\n")
    );
    run(place.lockkit(["run", "job", "true"]));
    run(place.lockkit(["run", "job", "-c", "exit 3"]));
    run(place.lockkit(["run", "job", "-c", "kill -9 $$"]));
    run(place.lockkit(["run", "job", "/no/such/command"]));
    run(place.lockkit(["run", "job", "--max-run=50ms", "sleep", "60"]));
    let running = || {
        // The command starts before its run is in the history.
        until("the running one", || {
            let runs = json(&good(place.lockkit(["--format=json", "history", "job"])));
            runs.iter().any(|run| run["outcome"] == "running").then_some(runs)
        })
    };
    let mut killed = hold(&place, &["--grace=100ms"], "job");
    running();
    killed.signal(Signal::KILL);
    killed.end();
    // This ends the lease in the store.
    place.redis.ask(["DEL", "lockkit:mutex:{job}"])?;
    let _running = hold(&place, &["--label=x"], "job");
    let runs = running();
    let outcomes: Vec<_> = runs.iter().map(|run| run["outcome"].as_str().unwrap()).collect();
    let expected = [
        "exit 0",
        "exit 3",
        "signal 9",
        "not found",
        "stopped: --max-run",
        "did not finish",
        "running",
    ];
    assert_eq!(outcomes, expected);
    assert!(runs[0]["ended_ms"].as_u64() >= runs[0]["started_ms"].as_u64(), "{}", runs[0]);
    assert_eq!(runs[0]["command"], "true");
    let text = told(&good(place.lockkit(["history", "job"])));
    assert!(
        text.starts_with("KIND") && expected.iter().all(|outcome| text.contains(outcome)),
        "{text}"
    );
    let kind = run(place.lockkit(["history", "--kind=rwlock", "job"]));
    assert_eq!(kind.status.code(), Some(125));
    Ok(())
}

fn long_history() -> Result<(), Failed> {
    let place = Place::steady();
    for code in 0..40 {
        run(place.lockkit(["run", "job", "-c", &format!("exit {code}")]));
    }
    let runs = json(&good(place.lockkit(["--format=json", "history", "job"])));
    let outcomes: Vec<_> =
        runs.iter().map(|run| run["outcome"].as_str().unwrap().to_owned()).collect();
    let expected: Vec<_> = (8..40).map(|code| format!("exit {code}")).collect();
    assert_eq!(outcomes, expected);
    Ok(())
}

fn namespace() -> Result<(), Failed> {
    let place = Place::new();
    let _inside = hold(&place, &["--namespace=team"], "job");
    let names = |options: &[&str]| {
        let listed = json(&good(place.lockkit([&["--format=json", "ls"], options].concat())));
        listed.iter().map(|lock| lock["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["--namespace=team"]), ["job"]);
    assert_eq!(names(&[]), ["team/job"]);
    assert_eq!(names(&["--namespace=tea"]), [""; 0]);
    until("the run", || {
        let show = told(&good(place.lockkit(["--namespace=team", "show", "job"])));
        show.contains("running").then_some(())
    });
    Ok(())
}

fn head() -> Result<(), Failed> {
    let place = Place::new();
    let _holder = hold(&place, &[], "job");
    let mut ls = Running(place.lockkit(["ls"]).spawn()?);
    drop(ls.0.stdout.take());
    assert_eq!(ls.end().code(), Some(0));
    Ok(())
}
