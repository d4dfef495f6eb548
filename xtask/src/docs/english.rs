//! The rules of plain English, for documents and comments: short sentences, short cells, and no
//! words that hide the actor.

use std::path::Path;

use super::{
    Pages,
    comments::Comment,
    page::{Page, Spot},
};

const MOST_WORDS: usize = 25;
const MOST_WORDS_IN_A_CELL: usize = 12;
/// A sentence with such a beginning has no actor, unless it is a question.
const OPENINGS: [&str; 2] = ["Who", "What"];
/// Words and phrases that hide the actor, or that the field does not use.
const BANNED: [&str; 13] = [
    "is said of",
    "is told",
    "are told",
    "stand",
    "stands",
    "goes on",
    "go on",
    "has gone",
    "have gone",
    "anybody",
    "nobody",
    "everybody",
    "somebody",
];
/// Common and plain phrases that contain a banned word.
const ALLOWED: [&str; 2] = ["stand for", "stands for"];
/// Pages that a program writes, or that are in another language.
const EXEMPT: [&str; 2] = ["docs/benchmarks/report.md", "README.zh.md"];

/// Adds each sentence, heading and cell that breaks a rule.
pub(super) fn check(pages: &Pages, faults: &mut Vec<String>) {
    for (path, page) in pages {
        if EXEMPT.iter().any(|exempt| path == Path::new(exempt)) {
            continue;
        }
        check_page(path, 0, page, faults);
    }
}

/// As [`check`], for the comments of the code.
pub(super) fn check_comments(comments: &[Comment], faults: &mut Vec<String>) {
    for comment in comments {
        check_page(&comment.path, comment.line - 1, &comment.page, faults);
    }
}

/// A page that begins after `offset` lines of its file.
fn check_page(path: &Path, offset: usize, page: &Page, faults: &mut Vec<String>) {
    let mut fault = |line: usize, text: String| {
        faults.push(format!("{}:{}: {text}", path.display(), line + offset));
    };
    for spot in &page.prose {
        sentences(&spot.text).for_each(|sentence| {
            in_sentence(sentence).into_iter().for_each(|text| fault(spot.line, text));
        });
    }
    for cell in &page.cells {
        in_cell(cell).into_iter().for_each(|text| fault(cell.line, text));
    }
}

fn in_sentence(sentence: &str) -> Vec<String> {
    let mut found = banned(sentence);
    let count = count(sentence);
    if count > MOST_WORDS {
        found.push(format!("a sentence of {count} words, of at most {MOST_WORDS}: {sentence}"));
    }
    let first = sentence.split(|c: char| !c.is_alphabetic()).find(|word| !word.is_empty());
    let is_question = sentence.trim_end_matches(['"', '*', '_', ')']).ends_with('?');
    if !is_question && first.is_some_and(|first| OPENINGS.contains(&first)) {
        found.push(format!("a sentence that begins with Who or What: {sentence}"));
    }
    found
}

fn in_cell(cell: &Spot) -> Vec<String> {
    let mut found = banned(&cell.text);
    let count = count(&cell.text);
    if count > MOST_WORDS_IN_A_CELL {
        let text = &cell.text;
        found.push(format!("a cell of {count} words, of at most {MOST_WORDS_IN_A_CELL}: {text}"));
    }
    found
}

fn banned(text: &str) -> Vec<String> {
    let mut plain: String = text
        .to_lowercase()
        .chars()
        .map(|c| if c.is_alphanumeric() || c == '\'' { c } else { ' ' })
        .collect();
    plain = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    for allowed in ALLOWED {
        plain = plain.replace(&format!(" {allowed} "), " ");
    }
    BANNED
        .iter()
        .filter(|banned| plain.contains(&format!(" {banned} ")))
        .map(|banned| format!("the words {banned:?}: {text}"))
        .collect()
}

fn count(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

/// Parts that end with a full stop, a question or an exclamation mark before a blank.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.trim().is_empty() {
            return None;
        }
        let end = end_of_sentence(rest);
        let (sentence, next) = rest.split_at(end);
        rest = next;
        Some(sentence.trim())
    })
}

fn end_of_sentence(text: &str) -> usize {
    for (at, _) in text.match_indices(['.', '?', '!']) {
        let after = text.get(at + 1..).unwrap_or_default();
        let after = after.trim_start_matches(['"', '*', '_', ')', '’', '”']);
        if after.starts_with(char::is_whitespace) && !is_abbreviation(&text[..at]) {
            return text.len() - after.len();
        }
    }
    text.len()
}

fn is_abbreviation(before: &str) -> bool {
    ["e.g", "i.e", "etc", "vs", "no"]
        .iter()
        .any(|short| before.rsplit(char::is_whitespace).next() == Some(short))
}

#[cfg(test)]
mod tests {
    use super::{super::page::Page, *};

    fn faults_of(path: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check(&[(path.into(), Page::read(text))].into(), &mut faults);
        faults
    }

    fn faults(text: &str) -> Vec<String> {
        faults_of("docs/a.md", text)
    }

    #[test]
    fn a_plain_page_has_no_fault() {
        let text = "# The lease\n\nThe holder renews its lease. `SELECT` stands for itself: no.\n\n\
                    What is a lease? It is a time.\n\n| store | fair |\n|---|---|\n| Redis | yes |\n";
        assert_eq!(faults(text), [""; 0]);
    }

    #[test]
    fn each_rule_names_file_and_line() {
        let long = "word ".repeat(26);
        let cell = "word ".repeat(13);
        let cases = [
            (format!("# A\n\n{long}.\n"), "docs/a.md:3: a sentence of 26 words"),
            (format!("# A\n\n* one\n* {long}\n"), "docs/a.md:4: a sentence of 26 words"),
            (format!("# A\n\n|a|\n|---|\n|{cell}|\n"), "docs/a.md:5: a cell of 13 words"),
            ("# A\n\nA. Who waits, waits.\n".to_owned(), "docs/a.md:3: a sentence that begins"),
            ("# A\n\n## What is left\n".to_owned(), "docs/a.md:3: a sentence that begins"),
            (
                "# A\n\nThe caller\n*is\ntold* so.\n".to_owned(),
                "docs/a.md:3: the words \"is told\"",
            ),
            ("# A\n\n|a|\n|---|\n|Nobody|\n".to_owned(), "docs/a.md:5: the words \"nobody\""),
        ];
        for (text, expected) in cases {
            let found = faults(&text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].starts_with(expected), "{found:?}");
        }
    }

    #[test]
    fn a_fault_in_a_comment_has_the_line_of_its_file() {
        let page = Page::read("Fine.\n\nNobody.");
        let comment = Comment { path: "src/a.rs".into(), line: 10, page };
        let mut faults = Vec::new();
        check_comments(&[comment], &mut faults);
        assert_eq!(faults, ["src/a.rs:12: the words \"nobody\": Nobody."]);
    }

    #[test]
    fn code_and_links_count_as_their_text() {
        let code = "`SELECT a FROM b WHERE nobody stands for somebody` ".repeat(20);
        assert_eq!(faults(&format!("# A\n\n{code}.\n")), [""; 0]);
        let link = "[two words](a.md#who-is-told) ".repeat(12);
        assert_eq!(faults(&format!("# A\n\n{link}.\n")), [""; 0]);
        let block = format!("# A\n\n```sql\nWhat {}\n```\n", "word ".repeat(30));
        assert_eq!(faults(&block), [""; 0]);
    }

    #[test]
    fn the_report_and_the_chinese_readme_are_exempt() {
        for path in EXEMPT {
            assert_eq!(faults_of(path, "# A\n\nNobody.\n"), [""; 0]);
        }
    }
}
