//! Every check of a submission, the quick ones first.

use std::{
    fs,
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};

use crate::{
    api, compose, deny, docs, examples, folder, length,
    members::{Member, members},
    package,
    run::{cargo, output, root, step, target},
    test,
};

/// What a user's process must not hold, on top of the workspace's lints: ways to end it, output
/// that nobody asked for, and the calls that clippy.toml lists with the reason of each.
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

/// Runs them all.
///
/// # Errors
/// The first one that fails.
pub(crate) fn run() -> Result<()> {
    step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    length::check(root())?;
    docs::run()?;
    deny::check()?;
    lints(&members()?)?;
    // Building each package alone takes minutes: `cargo xtask package`.
    package::run(false)?;
    documentation()?;
    api::run(api::Purpose::CompareIfPossible)?;
    examples()?;
    command_line()?;
    compose::check()?;
    test::run(test::Tier::Everyday, &[test::LOCKED.to_owned()])
}

fn lints(members: &[Member]) -> Result<()> {
    let everything = ["clippy", "--locked", "--workspace", "--all-targets"];
    for features in ["--no-default-features", "--all-features"] {
        let mut command = cargo(&everything);
        command.args([features, "--", "-D", "warnings"]);
        step(&format!("lints, workspace, {features}"), &mut command)?;
    }
    // Alone and without its dev-dependencies, as a user builds it: in the workspace a crate sees
    // every feature that another one turns on.
    for member in members.iter().filter(|member| member.is_for_users()) {
        lint_alone(member, None)?;
        for feature in &member.features {
            lint_alone(member, Some(feature))?;
        }
        // All stores with TLS, whose drivers choose features of one TLS library.
        let tls: Vec<_> = member
            .features
            .iter()
            .filter(|name| name.ends_with("-tls"))
            .map(String::as_str)
            .collect();
        if !tls.is_empty() {
            lint_alone(member, Some(&tls.join(",")))?;
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

/// What the packages of the command line are made of: completions and the manual, which `man` finds
/// no fault with where there is one.
fn command_line() -> Result<()> {
    let lockkit = |arguments: &[&str]| {
        let run = ["run", "--quiet", "--locked", "-p", "lockkit-cli", "--bin", "lockkit", "--"];
        output(cargo(&run).args(arguments))
    };
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        ensure!(
            lockkit(&["completions", shell])?.contains("history"),
            "no completions for {shell}"
        );
    }
    let page = lockkit(&["man"])?;
    ensure!(page.contains("EXIT STATUS"), "lockkit man prints no manual");
    let file = target().join("lockkit.1");
    fs::write(&file, page)?;
    if Command::new("man").arg("--version").output().is_err() {
        println!("    there is no man to look at the manual with");
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

/// The main job and all that is built on it, on the embedded store: each ends with an error if a
/// promise was broken.
fn examples() -> Result<()> {
    let folder = root().join("examples");
    let names = examples::names(&folder)?;
    ensure!(names.iter().any(|name| name == "quickstart"), "there is no examples/quickstart.rs");
    examples::check_length(&folder)?;
    for name in names {
        step(
            &format!("example {name}"),
            &mut cargo(&["run", "--locked", "--features", "metrics,quorum", "--example", &name]),
        )?;
    }
    // It needs SQLite, and stands apart so that no other example has to wait for it.
    let inventory =
        ["run", "--locked", "--package", "lockkit-example-service", "--example", "inventory"];
    step("example inventory", &mut cargo(&inventory))?;
    two_quickstarts()?;
    // As a newcomer runs it.
    step("quickstart", &mut cargo(&["run", "--locked", "--example", "quickstart"]))
}

/// Two processes at once on the locks of one folder: no two grants have the same token.
fn two_quickstarts() -> Result<()> {
    const RUN: [&str; 7] =
        ["run", "--quiet", "--locked", "--features", "file,metrics", "--example", "quickstart"];
    let folder = target().join("quickstart-locks");
    folder::remove(&folder)?;
    let url = format!("file://{}", folder.display());
    let start = || cargo(&RUN).args(["--", &url]).stdout(Stdio::piped()).spawn();
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
        "two quickstarts on one folder had {} tokens in {all} turns",
        tokens.len()
    );
    println!("    two quickstarts on one folder: ok");
    Ok(())
}
