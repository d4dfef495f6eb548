//! Checks the documents. Each link has a target, each guarantee names its tests, and the READMEs of
//! two languages agree. The English is plain, and the page of errors matches the code.

mod anchor;
mod comments;
mod english;
mod errors;
mod link;
mod literals;
mod messages;
mod page;
mod proof;
mod twin;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use self::{page::Page, proof::Tests};
use crate::{files, run::root};

/// All pages, by their paths from the root.
type Pages = BTreeMap<PathBuf, Page>;

/// Checks all Markdown files of the workspace. With `bless`, first writes docs/errors.md.
///
/// # Errors
/// Names each fault with its file and line.
pub(crate) fn run(bless: bool) -> Result<()> {
    if bless {
        errors::write(root())?;
    }
    errors::check(root())?;
    let checked = check(root())?;
    println!("    docs: {checked} pages, ok");
    Ok(())
}

fn check(root: &Path) -> Result<usize> {
    let pages = pages(root)?;
    // The tests of these rules contain invented names, which prove nothing.
    let mut sources = files::with_extension(root, "rs")?;
    sources.retain(|file| !file.starts_with(root.join("xtask")));
    let mut faults = Vec::new();
    link::check(root, &pages, &mut faults);
    proof::check(&pages, &Tests::read(&sources)?, &mut faults);
    twin::check(&pages, &mut faults);
    english::check(&pages, &mut faults);
    english::check_comments(&comments::read(root)?, &mut faults);
    if faults.is_empty() {
        Ok(pages.len())
    } else {
        bail!("the documents have faults:\n  {}", faults.join("\n  "))
    }
}

fn pages(root: &Path) -> Result<Pages> {
    let page = |file: PathBuf| {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok((file.strip_prefix(root)?.to_owned(), Page::read(&text)))
    };
    files::with_extension(root, "md")?.into_iter().map(page).collect()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A repository with these files.
    pub(super) struct Tree(TempDir);

    impl Tree {
        pub(super) fn with(files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for (place, text) in files {
                let path = tree.root().join(place);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            tree
        }

        pub(super) fn root(&self) -> &Path {
            self.0.path()
        }

        pub(super) fn pages(&self) -> Pages {
            pages(self.root()).unwrap()
        }
    }

    #[test]
    fn each_rule_is_asked() {
        let good = [
            ("README.md", "# lockkit\n[中文](README.zh.md)\n"),
            ("README.zh.md", "# lockkit\n[English](README.md)\n"),
            ("docs/stores/README.md", "| tests |\n|---|\n| `c4_tokens_rise` |\n"),
            ("tests/tokens.rs", "fn c4_tokens_rise() {}\n"),
            ("xtask/src/tests.rs", "fn c4_tokens_fall() {}\n"),
            ("target/doc/index.md", "[nowhere](gone.md)\n"),
        ];
        assert_eq!(check(Tree::with(&good).root()).unwrap(), 3);
        for (file, text, told) in [
            (
                "README.md",
                "# lockkit\n[中文](README.zh.md) <b/> [x](gone.md)\n",
                "README.md:2: the link",
            ),
            ("README.zh.md", "## lockkit\n[English](README.md)\n", "headings of the levels [H2]"),
            ("docs/stores/README.md", "Nobody.\n", "docs/stores/README.md:1: the words"),
            ("docs/stores/README.md", "`c4_tokens_fall`\n", "there is no test c4_tokens_fall"),
        ] {
            let tree = Tree::with(&good);
            fs::write(tree.root().join(file), text).unwrap();
            let error = check(tree.root()).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
