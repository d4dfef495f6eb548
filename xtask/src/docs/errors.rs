//! Writes docs/errors.md: the kinds of errors with cause and remedy from the rustdoc of
//! `ErrorKind`, and the messages that the code has for each kind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, ensure};

use super::{
    literals::Token,
    messages::{self, Message},
};
use crate::files;

const KINDS: &str = "lockkit-core/src/error.rs";
const PAGE: &str = "docs/errors.md";
/// The folders of the libraries, with the heading of their messages.
const LIBRARIES: [(&str, &str); 6] = [
    ("lockkit-core", "every store"),
    ("lockkit-file", "files"),
    ("lockkit-mysql", "MySQL"),
    ("lockkit-quorum", "quorum"),
    ("lockkit-redis", "Redis"),
    ("lockkit-zk", "ZooKeeper"),
];
const HEAD: &str = "\
# Errors

`error.kind()` returns the kind. `cargo xtask docs --bless` writes this page from the code.

lockkit itself retries a *temporary* error within the bounds of the call. After an *unknown* outcome, the store may have
applied the request although no answer came. An error of any kind has an unknown outcome if an earlier attempt of the
same call has one. After a *known* outcome, the store has not applied the request. A release that fails in this way
leaves the lock taken until its lease ends, on ZooKeeper its session, unless it was lost before.

";

/// One variant of `ErrorKind`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kind {
    name: String,
    cause: String,
    remedy: String,
    outcome: String,
    is_temporary: bool,
}

/// Writes the page.
///
/// # Errors
/// A kind has no remedy or no outcome in its rustdoc. A file can't be read or written.
pub(super) fn write(root: &Path) -> Result<()> {
    fs::write(root.join(PAGE), page(root)?).context(PAGE)
}

/// Compares the page with the code.
///
/// # Errors
/// As [`write()`], and if the page differs.
pub(super) fn check(root: &Path) -> Result<()> {
    let found = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    ensure!(found == page(root)?, "{PAGE} differs from the code; run `cargo xtask docs --bless`");
    Ok(())
}

fn page(root: &Path) -> Result<String> {
    let kinds = kinds(&fs::read_to_string(root.join(KINDS)).context(KINDS)?)?;
    let mut text = HEAD.to_owned();
    text += "| kind | temporary | outcome |\n|---|---|---|\n";
    for kind in &kinds {
        let temporary = if kind.is_temporary { "yes" } else { "no" };
        let outcome = kind.outcome.trim_end_matches('.');
        text += &format!(
            "| [`{0}`](#{1}) | {temporary} | {outcome} |\n",
            kind.name,
            kind.name.to_lowercase()
        );
    }
    let mut messages = messages_of(root)?;
    for kind in &kinds {
        text += &format!("\n## {}\n\n{}\n\n**Remedy:** {}\n", kind.name, kind.cause, kind.remedy);
        let of_kind = messages.remove(&kind.name).unwrap_or_default();
        for (_, library) in LIBRARIES {
            let Some(texts) = of_kind.get(library) else { continue };
            text += &format!("\nMessages of {library}:\n\n");
            texts.iter().for_each(|message| text += &format!("* {}\n", code(message)));
        }
    }
    // The remaining messages belong to another `ErrorKind`, such as a driver's.
    Ok(text)
}

/// Code in a line, which may contain backticks.
fn code(text: &str) -> String {
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

/// By kind, then by library.
type ByKind = BTreeMap<String, BTreeMap<&'static str, BTreeSet<String>>>;

fn messages_of(root: &Path) -> Result<ByKind> {
    let mut found = ByKind::new();
    for (folder, library) in LIBRARIES {
        for file in files::with_extension(&root.join(folder).join("src"), "rs")? {
            if is_for_tests(file.strip_prefix(root)?) {
                continue;
            }
            let source = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            for Message { kind, text } in messages::of(&Token::read(&source)) {
                found.entry(kind).or_default().entry(library).or_default().insert(text);
            }
        }
    }
    Ok(found)
}

fn is_for_tests(file: &Path) -> bool {
    file.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        let name = name.trim_end_matches(".rs");
        matches!(name, "tests" | "fake" | "properties") || name.ends_with("_tests")
    })
}

/// The variants of `ErrorKind` in its source. The rustdoc of each has the cause, then a list of
/// **Remedy:** and **Outcome:**.
fn kinds(source: &str) -> Result<Vec<Kind>> {
    let (_, body) = source.split_once("pub enum ErrorKind {\n").context("no ErrorKind")?;
    let (body, after) = body.split_once("\n}\n").context("no end of ErrorKind")?;
    let (_, statuses) = after.split_once("match kind {").context("no statuses of kinds")?;
    let (temporary, _) =
        statuses.split_once("=> ErrorStatus::Temporary").context("no temporary kinds")?;
    let is_temporary = |name: &str| {
        temporary.split('|').any(|kind| kind.trim().strip_prefix("ErrorKind::") == Some(name))
    };
    let mut kinds = Vec::new();
    let mut doc = String::new();
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc += text.strip_prefix(' ').unwrap_or(text);
            doc.push('\n');
        } else if let Some(name) = line.strip_suffix(',') {
            kinds.push(kind(name, &doc, is_temporary(name)).with_context(|| name.to_owned())?);
            doc.clear();
        }
    }
    Ok(kinds)
}

fn kind(name: &str, doc: &str, is_temporary: bool) -> Result<Kind> {
    let (cause, list) = doc.split_once("* **Remedy:**").context("its rustdoc has no remedy")?;
    let (remedy, outcome) =
        list.split_once("* **Outcome:**").context("its rustdoc has no outcome")?;
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Kind {
        name: name.to_owned(),
        // This takes only the first paragraph. The others are for readers of the rustdoc.
        cause: without_links(&one_line(cause.split("\n\n").next().unwrap_or_default())),
        remedy: capitalised(&one_line(remedy)),
        outcome: one_line(outcome),
        is_temporary,
    })
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Replaces links to Rust items by their text.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((item, after)) = after.split_once("`]") else { break };
        plain += before;
        plain += &format!("`{item}`");
        rest =
            after.strip_prefix('(').and_then(|link| link.split_once(')')).map_or(after, |it| it.1);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::{super::tests::Tree, *};

    const SOURCE: &str = "\
pub enum ErrorKind {
    /// The [`Locker`](crate::Locker) was
    /// shut down.
    ///
    /// More for programmers.
    ///
    /// * **Remedy:** make a new
    ///   locker.
    /// * **Outcome:** known.
    Closed,
    /// The store is full.
    ///
    /// * **Remedy:** free space.
    /// * **Outcome:** unknown.
    StoreFull,
}
fn status() {
    match kind {
        ErrorKind::StoreFull => ErrorStatus::Temporary,
    }
    Error::new(ErrorKind::Closed, \"the locker was shut down\");
}
";

    fn tree() -> Tree {
        let mut files = vec![(KINDS, SOURCE), (PAGE, "old")];
        let others: Vec<_> =
            LIBRARIES.iter().map(|(folder, _)| format!("{folder}/src/lib.rs")).collect();
        files.extend(others.iter().map(|file| (file.as_str(), "")));
        Tree::with(&files)
    }

    #[test]
    fn the_page_has_each_kind_with_cause_remedy_and_messages() {
        let tree = tree();
        assert!(check(tree.root()).is_err());
        write(tree.root()).unwrap();
        check(tree.root()).unwrap();
        let page = fs::read_to_string(tree.root().join(PAGE)).unwrap();
        assert!(page.contains("| [`Closed`](#closed) | no | known |\n"), "{page}");
        assert!(page.contains("| [`StoreFull`](#storefull) | yes | unknown |\n"), "{page}");
        let closed = "\n## Closed\n\nThe `Locker` was shut down.\n\n**Remedy:** Make a new locker.\n\
                      \nMessages of every store:\n\n* `the locker was shut down`\n";
        assert!(page.contains(closed), "{page}");
    }

    #[test]
    fn a_kind_without_a_remedy_is_an_error() {
        let without = SOURCE.replace("/// * **Remedy:** free space.\n", "");
        assert!(kinds(&without).is_err());
        assert_eq!(kinds(SOURCE).unwrap().len(), 2);
    }
}
