//! Checks that the target of each link inside the repository exists, and that the summary of docs/
//! links to each page. It parses links to other places, but does not follow them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

use url::Url;

use super::{Pages, page::Page};

const SUMMARY: &str = "docs/SUMMARY.md";

/// Adds the faults of the links in these pages under `root`.
pub(super) fn check(root: &Path, pages: &Pages, faults: &mut Vec<String>) {
    for (path, page) in pages {
        for link in &page.links {
            if let Err(why) = follow(root, pages, path, &link.text) {
                faults.push(format!(
                    "{}:{}: the link {:?} {why}",
                    path.display(),
                    link.line,
                    link.text
                ));
            }
        }
    }
    if let Some(summary) = pages.get(Path::new(SUMMARY)) {
        faults.extend(not_in_summary(summary, pages));
    }
}

/// Adds the pages that the summary lacks, because the book does not contain them.
fn not_in_summary(summary: &Page, pages: &Pages) -> Vec<String> {
    let links = summary.links.iter().filter_map(|link| beside(Path::new(SUMMARY), &link.text));
    let listed: Vec<PathBuf> = links.collect();
    pages
        .keys()
        .filter(|path| path.starts_with("docs") && *path != Path::new(SUMMARY))
        .filter(|path| !listed.contains(path))
        .map(|path| format!("{SUMMARY}: has no link to {}", path.display()))
        .collect()
}

fn follow(
    root: &Path,
    pages: &BTreeMap<PathBuf, Page>,
    from: &Path,
    target: &str,
) -> Result<(), String> {
    if target.contains(':') {
        return elsewhere(target);
    }
    if target.starts_with('/') {
        return Err("is not relative".to_owned());
    }
    let (place, anchor) = match target.split_once('#') {
        Some((place, anchor)) => (place, Some(anchor)),
        None => (target, None),
    };
    let path = if place.is_empty() { Some(from.to_owned()) } else { beside(from, place) };
    let path = path.ok_or("leads out of the repository")?;
    if !root.join(&path).exists() {
        return Err("has no target".to_owned());
    }
    let Some(anchor) = anchor else { return Ok(()) };
    let found = match pages.get(&path) {
        Some(page) => page.has_anchor(anchor),
        None => is_line(&root.join(&path), anchor),
    };
    if found { Ok(()) } else { Err(format!("has an anchor that {} lacks", path.display())) }
}

fn elsewhere(target: &str) -> Result<(), String> {
    match Url::parse(target) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.host().is_some() => Ok(()),
        Ok(url) => Err(format!("has the scheme {}, which readers can't follow", url.scheme())),
        Err(error) => Err(format!("is not a URL: {error}")),
    }
}

/// A path from the root. Returns `None` if it leaves the root.
fn beside(from: &Path, place: &str) -> Option<PathBuf> {
    let mut path = from.parent()?.to_owned();
    for part in Path::new(place).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir if !path.pop() => return None,
            _ => {}
        }
    }
    Some(path)
}

/// Whether the anchor is `#L7` or `#L7-L9` of a source file.
fn is_line(file: &Path, anchor: &str) -> bool {
    let Ok(text) = fs::read_to_string(file) else { return false };
    let lines = text.lines().count();
    let number = |part: &str| part.strip_prefix('L')?.parse::<usize>().ok();
    anchor.split('-').all(|part| number(part).is_some_and(|number| (1..=lines).contains(&number)))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::Tree, *};

    fn faults(tree: &Tree) -> Vec<String> {
        let mut faults = Vec::new();
        check(tree.root(), &tree.pages(), &mut faults);
        faults
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        let tree = Tree::with(&[
            (
                "docs/a.md",
                "# Top\n[b](b.md#two-words) [here](#top) [up](../README.md) [folder](../src/)\n",
            ),
            (
                "docs/b.md",
                "## Two words\n[code](../src/lib.rs#L1-L2) <https://example.org/x#y> <a \
                 id=\"mark\"></a>\n",
            ),
            (
                "README.md",
                "[mark](docs/b.md#mark)\n\n```text\n[no](link.md)\n```\n`[nor](this.md)`\n",
            ),
            ("src/lib.rs", "//!\n//!\n"),
        ]);
        assert_eq!(faults(&tree), [""; 0]);
    }

    #[test]
    fn each_link_that_leads_nowhere_is_named_with_its_line() {
        for (link, why) in [
            ("gone.md", "has no target"),
            ("b.md#three", "an anchor that docs/b.md lacks"),
            ("#three", "an anchor that docs/a.md lacks"),
            ("../../other/README.md", "out of the repository"),
            ("/docs/b.md", "is not relative"),
            ("../src/lib.rs#L2", "an anchor that src/lib.rs lacks"),
            ("https://", "not a URL"),
            ("file:///etc/passwd", "the scheme file"),
            ("crate::Locker", "scheme crate"),
        ] {
            let text = format!("# One\n\n[a link]({link})\n");
            let tree = Tree::with(&[
                ("docs/a.md", &text),
                ("docs/b.md", "# Two\n"),
                ("src/lib.rs", "//!\n"),
            ]);
            let faults = faults(&tree);
            assert!(
                faults.len() == 1
                    && faults[0].starts_with("docs/a.md:3: ")
                    && faults[0].contains(why),
                "{link}: {faults:?}"
            );
        }
    }

    #[test]
    fn a_page_that_the_summary_leaves_out_is_named() {
        let tree = Tree::with(&[
            (SUMMARY, "- [a](a.md)\n- [b](stores/b.md)\n"),
            ("docs/a.md", "# A\n"),
            ("docs/stores/b.md", "# B\n"),
            ("docs/stores/c.md", "# C\n"),
            ("README.md", "# Read me\n"),
        ]);
        let expected = "docs/SUMMARY.md: has no link to docs/stores/c.md";
        assert_eq!(faults(&tree), [expected]);
    }
}
