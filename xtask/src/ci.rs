//! Runs every check of a submission, the quick ones first.

use std::{
    fs,
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};

use crate::{
    api, compose, deny, docs, examples, folder, length,
    members::{Member, members},
    package,
    run::{built, cargo, output, root, step, target},
    test,
};

/// Additional lints for code in a user's process. They forbid ways to end the process, unwanted
/// output, and the calls in clippy.toml, which has the reasons.
const STRICT: [&str; 10] = [
    "clippy::disallowed_methods",
    "clippy::exit",
    "clippy::expect_used",
    "clippy::panic",
    "clippy::print_stderr",
    "clippy::print_stdout",
    "clippy::string_slice",
    "clippy::unimplemented",
    "clippy::unreachable",
    "clippy::unwrap_used",
];

/// The features that examples need.
const EXAMPLES: &str = "blocking,metrics,quorum,serde";

/// Runs all checks.
///
/// # Errors
/// The error of the first check that fails.
pub(crate) fn run() -> Result<()> {
    step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    length::check(root())?;
    docs::run(false)?;
    deny::check()?;
    lints(&members()?)?;
    // The build of each package alone takes minutes, so only `cargo xtask package` does it.
    package::run(false)?;
    documentation()?;
    api::run(api::Purpose::CompareIfPossible)?;
    examples()?;
    // The remaining steps share these programs.
    let locked = [test::LOCKED.to_owned()];
    test::build(&locked)?;
    inventory()?;
    two_quickstarts()?;
    command_line()?;
    compose::check()?;
    test::run(test::Tier::Everyday, &locked)
}

fn lints(members: &[Member]) -> Result<()> {
    let everything = ["clippy", "--locked", "--workspace", "--all-targets", "--all-features"];
    step("lints, workspace", cargo(&everything).args(["--", "-D", "warnings"]))?;
    let programs = ["clippy", "--locked", "-p", "lockkit-bench", "-p", "lockkit-cli", "--bins"];
    step(
        "lints, programs without features",
        cargo(&programs).args(["--no-default-features", "--", "-D", "warnings"]),
    )?;
    // This lints each crate alone and without its dev-dependencies, as a user builds it. In the
    // workspace a crate sees every feature that another crate enables.
    for member in members.iter().filter(|member| member.is_for_users()) {
        lint_alone(member, None)?;
        // The last lint has all stores.
        for feature in member.features.iter().filter(|feature| *feature != "full") {
            lint_alone(member, Some(feature))?;
        }
        // The drivers choose features of one TLS library.
        if member.features.len() > 1 {
            lint_alone(member, Some(&member.features.join(",")))?;
        }
    }
    Ok(())
}

fn lint_alone(member: &Member, feature: Option<&str>) -> Result<()> {
    let mut command =
        cargo(&["clippy", "--locked", "--lib", "--no-default-features", "-p", &member.name]);
    command.args(feature.iter().flat_map(|feature| ["--features", feature]));
    command.args(["--", "-D", "warnings"]);
    command.args(STRICT.iter().flat_map(|lint| ["-D", lint]));
    step(
        &format!("lints, {} alone, {}", member.name, feature.unwrap_or("no feature")),
        &mut command,
    )
}

fn documentation() -> Result<()> {
    let mut command = cargo(&["doc", "--locked", "--workspace", "--all-features", "--no-deps"]);
    step("documentation", command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Checks the parts of the command line's packages: completions, and the manual. If there is a
/// `man`, it must find no fault in the manual.
fn command_line() -> Result<()> {
    let lockkit = |arguments: &[&str]| output(built("lockkit").args(arguments));
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        ensure!(
            lockkit(&["completions", shell])?.contains("history"),
            "lockkit prints no completions for {shell}"
        );
    }
    let page = lockkit(&["man"])?;
    ensure!(page.contains("EXIT STATUS"), "lockkit man prints no manual");
    let file = target().join("lockkit.1");
    fs::write(&file, page)?;
    if Command::new("man").arg("--version").output().is_err() {
        println!("    SKIPPED: man is not installed, so the manual is not checked");
        return Ok(());
    }
    let mut man = Command::new("man");
    man.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]).arg(&file).env("MANROFFSEQ", "");
    let shown = man.output()?;
    let warnings = String::from_utf8_lossy(&shown.stderr);
    ensure!(shown.status.success() && warnings.is_empty(), "the manual has faults: {warnings}");
    println!("    completions and manual: ok");
    Ok(())
}

/// Runs the examples on the embedded store. Each ends with an error if a promise was broken.
fn examples() -> Result<()> {
    let folder = root().join("examples");
    let names = examples::names(&folder)?;
    ensure!(names.iter().any(|name| name == "quickstart"), "examples/quickstart.rs is missing");
    examples::check_length(&folder)?;
    for name in names {
        step(
            &format!("example {name}"),
            &mut cargo(&["run", "--locked", "--features", EXAMPLES, "--example", &name]),
        )?;
    }
    // A new user runs the quickstart like this.
    step("quickstart", &mut cargo(&["run", "--locked", "--example", "quickstart"]))
}

/// Runs the example that needs SQLite. It is in a separate package, so that no other example waits
/// for SQLite.
fn inventory() -> Result<()> {
    step("example inventory", &mut built("examples/inventory"))
}

/// Runs two processes at once on the locks of one folder. No two grants may have the same token.
fn two_quickstarts() -> Result<()> {
    let folder = target().join("quickstart-locks");
    folder::remove(&folder)?;
    let url = format!("file://{}", folder.display());
    let start = || built("examples/quickstart").arg(&url).stdout(Stdio::piped()).spawn();
    let both = [start()?, start()?];
    let mut tokens = Vec::new();
    for one in both {
        let output = one.wait_with_output()?;
        ensure!(output.status.success(), "two quickstarts on one folder: {}", output.status);
        let said = String::from_utf8_lossy(&output.stdout);
        let words = said
            .lines()
            .filter_map(|line| line.split_once("held the lock with token ")?.1.split(',').next());
        tokens.extend(words.map(str::to_owned));
    }
    let all = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    ensure!(
        all == 24 && tokens.len() == all,
        "two quickstarts on one folder got {} different tokens in {all} turns",
        tokens.len()
    );
    println!("    two quickstarts on one folder: ok");
    Ok(())
}
