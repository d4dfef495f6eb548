//! C14: lists of names, and the health check of a store.

use std::collections::BTreeSet;

use lockkit_core::{Kind, LockName};

use crate::{
    admin::admin,
    case::{Ability, Needs, cases},
    env::{Env, give_back, long, take},
    harness::Hook,
    wait::{eventually, soon},
};

cases! {
    c14_names_in_use_are_listed_by_prefix: Needs::EXCLUSIVE.ability(Ability::Names),
        "a list that has unused names or names of another kind, or that misses used names";
    c14_names_are_listed_as_they_were_given: Needs::EXCLUSIVE.ability(Ability::Names),
        "a prefix that acts as a pattern, or a list with escaped names";
    c14_health_needs_no_lock: Needs::MUTEX,
        "a health check that takes a lock, or that fails when a lock is busy";
    c14_a_silent_store_is_not_healthy: Needs::MUTEX.hook(Hook::Pause),
        "a health check that does not ask the store";
}

async fn listed(env: &Env, prefix: &str) -> BTreeSet<String> {
    let locker = env.locker().await;
    let names = locker.names(prefix).await.unwrap();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "not in order, or twice: {names:?}");
    let kind = env.flavor().kind();
    names.iter().filter(|name| name.kind() == kind).map(|name| name.as_str().to_owned()).collect()
}

async fn c14_names_in_use_are_listed_by_prefix(env: Env) {
    let locker = env.locker().await;
    let mut guards = Vec::new();
    for name in ["jobs/a", "jobs/b", "job", "orders/1"] {
        guards.push(take(&env.lock(&locker, name, long())).await);
    }
    give_back(take(&env.lock(&locker, "jobs/idle", long())).await).await;
    assert_eq!(listed(&env, "jobs/").await, ["jobs/a", "jobs/b"].map(str::to_owned).into());
    assert_eq!(listed(&env, "job").await.len(), 3);
    assert_eq!(listed(&env, "").await.len(), 4);
    assert_eq!(listed(&env, "nothing").await.len(), 0);
    for kind in [Kind::Election, Kind::Mutex, Kind::RwLock, Kind::Semaphore] {
        if kind != env.flavor().kind() {
            // A store that has no locks of this kind may refuse this request.
            let names = admin(&*env.backend().await).names(kind, "").await.unwrap_or_default();
            assert_eq!(names, [], "these are no names of a {kind}");
        }
    }
    for guard in guards {
        give_back(guard).await;
    }
    assert_eq!(listed(&env, "").await.len(), 0);
}

async fn c14_names_are_listed_as_they_were_given(env: Env) {
    let locker = env.locker().await;
    let long_one = "y".repeat(255);
    let names = [
        "*",
        "a*b",
        "a?b",
        "a_b",
        "a%b",
        "[a]",
        "{x}",
        "\\",
        "/",
        "a/b",
        " ",
        "\u{1f512}",
        "'",
        &*long_one,
    ];
    let mut guards = Vec::new();
    for name in names {
        guards.push(take(&env.lock(&locker, name, long())).await);
    }
    assert_eq!(listed(&env, "").await, names.map(str::to_owned).into());
    for name in names {
        let expected =
            names.iter().filter(|other| other.starts_with(name)).map(|other| (*other).to_owned());
        assert_eq!(listed(&env, name).await, expected.collect(), "by the prefix {name:?}");
    }
    for guard in guards {
        give_back(guard).await;
    }
}

async fn c14_health_needs_no_lock(env: Env) {
    let locker = env.locker().await;
    let health = locker.health().await.unwrap();
    assert!(health.round_trip < soon(), "{health:?}");
    let guard = take(&env.lock(&locker, "x", long())).await;
    locker.health().await.unwrap();
    give_back(guard).await;
    let unused = LockName::new(Kind::Mutex, "lockkit health?").unwrap();
    assert!(env.backend().await.inspect(&unused).await.unwrap().holders.is_empty());
    if env.descriptor().capabilities.names {
        assert_eq!(listed(&env, "").await.len(), 0, "a sign of life left a name behind");
    }
    locker.shutdown().await.unwrap();
    locker.health().await.expect_err("the locker was shut down");
}

async fn c14_a_silent_store_is_not_healthy(env: Env) {
    let options = long().with_op_timeout(env.bound());
    let locker = env.locker().await.with_defaults(options).unwrap();
    let is_well = async || locker.health().await.map(drop).map_err(|error| error.to_string());
    eventually(soon(), is_well).await;
    env.harness().pause().await.unwrap();
    let sick = locker.health().await;
    env.harness().resume().await.unwrap();
    sick.expect_err("C14: a store that does not answer is healthy");
    eventually(soon(), is_well).await;
}
