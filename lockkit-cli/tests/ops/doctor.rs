//! `lockkit doctor`

use libtest_mimic::Failed;
use lockkit_fixture::RedisServer;

use crate::{
    Test, good, json,
    support::{Place, bare, run, said, until},
    told,
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("doctor::what_can_not_happen_is_not_told", impossible),
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
    let bad =
        |finding: &&serde_json::Value| finding["grade"] == "weak" || finding["grade"] == "unsafe";
    let log = of("persistence").filter(bad);
    assert!(
        log.is_some_and(|log| log["advice"].as_str().unwrap().contains("appendonly yes")),
        "{findings:?}"
    );
    for step in ["lock", "renew", "release", "clocks", "server"] {
        assert_eq!(
            of(step).unwrap_or_else(|| panic!("no {step} in {findings:?}"))["grade"],
            "good"
        );
    }
    let grades: Vec<_> =
        findings.iter().map(|finding| finding["grade"].as_str().unwrap()).collect();
    let order = ["unsafe", "weak", "note", "unknown", "good"];
    assert!(
        grades.is_sorted_by_key(|grade| order.iter().position(|known| known == grade)),
        "{grades:?}"
    );
    let text = run(place.lockkit(["doctor"]));
    assert!(!told(&text).contains('\u{1b}'), "colors are for terminals");
    assert!(told(&text).starts_with("GRADE") && told(&text).contains("weaken"), "{}", told(&text));
    assert_eq!(json(&good(place.lockkit(["--format=json", "ls"]))).len(), 0);
    Ok(())
}

fn impossible() -> Result<(), Failed> {
    let place = Place::new();
    let findings = json(&run(place.lockkit(["--format=json", "doctor"])));
    let has = |findings: &[serde_json::Value], what: &str| {
        findings.iter().filter(|finding| finding["what"] == what).count()
    };
    assert_eq!((has(&findings, "replication"), has(&findings, "failover")), (1, 0), "{findings:?}");
    let replica =
        RedisServer::start_with(["--replicaof", "127.0.0.1", &place.redis.port().to_string()])?;
    let doctor = until("the replica", || {
        let findings = json(&run(place.lockkit(["--format=json", "doctor"])));
        (has(&findings, "failover") == 1).then_some(findings)
    });
    assert_eq!(has(&doctor, "replication"), 1, "{doctor:?}");
    drop(replica);

    let mut command = bare(["--format=json", "doctor"]);
    command.env("LOCKKIT_URL", format!("file://{}", place.path("locks").display()));
    let findings = json(&run(command));
    assert_eq!(has(&findings, "leases"), 1, "{findings:?}");
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
