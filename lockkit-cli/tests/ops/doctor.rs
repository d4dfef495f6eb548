//! `lockkit doctor`

use libtest_mimic::Failed;

use crate::{
    Test, good, json,
    support::{Place, bare, run, said},
    told,
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("doctor::a_redis_without_a_log_is_weak", weak),
        ("doctor::a_store_that_is_away_is_unsafe_or_an_error", away),
    ]
}

fn weak() -> Result<(), Failed> {
    let place = Place::new();
    place.redis.command(["CONFIG", "SET", "appendonly", "no"])?;
    let doctor = run(place.lockkit(["--format=json", "doctor"]));
    assert_eq!(doctor.status.code(), Some(1), "{}", said(&doctor));
    let findings = json(&doctor);
    let of = |what: &str| findings.iter().find(|finding| finding["what"] == what);
    let bad = |finding: &&serde_json::Value| finding["grade"] == "weak" || finding["grade"] == "unsafe";
    let log = of("persistence").filter(bad);
    assert!(
        log.is_some_and(|log| log["advice"].as_str().unwrap().contains("appendonly yes")),
        "{findings:?}"
    );
    for step in ["lock", "renew", "release", "clocks", "server"] {
        assert_eq!(of(step).unwrap_or_else(|| panic!("no {step} in {findings:?}"))["grade"], "good");
    }
    let grades: Vec<_> = findings.iter().map(|finding| finding["grade"].as_str().unwrap()).collect();
    let order = ["unsafe", "weak", "note", "unknown", "good"];
    assert!(grades.is_sorted_by_key(|grade| order.iter().position(|known| known == grade)), "{grades:?}");
    let text = run(place.lockkit(["doctor"]));
    assert!(told(&text).starts_with("GRADE") && told(&text).contains("weaken"), "{}", told(&text));
    assert_eq!(json(&good(place.lockkit(["--format=json", "ls"]))).len(), 0);
    Ok(())
}

fn away() -> Result<(), Failed> {
    let mut place = Place::new();
    let url = place.redis.url().replace("redis://", "redis://:s3cr3t@");
    place.redis.kill()?;
    let mut command = bare(["doctor"]);
    command.env("LOCKKIT_URL", url);
    let doctor = run(command);
    assert_eq!(doctor.status.code(), Some(125));
    assert!(!said(&doctor).contains("s3cr3t") && !told(&doctor).contains("s3cr3t"));
    Ok(())
}
