//! Checks that a README in two languages has the same content: the same structure, and the same
//! parts that no language changes.

use std::path::Path;

use super::{
    Pages,
    page::{Block, Page},
};

const ENGLISH: &str = "README.md";
const CHINESE: &str = "README.zh.md";

/// Adds the differences of the two.
pub(super) fn check(pages: &Pages, faults: &mut Vec<String>) {
    let page = |name: &str| pages.get(Path::new(name));
    match (page(ENGLISH), page(CHINESE)) {
        (Some(english), Some(chinese)) => compare(english, chinese, faults),
        (english, _) => {
            let name = if english.is_some() { CHINESE } else { ENGLISH };
            faults.push(format!("{name} is missing; the README must exist in two languages"));
        }
    }
}

fn compare(english: &Page, chinese: &Page, faults: &mut Vec<String>) {
    let mut differ = |what: &str, there: &str, here: &str| {
        if there != here {
            faults.push(format!("{CHINESE} has {what} {here}, but {ENGLISH} has {there}"));
        }
    };
    let levels =
        |page: &Page| format!("{:?}", page.headings.iter().map(|it| it.level).collect::<Vec<_>>());
    differ("headings of the levels", &levels(english), &levels(chinese));
    let shape = |page: &Page| {
        let sizes =
            page.tables.iter().map(|table| format!("{}×{}", table.rows.len(), table.columns));
        sizes.collect::<Vec<_>>().join(", ")
    };
    differ("tables of the sizes", &shape(english), &shape(chinese));
    let there = english.blocks.len().to_string();
    let here = chinese.blocks.len().to_string();
    differ("blocks of code, in number", &there, &here);
    for (there, here) in english.blocks.iter().zip(&chinese.blocks) {
        let what = format!("at line {} the code", here.line);
        differ(&what, &format!("{:?}", bare(there)), &format!("{:?}", bare(here)));
    }
    links(&targets(english, CHINESE), &targets(chinese, ENGLISH), faults);
}

fn links(english: &[String], chinese: &[String], faults: &mut Vec<String>) {
    for (name, mine, other) in [(ENGLISH, english, chinese), (CHINESE, chinese, english)] {
        let mut rest = other.to_vec();
        for target in mine {
            match rest.iter().position(|candidate| candidate == target) {
                Some(index) => {
                    rest.remove(index);
                }
                None => faults.push(format!("{name} has a link that its twin lacks: {target}")),
            }
        }
    }
}

/// The targets of the links, in order. Headings are numbers, because each language has its own
/// names for them. The other README has a special name.
fn targets(page: &Page, twin: &str) -> Vec<String> {
    let mut targets: Vec<_> =
        page.links.iter().map(|link| target(page, twin, &link.text)).collect();
    targets.sort();
    targets
}

fn target(page: &Page, twin: &str, link: &str) -> String {
    if link == twin {
        return "the other README".to_owned();
    }
    let place = |anchor: &str| page.headings.iter().position(|heading| heading.anchor == anchor);
    match link.strip_prefix('#').and_then(place) {
        Some(index) => format!("heading {}", index + 1),
        None => link.to_owned(),
    }
}

/// The language, and the code without the text of its comments.
fn bare(block: &Block) -> (&str, Vec<String>) {
    let sign = match block.language.split([',', ' ']).next().unwrap_or_default() {
        "java" | "json" | "rust" => Some("//"),
        "console" | "sh" | "toml" | "yaml" => Some("#"),
        "sql" => Some("--"),
        _ => None,
    };
    let line = |line: &str| sign.map_or_else(|| line.to_owned(), |sign| silent(line, sign));
    (&block.language, block.text.lines().map(line).collect())
}

/// Removes the text of a comment. A comment begins the line or follows a blank, so URLs and the `#`
/// of a link are not comments. A blank follows its sign, so `#[test]` is not a comment.
fn silent(line: &str, sign: &str) -> String {
    let is_comment = |index: usize| {
        let before = line.get(..index);
        let after = line.get(index + sign.len()..);
        before.is_some_and(|text| text.is_empty() || text.ends_with(' '))
            && after.is_some_and(|text| text.is_empty() || text.starts_with(' '))
    };
    match line.match_indices(sign).map(|(index, _)| index).find(|&index| is_comment(index)) {
        Some(index) => line.get(..index + sign.len()).unwrap_or(line).to_owned(),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "# lockkit\n\n[中文](README.zh.md), [stores](#the-stores), [docs](docs/a.md)\n\n\
        ## The stores\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n\
        ```sh\ncargo run -- redis://127.0.0.1/#x   # in one go\n# alone\n#!/bin/sh\n```\n\
        ```rust\nlet url = \"redis://h/\"; // or else\n# hidden();\n```\n\
        ```sql\nSELECT 1; -- one\n```\n```text\n# as it is\n```\n";

    fn chinese() -> String {
        [
            ("[中文](README.zh.md)", "[English](README.md)"),
            ("[stores](#the-stores), [docs](docs/a.md)", "[文档](docs/a.md)，[存储](#存储)"),
            ("## The stores", "## 存储"),
            ("| 1 | 2 |", "| 一 | 二 |"),
            ("# in one go\n# alone", "# 一次\n# 单独"),
            ("// or else", "// 或者"),
            ("-- one", "-- 一"),
        ]
        .iter()
        .fold(README.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    fn faults(chinese: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let pages = [(ENGLISH, README), (CHINESE, chinese)];
        check(&pages.map(|(name, text)| (name.into(), Page::read(text))).into(), &mut faults);
        faults
    }

    #[test]
    fn a_translation_of_words_alone_is_equal() {
        assert_eq!(faults(&chinese()), [""; 0]);
    }

    #[test]
    fn each_other_difference_is_reported() {
        for (from, to, told) in [
            ("## 存储", "### 存储", "headings of the levels [H1, H3]"),
            ("| 一 | 二 |\n", "| 一 | 二 |\n| 三 | 四 |\n", "tables of the sizes 2×2"),
            ("cargo run", "cargo test", "the code"),
            ("redis://127.0.0.1/#x", "redis://127.0.0.1/#y", "the code"),
            ("# hidden()", "# shown()", "the code"),
            ("#!/bin/sh", "#!/bin/bash", "the code"),
            ("// 或者", "", "the code"),
            ("\"redis://h/\"", "\"redis://i/\"", "the code"),
            ("# as it is", "# 原样", "the code"),
            ("```sql\nSELECT 1; -- 一\n```\n", "", "blocks of code, in number 3"),
            ("```sql", "```text", "the code"),
            ("(docs/a.md)", "(docs/b.md)", "a link that its twin lacks: docs/a.md"),
            ("[存储](#存储)", "[存储](#lockkit)", "a link that its twin lacks: heading 1"),
            ("[English](README.md)", "English", "a link that its twin lacks: the other README"),
        ] {
            let right = chinese();
            let faults = |text: &str| faults(text);
            assert!(right.contains(from), "{from}");
            let faults = faults(&right.replace(from, to));
            assert!(faults.iter().any(|fault| fault.contains(told)), "{from} to {to}: {faults:?}");
        }
    }

    #[test]
    fn a_missing_language_is_reported() {
        let mut faults = Vec::new();
        check(&[(ENGLISH.into(), Page::read(README))].into(), &mut faults);
        assert!(
            faults.len() == 1 && faults[0].starts_with("README.zh.md is missing"),
            "{faults:?}"
        );
    }
}
