//! Checks which crates' types a library shows, because a new major version of such a crate forces a
//! new major version of ours.

/// Crates of Rust and of lockkit. `futures_core` is there for its `BoxFuture`, an alias of std's
/// types.
const ALWAYS: [&str; 8] =
    ["alloc", "core", "futures_core", "i64", "lockkit_core", "lockkit_quorum", "std", "u64"];

/// Other crates that each crate may show. The backend that shows a driver re-exports it. The core
/// implements a trait of serde for its own types.
const OTHERS: [(&str, &str); 4] = [
    ("lockkit-core", "serde_core"),
    ("lockkit-mysql", "mysql_async"),
    ("lockkit-redis", "redis"),
    ("lockkit-zk", "zookeeper_client"),
];

/// The lines with a type of any other crate.
pub(super) fn faults(name: &str, listing: &[String]) -> Vec<String> {
    let own = name.replace('-', "_");
    let is_allowed =
        |root: &str| root == own || ALWAYS.contains(&root) || OTHERS.contains(&(name, root));
    let mut faults = Vec::new();
    for line in listing {
        if let Some(root) = roots(line).find(|root| !is_allowed(root)) {
            faults.push(format!("{name} must not show a type of {root}: {line}"));
        }
    }
    faults
}

/// The crates at the beginnings of a line's paths. `T::Output` and `<T as Trait>::Output` name
/// none.
fn roots(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':'))
        .filter_map(|word| word.split_once("::"))
        .map(|(root, _)| root)
        .filter(|root| root.starts_with(|letter: char| letter.is_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drivers_type_is_for_its_backend_alone() {
        let line =
            ["pub fn lockkit_core::b() -> core::result::Result<redis::aio::Connection, T::Error>"
                .to_owned()];
        assert!(faults("lockkit-redis", &line).is_empty());
        let fault = format!("lockkit-core must not show a type of redis: {}", line[0]);
        assert_eq!(faults("lockkit-core", &line), [fault]);
    }
}
