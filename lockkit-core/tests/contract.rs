//! Checks that links into the contract have targets, and that the code links each promise that it
//! keeps.

use std::{fs, path::Path};

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The number and the title of each promise, from headings: `# C1: exclusion`.
fn promises() -> Vec<(String, String)> {
    let text = read(&folder().join("src/contract.md"));
    let heads = text.lines().filter_map(|line| line.strip_prefix("# C")?.split_once(": "));
    heads.map(|(number, title)| (format!("C{number}"), title.to_owned())).collect()
}

#[test]
fn the_contract_has_fourteen_promises_in_order() {
    let numbers: Vec<_> = promises().into_iter().map(|(number, _)| number).collect();
    let expected: Vec<_> = (1..=14).map(|n| format!("C{n}")).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn each_promise_is_linked_from_where_it_is_kept_and_no_other() {
    let mut anchors: Vec<_> = promises()
        .iter()
        .map(|(number, title)| format!("{}-{title}", number.to_lowercase()))
        .collect();
    anchors.sort_unstable();
    let mut linked = Vec::new();
    let mut folders = vec![folder().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = read(&path);
                let found = text
                    .split("crate::contract#")
                    .skip(1)
                    .filter_map(|rest| rest.split(')').next());
                linked.extend(found.map(str::to_owned));
            }
        }
    }
    linked.sort_unstable();
    linked.dedup();
    assert_eq!(linked, anchors);
}
