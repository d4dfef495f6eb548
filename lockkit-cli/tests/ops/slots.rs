//! Tests many processes with many slots.

use std::{fs, thread, time::Duration};

use libtest_mimic::Failed;

use crate::{
    Test,
    support::{Place, run, said},
};

const HOSTS: u64 = 10;
const SLOTS: usize = 50;

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("slots::c1_ten_processes_run_each_of_fifty_slots_once", keys),
        ("slots::c1_each_second_is_run_once", seconds),
    ]
}

/// Each thread is a host that tries all slots, and begins a little later than the one before. A run
/// writes lines to the file of its slot, and lasts long enough to overlap with another run.
fn keys() -> Result<(), Failed> {
    let place = Place::new();
    let line = format!(
        "echo in >> {0}/$LOCKKIT_SLOT; sleep 0.01; echo out >> {0}/$LOCKKIT_SLOT",
        place.folder.path().display()
    );
    let host = |host: u64| {
        thread::sleep(Duration::from_millis(host * 13));
        for slot in 0..SLOTS {
            let once =
                run(place.lockkit(["once", "job", "--slot", &slot.to_string(), "-c", &line]));
            assert_eq!(once.status.code(), Some(0), "{}", said(&once));
        }
    };
    thread::scope(|scope| {
        for number in 0..HOSTS {
            scope.spawn(move || host(number));
        }
    });
    for slot in 0..SLOTS {
        assert_eq!(fs::read_to_string(place.path(&slot.to_string()))?, "in\nout\n", "slot {slot}");
    }
    Ok(())
}

/// Each host asks in each second, as timers do, and some ask a little early.
fn seconds() -> Result<(), Failed> {
    let place = Place::new();
    let line = format!("echo $LOCKKIT_SLOT >> {}", place.path("runs").display());
    let host = |host: u64| {
        thread::sleep(Duration::from_millis(host * 17));
        for _ in 0..25 {
            let once = run(place.lockkit(["once", "job", "--every", "1s", "-c", &line]));
            assert_eq!(once.status.code(), Some(0), "{}", said(&once));
            thread::sleep(Duration::from_millis(100 + host * 3));
        }
    };
    thread::scope(|scope| {
        for number in 0..HOSTS {
            scope.spawn(move || host(number));
        }
    });
    let runs = fs::read_to_string(place.path("runs"))?;
    let seconds: Vec<_> =
        runs.lines().map(|line| humantime::parse_rfc3339(line).unwrap()).collect();
    assert!(seconds.len() > 2, "{runs}");
    for pair in seconds.windows(2) {
        assert!(pair[0] < pair[1], "a second was run twice, or after a later one:\n{runs}");
    }
    Ok(())
}
