//! Checks that existing tests, or a linked page, prove the guarantees, and that all other pages
//! name existing tests.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::Pages;

/// The head of the column that names the tests of each row.
const SHOWN: &str = "tests";
/// The text that replaces a proof if there is none.
const NOT_TESTED: &str = "not tested";
/// Settings of servers that look like names of tests.
const SETTINGS: [&str; 4] = ["group_replication_", "innodb_", "rpl_", "wsrep_"];
/// The least number of words in the name of a test that does not begin with a promise.
const LEAST_WORDS: usize = 4;

/// Adds the names of tests that do not exist, and the rows of tables that name no proof.
pub(super) fn check(pages: &Pages, tests: &Tests, faults: &mut Vec<String>) {
    for (path, page) in pages {
        let is_a_promise = is_about_guarantees(path);
        for code in &page.codes {
            let name = code.text.as_str();
            // On other pages, plain words with `_` in between need not be names of tests.
            let is_meant = if is_a_promise { is_test_name(name) } else { is_numbered(name) };
            if is_meant && !tests.0.contains(name) {
                faults.push(format!("{}:{}: there is no test {name}", path.display(), code.line));
            }
        }
        if !is_a_promise {
            continue;
        }
        let shown = page.tables.iter().filter(|table| table.head.contains(SHOWN));
        for row in shown.flat_map(|table| &table.rows) {
            let codes = page.codes.get(row.codes.clone()).unwrap_or_default();
            let is_shown = !row.links.is_empty()
                || codes.iter().any(|code| is_test_name(&code.text))
                || row.text.contains(NOT_TESTED);
            if !is_shown {
                let text: String = row.text.chars().take(60).collect();
                faults.push(format!(
                    "{}:{}: the row has no test, no link and not the words {NOT_TESTED:?}: {text}",
                    path.display(),
                    row.line
                ));
            }
        }
    }
}

fn is_about_guarantees(path: &Path) -> bool {
    path.starts_with("docs/stores")
}

/// Whether it is `c4_…`, or at least four words with `_` in between.
fn is_test_name(text: &str) -> bool {
    is_numbered(text)
        || is_name(text)
            && text.split('_').count() >= LEAST_WORDS
            && !SETTINGS.iter().any(|start| text.starts_with(start))
}

/// Whether it is `c4_…`, which begins with the number of a promise.
fn is_numbered(text: &str) -> bool {
    let number = text.strip_prefix('c').and_then(|rest| rest.split_once('_')?.0.parse::<u8>().ok());
    is_name(text) && number.is_some()
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.split('_').all(|word| !word.is_empty() && word.chars().all(is_part))
}

/// The names of all functions, and of tests that a program registers by a text.
#[derive(Debug, Default)]
pub(super) struct Tests(HashSet<String>);

impl Tests {
    /// Reads these sources.
    ///
    /// # Errors
    /// A file can't be read.
    pub(super) fn read(files: &[PathBuf]) -> Result<Self> {
        let mut tests = Self::default();
        for file in files {
            let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
            tests.add(&text);
        }
        Ok(tests)
    }

    fn add(&mut self, source: &str) {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut last = "";
        for (start, word) in words(source, is_part) {
            let before = source.get(..start).and_then(|text| text.chars().next_back());
            let after = source.get(start + word.len()..).and_then(|text| text.chars().next());
            if last == "fn" || matches!(before, Some('"' | ':')) && after == Some('"') {
                self.0.insert(word.to_owned());
            }
            last = word;
        }
    }
}

/// The words of a text, with the places where they begin.
fn words(text: &str, is_part: fn(char) -> bool) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + text.get(rest..)?.find(is_part)?;
        let word = text.get(start..)?.split(|c| !is_part(c)).next()?;
        rest = start + word.len();
        Some((start, word))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::page::Page, *};

    const SOURCE: &str = r#"
        /// Not c4_only_a_comment.
        async fn c4_tokens_rise(flavor: Flavor) { trial("c3_a_lease_ends_in_time", leases); }
        fn plain_words_make_one_name() { Trial::test(format!("{name}::c9_a_holder_is_followed"), run); }
        fn other() { c1_is_only_called(); }
    "#;

    fn faults(path: &str, text: &str) -> Vec<String> {
        let mut tests = Tests::default();
        let mut faults = Vec::new();
        tests.add(SOURCE);
        check(&[(path.into(), Page::read(text))].into(), &tests, &mut faults);
        faults
    }

    #[test]
    fn tests_that_exist_are_found() {
        for name in [
            "c4_tokens_rise",
            "c3_a_lease_ends_in_time",
            "c9_a_holder_is_followed",
            "plain_words_make_one_name",
        ] {
            assert_eq!(
                faults("docs/stores/README.md", &format!("It holds (`{name}`).\n")),
                [""; 0]
            );
        }
        let settings = "`innodb_flush_log_at_trx_commit`, `wait_replicas`, `C4_X_Y_Z`, `a_b c_d_e`, `c4`, `c4_`\n";
        assert_eq!(faults("docs/stores/mysql.md", settings), [""; 0]);
    }

    #[test]
    fn tests_that_are_not_there_are_named() {
        for name in
            ["c4_tokens_fall", "c4_only_a_comment", "c1_is_only_called", "there_is_no_such_test"]
        {
            for path in ["docs/stores/README.md", "docs/stores/files.md"] {
                let faults =
                    faults(path, &format!("\n| a | tests |\n|---|---|\n| x | `{name}` |\n"));
                assert_eq!(faults, [format!("{path}:4: there is no test {name}")]);
            }
        }
        for (name, count) in [("c4_tokens_fall", 1), ("there_is_no_such_test", 0)] {
            assert_eq!(
                faults("docs/cli.md", &format!("`{name}`\n")).len(),
                count,
                "{name}: no guarantee"
            );
        }
    }

    #[test]
    fn a_row_without_a_proof_is_named() {
        let table = |row: &str| format!("| a | tests |\n|---|---|\n| {row} |\n");
        for row in [
            "x | `c4_tokens_rise`",
            "x | [manual](https://example.org)",
            "[below](#a) | x",
            "x | not tested",
        ] {
            assert_eq!(faults("docs/stores/a.md", &table(row)), [""; 0], "{row}");
        }
        let facts = table("x | –").replace("tests", "default");
        assert_eq!(faults("docs/stores/a.md", &facts), [""; 0], "no table of guarantees");
        for row in ["x | –", "x | `appendfsync always`", "x | `innodb_flush_log_at_trx_commit`"] {
            let text =
                format!("`c4_tokens_rise` [above](#a)\n\n{}\n`c4_tokens_rise`\n", table(row));
            let faults = faults("docs/stores/a.md", &text);
            assert!(
                faults.len() == 1 && faults[0].starts_with("docs/stores/a.md:5: "),
                "{row}: {faults:?}"
            );
        }
    }
}
