//! Tests commands that need no store.

use libtest_mimic::Failed;

use crate::{Test, good, support::bare, told};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("text::completions_are_there_for_each_shell", completions),
        ("text::the_help_names_what_holds_without_an_option", defaults),
        ("text::the_help_names_variables_and_never_what_is_in_them", variables),
        ("text::the_manual_has_each_command", manual),
        #[cfg(feature = "bench")]
        ("text::bench_has_its_own_help", bench),
    ]
}

fn completions() -> Result<(), Failed> {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = told(&good(bare(["completions", shell])));
        assert!(text.contains("history") && text.contains("until-free"), "{shell}");
        assert!(!text.contains("__launch"), "{shell}");
    }
    Ok(())
}

fn defaults() -> Result<(), Failed> {
    let help = told(&good(bare(["run", "--help"])));
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("By default what the URL says, or else 30s"), "{help}");
    assert_eq!(lockkit::LockOptions::new().ttl(), std::time::Duration::from_secs(30));
    let help = told(&good(bare(["--help"])));
    assert!(help.contains("Examples:") && help.contains("75 busy"), "{help}");
    Ok(())
}

/// A URL may hold a password.
fn variables() -> Result<(), Failed> {
    for line in [&["--help"][..], &["run", "--help"], &["once", "--help"], &["doctor", "--help"]] {
        let mut command = bare(line);
        command
            .env("LOCKKIT_URL", "redis://:secret@127.0.0.1/")
            .env("LOCKKIT_URL_FILE", "/etc/secret");
        let help = told(&good(command));
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("[env: LOCKKIT_URL]") && words.contains("[env: LOCKKIT_URL_FILE]"),
            "{help}"
        );
        assert!(!help.contains("secret"), "{help}");
    }
    Ok(())
}

fn manual() -> Result<(), Failed> {
    let page = told(&good(bare(["man"])));
    for section in [".SH NAME", ".SH \"LOCKKIT ONCE\"", ".SH \"EXIT STATUS\"", ".SH ENVIRONMENT"] {
        assert!(page.contains(section), "{section}");
    }
    Ok(())
}

#[cfg(feature = "bench")]
fn bench() -> Result<(), Failed> {
    let help = told(&good(bare(["bench", "--help"])));
    assert!(help.contains("--urls-from") && help.contains("Measures"), "{help}");
    let compare = told(&good(bare(["bench", "compare", "--help"])));
    assert!(compare.contains("report.json"), "{compare}");
    Ok(())
}
