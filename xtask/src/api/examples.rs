//! Checks that each type that users need first has an example in its documentation.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::listing;

const MAIN: [(&str, &[&str]); 6] = [
    (
        "lockkit-core",
        &[
            "Clock",
            "Connector",
            "Election",
            "Error",
            "Expiring",
            "FencingToken",
            "LeaderWatch",
            "Leadership",
            "LockGuard",
            "LockName",
            "LockOptions",
            "Locker",
            "Lost",
            "Memory",
            "Metrics",
            "MultiGuard",
            "Mutex",
            "MutexSet",
            "Note",
            "Observer",
            "Once",
            "Owner",
            "OwnerId",
            "ReentrantMutex",
            "Registry",
            "ReleaseRequest",
            "Renewal",
            "RwLock",
            "Semaphore",
            "Settings",
            "StoreUrl",
        ],
    ),
    ("lockkit-file", &["Config", "FileStore", "SessionFile"]),
    ("lockkit-mysql", &["Config", "LockTransaction", "MySql"]),
    ("lockkit-quorum", &["Quorum"]),
    ("lockkit-redis", &["Config", "Redis"]),
    ("lockkit-zk", &["Config", "ZooKeeper"]),
];

/// The types of this list without an example.
///
/// # Errors
/// rustdoc's output can't be read.
pub(super) fn faults(folder: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (name, types) in MAIN {
        let json = listing::json(folder, name)?;
        let without = types.iter().filter(|wanted| !has_example(&json, wanted));
        faults.extend(
            without.map(|wanted| format!("{name}: {wanted} has no example in its documentation")),
        );
    }
    Ok(faults)
}

/// Looks only at the crate's own items, because others have the same names.
fn has_example(json: &Value, wanted: &str) -> bool {
    let items = json["index"].as_object().into_iter().flat_map(|items| items.values());
    items
        .filter(|item| {
            item["crate_id"] == 0 && item["visibility"] == "public" && item["name"] == wanted
        })
        .filter(|item| {
            ["enum", "struct", "trait"].iter().any(|kind| item["inner"].get(kind).is_some())
        })
        .any(|item| item["docs"].as_str().is_some_and(is_shown))
}

/// Whether the text has a block of code that rustdoc compiles. Every second fence ends a block.
fn is_shown(docs: &str) -> bool {
    let mut begins = docs.lines().filter_map(|line| line.strip_prefix("```")).step_by(2);
    begins.any(|language| matches!(language, "" | "no_run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_a_block_of_code_in_the_types_own_text() {
        let json = |docs: &str, kind: &str| {
            serde_json::json!({"index": {"7": {
                "crate_id": 0, "visibility": "public", "name": "Mutex", "docs": docs, "inner": {kind: {}}
            }}})
        };
        assert!(has_example(&json("A lock.\n\n```\nlet a = 1;\n```", "struct"), "Mutex"));
        assert!(has_example(&json("```no_run\nlet a = 1;\n```", "trait"), "Mutex"));
        assert!(!has_example(&json("A lock.", "struct"), "Mutex"));
        assert!(!has_example(&json("```text\nA lock.\n```\nThat is all.", "struct"), "Mutex"));
        assert!(!has_example(&json("```\n```", "function"), "Mutex"));
    }
}
