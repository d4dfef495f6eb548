//! Tests of lists of names, and of signs of life.

use std::collections::BTreeSet;

use lockkit_core::{
    Kind,
    spi::{Admin as _, Mode, Role, Wait},
};
use lockkit_fixture::SqlFlavor;

use crate::support::*;

on_both!(
    c14_many_names_are_listed_once_each,
    c14_a_sign_of_life_needs_no_free_connection,
    c14_a_server_that_was_demoted_is_a_replica,
);

/// Catches pages that overlap or leave a gap, holders that are listed twice, and names of which
/// only a row is left.
async fn c14_many_names_are_listed_once_each(flavor: SqlFlavor) {
    const NAMES: usize = 1203;
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let mut admin = bed.admin().await;
    next_token(&backend, "idle").await;
    let mut expected = BTreeSet::from([mutex("job"), mutex("jobs")]);
    expected.extend((0..NAMES).map(|number| mutex(&format!("job%{number}"))));
    let names: Vec<_> = expected.iter().map(|name| name.as_str().to_owned()).collect();
    for kind in [Kind::Mutex, Kind::Semaphore] {
        let permits = Mode::Permits { count: 1.try_into().unwrap(), limit: 9.try_into().unwrap() };
        let mode = if kind == Kind::Mutex { Mode::Exclusive } else { permits };
        granted(claim_in(&backend, kind, "a template", mode).attempt(Wait::No).await);
        let table = bed.table(if kind == Kind::Mutex { "lock" } else { "holder" });
        // All rows are like the template, except for the name.
        let columns = if kind == Kind::Mutex { "touched_us,wanted_us" } else { "mode,permits" };
        for chunk in names.chunks(200) {
            for owner in if kind == Kind::Mutex { vec!["x"] } else { vec!["x", "y"] } {
                let rows: Vec<_> =
                    chunk.iter().map(|name| format!("SELECT '{name}' AS n")).collect();
                admin
                    .run(format!(
                        "INSERT INTO {table}(kind,name,owner,fence,expires_us,acquired_us,{columns}) \
                         SELECT kind,n,'{owner}',fence,expires_us,acquired_us,{columns} \
                         FROM {table} t JOIN ({}) names WHERE t.name='a template'",
                        rows.join(" UNION ALL ")
                    ))
                    .await;
            }
        }
        let listed = async |prefix: &str| {
            let listed = backend.names(kind, prefix).await.unwrap();
            let unique: BTreeSet<_> = listed.iter().map(|name| name.as_str().to_owned()).collect();
            assert_eq!(unique.len(), listed.len(), "{kind}: some are listed twice");
            unique
        };
        let all: BTreeSet<_> = names.iter().cloned().collect();
        assert_eq!(listed("j").await, all);
        assert_eq!(listed("").await.len(), all.len() + 1);
        assert_eq!(listed("job%").await.len(), NAMES);
        assert_eq!(listed("job%12").await.len(), 1 + 10 + 3);
        assert_eq!(listed("JOB").await.len(), 0);
        admin.run(format!("UPDATE {table} SET expires_us={NOW} WHERE name<>'jobs'")).await;
        assert_eq!(listed("").await, ["jobs".to_owned()].into());
    }
    assert_eq!(backend.names(Kind::RwLock, "").await.unwrap(), []);
}

async fn c14_a_sign_of_life_needs_no_free_connection(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect("pool_size=1").await;
    let mut locked = bed.admin().await;
    let mut admin = bed.admin().await;
    bed.wait_for_rows(&mut admin).await;
    next_token(&backend, "a").await;
    locked.run("START TRANSACTION").await;
    locked.run(format!("SELECT 1 FROM {} WHERE name='a' FOR UPDATE", bed.table("lock"))).await;
    let mut waiting = claim(&backend, "a");
    let task = tokio::spawn(async move { waiting.attempt(Wait::No).await.map(drop) });
    let waits = &bed.waiting();
    until("it waits", async || admin.one::<u64>(waits).await == 1).await;
    assert_eq!(within(SOON, "a sign of life", backend.probe()).await.unwrap(), Role::Primary);
    assert_eq!(within(SOON, "a list", backend.names(Kind::Mutex, "")).await.unwrap(), []);
    locked.run("ROLLBACK").await;
    task.await.unwrap().unwrap();
}

/// Tests an existing connection, and a new one that is refused.
async fn c14_a_server_that_was_demoted_is_a_replica(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect("").await;
    let mut admin = bed.admin().await;
    assert_eq!(backend.probe().await.unwrap(), Role::Primary);
    let switches: &[&str] =
        if flavor == SqlFlavor::MySql { &["read_only", "super_read_only"] } else { &["read_only"] };
    for switch in switches {
        admin.run(format!("SET GLOBAL {switch}=1")).await;
        assert_eq!(backend.probe().await.unwrap(), Role::Replica, "{switch}");
        admin.kill_all().await;
        until("a new connection is refused", async || match backend.probe().await {
            Ok(role) => role == Role::Replica,
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                false
            }
        })
        .await;
        admin.run(format!("SET GLOBAL {switch}=0")).await;
        admin.run("SET GLOBAL read_only=0").await;
        assert_eq!(backend.probe().await.unwrap(), Role::Primary, "{switch}");
    }
}
