//! Reports a command line that can't be understood.

use std::{env, ffi::OsString};

use clap::{CommandFactory as _, error::ErrorKind};

use super::{Cli, Command};
use crate::{
    error::{Error, Result},
    exit::Exit,
    output::{self, aside, plain},
};

/// Prints help as usual. Reports a mistake of the user in one line, without its URLs, because they
/// may hold passwords.
///
/// # Errors
/// Standard output can't be written.
pub(crate) fn told(error: &clap::Error) -> Result<Exit> {
    if !error.use_stderr() {
        let text = error.render();
        return output::whole(text.to_string().as_bytes()).map(|()| Exit::Done);
    }
    let words: Vec<_> =
        env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // The user typed no arguments, which asks for help.
        aside(text.trim_end());
        return Ok(Exit::Failed);
    }
    let text = one_line(&without_urls(text, &words));
    aside(format_args!("lockkit: {text}; see {}", help(&words)));
    Ok(Exit::Failed)
}

/// The mistake and the tips, without the usage.
fn one_line(text: &str) -> String {
    let paragraphs = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let told = paragraphs
        .filter(|paragraph| !paragraph.starts_with("Usage:") && !paragraph.starts_with("For more"));
    let told: Vec<_> = told.collect();
    plain(told.join("; ").trim_start_matches("error: "))
}

/// The help of the command that was meant.
fn help(words: &[String]) -> String {
    let cli = Cli::command();
    let known = |word: &&String| {
        cli.get_subcommands().any(|known| known.get_name() == *word && !known.is_hide_set())
    };
    match words.iter().find(known) {
        Some(command) => format!("lockkit {command} --help"),
        None => "lockkit --help".to_owned(),
    }
}

/// Replaces in the text each typed word that contains a URL, and each such value of an option.
fn without_urls(text: String, words: &[String]) -> String {
    let values = words.iter().flat_map(|word| {
        let value = word.split_once('=').map(|(_, value)| value);
        [Some(word.as_str()), value].into_iter().flatten()
    });
    let mut hidden: Vec<_> = values.filter(|value| value.contains("://")).collect();
    // One value may be a part of another.
    hidden.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
    hidden.into_iter().fold(text, |text, value| text.replace(value, "(a URL)"))
}

/// Refuses an option that was mistyped after the name: it would be run as the command.
///
/// # Errors
/// The command begins like an option, and no `--` was given before it.
pub(crate) fn check_command(cli: &Cli) -> Result<()> {
    let command = match &cli.command {
        Command::Run(run) => &run.job.command,
        Command::Once(once) => &once.job.command,
        Command::Elect(elect) => &elect.job.command,
        _ => return Ok(()),
    };
    let words: Vec<_> = env::args_os().skip(1).collect();
    mistyped(&words, command).map_or(Ok(()), Err)
}

/// The command is the last of all words.
fn mistyped(words: &[OsString], command: &[OsString]) -> Option<Error> {
    let first = command.first()?.to_string_lossy();
    let before = words.get(..words.len().checked_sub(command.len())?)?;
    if !first.starts_with('-') || before.iter().any(|word| word == "--") {
        return None;
    }
    // The option's value may be a secret.
    let option = plain(first.split('=').next().unwrap_or_default());
    Some(Error::new(format!("unknown option {option}; write -- before a command of that name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_no_command_without_two_dashes() {
        let is_refused = |line: &str, command: usize| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            mistyped(&words, &words[words.len() - command..]).map(|error| error.to_string())
        };
        let refused = is_refused("run job --ur1=redis://:secret@h/ true", 2).unwrap();
        assert_eq!(refused, "unknown option --ur1; write -- before a command of that name");
        assert!(is_refused("run job -z true", 2).is_some());
        for (line, command) in
            [("run job -- --ur1", 1), ("run -- job --ur1 x", 2), ("run job true -- --ur1", 3)]
        {
            assert_eq!(is_refused(line, command), None, "{line}");
        }
    }

    #[test]
    fn an_error_is_one_line() {
        let text = "error: unexpected argument '--foo' found\n\n  tip: to pass '--foo' as a value, use '-- --foo'\n\n\
                    Usage: lockkit run [OPTIONS]\n\nFor more information, try '--help'.\n";
        let line =
            "unexpected argument '--foo' found; tip: to pass '--foo' as a value, use '-- --foo'";
        assert_eq!(one_line(text), line);
        let text = "error: the following required arguments were not provided:\n  <COMMAND>...\n\nUsage: x\n";
        assert_eq!(
            one_line(text),
            "the following required arguments were not provided: <COMMAND>..."
        );
    }
}
