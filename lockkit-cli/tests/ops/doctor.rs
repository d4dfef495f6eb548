//! Tests `lockkit doctor`.

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
    let place = Place::steady();
    place.redis.command(["CONFIG", "SET", "appendonly", "no"])?;
    let doctor = run(place.lockkit(["--format=json", "doctor"]));
    assert_eq!(doctor.status.code(), Some(1), "{}", said(&doctor));
    let diagnostics = json(&doctor);
    let of = |what: &str| diagnostics.iter().find(|diagnostic| diagnostic["what"] == what);
    let bad = |diagnostic: &&serde_json::Value| {
        diagnostic["severity"] == "weak" || diagnostic["severity"] == "unsafe"
    };
    let log = of("persistence").filter(bad);
    assert!(
        log.is_some_and(|log| log["advice"].as_str().unwrap().contains("appendonly yes")),
        "{diagnostics:?}"
    );
    // A slow answer of the server is a note.
    let server = of("server").filter(|server| !bad(server));
    assert!(server.is_some_and(|server| server["found"].as_str().unwrap().contains("answers in")));
    for step in ["lock", "renew", "release", "clocks"] {
        assert_eq!(
            of(step).unwrap_or_else(|| panic!("no {step} in {diagnostics:?}"))["severity"],
            "good"
        );
    }
    let severities: Vec<_> =
        diagnostics.iter().map(|diagnostic| diagnostic["severity"].as_str().unwrap()).collect();
    let order = ["unsafe", "weak", "note", "unknown", "good"];
    assert!(
        severities.is_sorted_by_key(|severity| order.iter().position(|known| known == severity)),
        "{severities:?}"
    );
    let text = run(place.lockkit(["doctor"]));
    assert!(!told(&text).contains('\u{1b}'), "colors are for terminals");
    assert!(told(&text).starts_with("GRADE") && told(&text).contains("weaken"), "{}", told(&text));
    assert_eq!(json(&good(place.lockkit(["--format=json", "ls"]))).len(), 0);
    Ok(())
}

fn impossible() -> Result<(), Failed> {
    let place = Place::new();
    let diagnostics = json(&run(place.lockkit(["--format=json", "doctor"])));
    let has = |diagnostics: &[serde_json::Value], what: &str| {
        diagnostics.iter().filter(|diagnostic| diagnostic["what"] == what).count()
    };
    assert_eq!(
        (has(&diagnostics, "replication"), has(&diagnostics, "failover")),
        (1, 0),
        "{diagnostics:?}"
    );
    let replica =
        RedisServer::start_with(["--replicaof", "127.0.0.1", &place.redis.port().to_string()])?;
    let doctor = until("the replica", || {
        let diagnostics = json(&run(place.lockkit(["--format=json", "doctor"])));
        (has(&diagnostics, "failover") == 1).then_some(diagnostics)
    });
    assert_eq!(has(&doctor, "replication"), 1, "{doctor:?}");
    drop(replica);

    let mut command = bare(["--format=json", "doctor"]);
    command.env("LOCKKIT_URL", format!("file://{}", place.path("locks").display()));
    let diagnostics = json(&run(command));
    assert_eq!(has(&diagnostics, "leases"), 1, "{diagnostics:?}");
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
