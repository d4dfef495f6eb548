use super::*;
use crate::{history::Event, site::Elsewhere};

/// The answer of a child. The child then idles until the end of its input.
const IDLE: &str = "read -r role; echo '{\"ready\":{\"address\":\"127.0.0.1:9\"}}'; ";
const UNTIL_THE_END: &str = "read -r _ || exit 0";

/// Processes that take no locks.
fn arena(then: &str) -> Arena {
    let arguments = vec!["-c".into(), format!("{IDLE}{then}").into()];
    let program = Program { program: "sh".into(), arguments };
    Arena::new(Box::new(Elsewhere::new("memory://")), program)
}

fn round(folder: &Path, only: &[&str]) -> Round {
    Round {
        seed: 1,
        span: Duration::from_millis(500),
        calm: Duration::ZERO,
        workload: Workload { ttls: vec![Duration::from_millis(50)], ..Workload::new(2, 1) },
        only: only.iter().map(|kind| (*kind).to_owned()).collect(),
        pause: Duration::from_millis(20),
        slack: Duration::from_millis(50),
        folder: folder.to_owned(),
    }
}

#[tokio::test]
async fn a_round_without_a_grant_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let outcome =
        arena(UNTIL_THE_END).play(&round(folder.path(), &["none"]), |_| {}).await.unwrap();
    assert!(outcome.verdict.violations.is_empty(), "{outcome:?}");
    assert!(
        outcome.verdict.figures.faults.is_empty() && outcome.missing().is_empty(),
        "{outcome:?}"
    );
    assert!(outcome.error.as_ref().unwrap().contains("no process got a lock"), "{outcome:?}");
    assert_eq!(
        check_folder(folder.path()).unwrap().error,
        outcome.error,
        "a later check gives the same result"
    );
}

#[tokio::test]
async fn a_holder_dies_early_enough_to_see_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    // The pause leaves hardly any time for another fault.
    let round = Round { pause: Duration::from_secs(60), ..round(folder.path(), &[KILL_HOLDER]) };
    let outcome = arena(UNTIL_THE_END).play(&round, |_| {}).await.unwrap();
    assert!(outcome.plan.kinds().is_empty(), "{outcome:?}");
    let records = read(folder.path()).unwrap();
    let deaths: Vec<_> =
        records.iter().filter(|record| matches!(record.event, Event::Died { .. })).collect();
    assert_eq!(deaths.len(), 1, "{records:?}");
}

#[tokio::test]
async fn an_unknown_fault_and_a_used_folder_are_refused_before_the_round() {
    let folder = tempfile::tempdir().unwrap();
    let typo = round(&folder.path().join("typo"), &["kil-holder"]);
    let told = arena(UNTIL_THE_END).play(&typo, |_| {}).await.unwrap_err().to_string();
    assert!(told.starts_with("the fault kil-holder is unknown here"), "{told}");
    assert!(!typo.folder.exists());
    fs::write(folder.path().join("register.jsonl"), "").unwrap();
    let told = arena(UNTIL_THE_END)
        .play(&round(folder.path(), &[]), |_| {})
        .await
        .unwrap_err()
        .to_string();
    assert!(told.contains("is not empty"), "{told}");
}

#[tokio::test]
async fn a_round_without_a_register_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let dies =
        format!("case \"$role\" in *'\"register\":{{'*) sleep 0.2; exit 1;; esac; {UNTIL_THE_END}");
    // The end of the register ends the round.
    let round = Round { span: Duration::from_secs(60), ..round(folder.path(), &["none"]) };
    let outcome = arena(&dies).play(&round, |_| {}).await.unwrap();
    assert_eq!(outcome.error.as_deref(), Some("the register ended by itself"));
    assert!(outcome.verdict.violations.is_empty(), "{outcome:?}");
    assert!(outcome.write(folder.path()).unwrap().exists());
}
