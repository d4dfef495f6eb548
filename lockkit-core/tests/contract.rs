//! The contract of the documentation is the one of the repository, and links into it lead
//! somewhere.

use std::{fs, path::Path};

/// Number, title and text.
type Promise = (String, String, String);

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// From the rows of a table: `| C1 exclusion | At every instant … |`.
fn of_the_repository() -> Vec<Promise> {
    let text = read(&folder().join("../docs/contract.md"));
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| C")?.strip_suffix(" |")?.split_once(" | "));
    rows.map(|(head, text)| {
        let (number, title) = head.split_once(' ').unwrap();
        (format!("C{number}"), title.to_owned(), words(text))
    })
    .collect()
}

/// From headings: `# C1: exclusion`.
fn of_the_package() -> Vec<Promise> {
    let text = read(&folder().join("src/contract.md"));
    let sections = text.strip_prefix("# ").unwrap().split("\n# ");
    sections
        .map(|section| {
            let (head, text) = section.split_once('\n').unwrap();
            let (number, title) = head.split_once(": ").unwrap();
            (number.to_owned(), title.to_owned(), words(text))
        })
        .collect()
}

#[test]
fn the_documentation_has_the_contract_of_the_repository() {
    let expected = of_the_repository();
    assert_eq!(expected.len(), 14);
    assert_eq!(of_the_package(), expected, "src/contract.md must say what docs/contract.md does");
}

#[test]
fn each_promise_is_linked_from_where_it_is_kept_and_no_other() {
    let promises = of_the_package();
    let mut anchors: Vec<_> = promises
        .iter()
        .map(|(number, title, _)| format!("{}-{title}", number.to_lowercase()))
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
