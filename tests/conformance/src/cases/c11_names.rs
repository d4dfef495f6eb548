//! C11: two different names never meet, and every good name works.

use lockkit_core::{ErrorKind, LockGuard};

use crate::{
    case::{Needs, cases},
    env::{Env, give_back, long, take},
    lock::Flavor,
};

cases! {
    c11_names_that_look_alike_are_different_locks: Needs::EXCLUSIVE,
        "escaping that maps two names to one; a store that compares without case, blanks or accents";
    c11_each_name_is_found_again: Needs::EXCLUSIVE,
        "a store that writes a name in one form and reads another form";
    c11_kinds_are_namespaces: Needs::EXCLUSIVE,
        "a mutex and a semaphore of one name that block each other";
    c11_bad_names_are_refused: Needs::EXCLUSIVE,
        "a store that truncates names";
}

/// Names that a store might confuse with each other, or with its own records.
const ALIKE: [&str; 56] = [
    "a",
    "A",
    "ä",
    "a\u{308}",
    " a",
    "a ",
    "  a",
    "a/b",
    "a//b",
    "/a",
    "a/",
    "/",
    ".",
    "..",
    "../a",
    "a:b",
    "a::b",
    ":",
    "mutex:a",
    "{a}",
    "{}",
    "{",
    "}",
    "}{",
    "a{b}c",
    "{a}b",
    "%",
    "%2F",
    "a%2Fb",
    "%%",
    "*",
    "?",
    "[a]",
    "a*",
    "\\",
    "a\\b",
    "'",
    "\"",
    "`",
    ";--",
    "_",
    "-",
    "0",
    "00",
    "🔒",
    "🔓",
    "字",
    "ß",
    "ss",
    "ﬁ",
    "fi",
    "\u{200b}",
    "\u{feff}a",
    "a.fence",
    "a:fence",
    "a:queue",
];

fn names() -> Vec<String> {
    let mut names: Vec<String> = ALIKE.map(str::to_owned).into();
    names.push("x".repeat(255));
    names.push("x".repeat(254));
    names.push(format!("{}y", "x".repeat(254)));
    names.push("🔒".repeat(63));
    names.push("%".repeat(255));
    names.push("/".repeat(255));
    names.push("}".repeat(255));
    names
}

async fn c11_names_that_look_alike_are_different_locks(env: Env) {
    let locker = env.locker().await;
    let mut held = Vec::new();
    for name in names() {
        let guard = env.lock(&locker, &name, long()).try_lock().await.unwrap();
        held.push(
            guard.unwrap_or_else(|| panic!("C11: {name:?} is the same lock as an earlier name")),
        );
    }
    for guard in held {
        let name = guard.name().clone();
        guard
            .release()
            .await
            .unwrap_or_else(|error| panic!("C11: {name} is the same lock as another: {error}"));
    }
}

async fn c11_each_name_is_found_again(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    for name in names() {
        let guard = take(&env.lock(&a, &name, long())).await;
        let other = env.lock(&b, &name, long());
        assert!(
            other.try_lock().await.unwrap().is_none(),
            "C11: {name:?} is another lock elsewhere"
        );
        let seen = other.inspect().await.unwrap();
        assert_eq!(
            seen.holders.first().and_then(|holder| holder.token),
            Some(guard.fencing_token()),
            "{name:?}"
        );
        give_back(guard).await;
        assert!(other.inspect().await.unwrap().holders.is_empty(), "C11: {name:?} is still held");
    }
}

async fn c11_kinds_are_namespaces(env: Env) {
    let locker = env.locker().await;
    let flavors = [Flavor::Mutex, Flavor::Writer, Flavor::OnePermit];
    let flavors = || flavors.into_iter().filter(|flavor| flavor.is_in(locker.capabilities()));
    let mut held: Vec<LockGuard> = Vec::new();
    for name in ["a", "a:b", "mutex", "rwlock:a"] {
        for flavor in flavors() {
            let lock = flavor.lock(&locker, name, long()).unwrap();
            env.will_be_free(lock.name());
            held.push(take(&lock).await);
        }
    }
    for guard in held {
        guard.release().await.unwrap();
    }
}

async fn c11_bad_names_are_refused(env: Env) {
    let locker = env.locker().await;
    let long_name = "é".repeat(128);
    for bad in ["", &long_name, "a\nb", "\0", "\u{7f}", "\u{85}", "\t"] {
        let error = env.flavor().lock(&locker, bad, long()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{bad:?}: {error}");
    }
}
