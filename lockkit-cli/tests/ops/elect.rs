//! Tests `lockkit elect`.

use std::fs;

use libtest_mimic::Failed;
use rustix::process::Signal;

use crate::{
    Test, good, json,
    support::{Place, Running, run, until},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("elect::c9_another_host_leads_when_the_leader_is_killed", killed),
        ("elect::a_command_that_ends_resigns", resigns),
        ("elect::who_is_asked_to_go_campaigns_again", asked),
        ("elect::who_is_told_to_end_while_it_is_asked_to_go_ends", ended),
    ]
}

fn candidate(place: &Place, name: &str) -> Running {
    let line =
        format!("echo \"{name} $LOCKKIT_TOKEN\" >> {}; sleep 600", place.path("leaders").display());
    let options = ["elect", "leader", "--grace=200ms", "--label", name, "-c", &line];
    Running::start(place.lockkit(options))
}

/// The leaders so far, with their terms.
fn leaders(place: &Place, count: usize) -> Vec<(String, u64)> {
    until("the next leader", || {
        let text = fs::read_to_string(place.path("leaders")).ok()?;
        let leaders = text.lines().map(|line| line.split_once(' ').unwrap());
        let leaders: Vec<_> =
            leaders.map(|(name, term)| (name.to_owned(), term.parse().unwrap())).collect();
        (leaders.len() >= count).then_some(leaders)
    })
}

fn killed() -> Result<(), Failed> {
    let place = Place::new();
    let mut hosts: Vec<_> = ["a", "b", "c"].map(|name| (name, candidate(&place, name))).into();
    for led in 1..=3 {
        let leaders = leaders(&place, led);
        assert!(leaders.is_sorted_by_key(|(_, term)| *term), "{leaders:?}");
        let (leader, term) = &leaders[led - 1];
        let shown = json(&good(place.lockkit(["--format=json", "show", "leader"])));
        assert_eq!(
            (&shown[0]["kind"], &shown[0]["holders"][0]["token"]),
            (&"election".into(), &(*term).into())
        );
        assert_eq!(shown[0]["holders"][0]["label"].as_str(), Some(&**leader));
        let at = hosts.iter().position(|(name, _)| name == leader).unwrap();
        let (_, mut host) = hosts.remove(at);
        host.signal(Signal::KILL);
        host.end();
        // This ends the lease in the store.
        place.redis.ask(["DEL", "lockkit:election:{leader}"])?;
    }
    assert!(hosts.is_empty(), "each of them led once");
    Ok(())
}

fn resigns() -> Result<(), Failed> {
    let place = Place::steady();
    let elected = run(place.lockkit(["elect", "leader", "-c", "exit 7"]));
    assert_eq!(elected.status.code(), Some(7));
    assert_eq!(json(&good(place.lockkit(["--format=json", "ls"]))).len(), 0);
    let history = json(&good(place.lockkit(["--format=json", "history", "leader"])));
    assert_eq!(
        (&history[0]["outcome"], &history[0]["kind"]),
        (&"exit 7".into(), &"election".into())
    );
    Ok(())
}

fn asked() -> Result<(), Failed> {
    let place = Place::new();
    let mut only = candidate(&place, "a");
    leaders(&place, 1);
    good(place.lockkit(["unlock", "leader", "--force", "--reason=test"]));
    let leaders = leaders(&place, 2);
    assert!(leaders[0].1 < leaders[1].1, "{leaders:?}");
    only.signal(Signal::TERM);
    let ended = only.end();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(15), "{ended}");
    Ok(())
}

/// Catches a lockkit that ignores a signal which comes while it stops the command, as if the signal
/// were only for the command.
fn ended() -> Result<(), Failed> {
    let place = Place::new();
    let leading = place.path("leaders");
    let stopping = place.path("stopping");
    let go = place.path("go");
    let line = format!(
        "trap 'echo now >> {}' TERM; echo \"a $LOCKKIT_TOKEN\" >> {}; until [ -e {} ]; do sleep 0.05; done",
        stopping.display(),
        leading.display(),
        go.display()
    );
    let mut only = Running::start(place.lockkit(["elect", "leader", "--grace=9s", "-c", &line]));
    leaders(&place, 1);
    let mut unlock =
        Running::start(place.lockkit(["unlock", "leader", "--force", "--reason=test"]));
    let asked = |times| {
        let heard = fs::read_to_string(&stopping).unwrap_or_default().lines().count();
        (heard >= times).then_some(())
    };
    until("the command is asked to end", || asked(1));
    only.signal(Signal::TERM);
    until("the signal is passed on", || asked(2));
    fs::write(go, "")?;
    assert!(unlock.end().success());
    let ended = only.end();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(15), "{ended}");
    assert_eq!(leaders(&place, 1).len(), 1, "it has led again");
    Ok(())
}
