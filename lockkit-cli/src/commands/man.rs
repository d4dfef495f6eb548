//! Runs `lockkit man`.

use std::io::{self, Write};

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::{
    cli::Cli,
    error::{Error, Result},
    exit::Exit,
    output,
};

/// The text of the page that is not about an argument.
const MORE: &str = include_str!("man.roff");

pub(crate) fn man() -> Result<Exit> {
    let mut page = Vec::new();
    render(&mut page).map_err(|error| Error::of("could not write the page", error))?;
    output::whole(&page)?;
    Ok(Exit::Done)
}

/// One page for all commands.
fn render(page: &mut impl Write) -> io::Result<()> {
    let mut cli = Cli::command();
    cli.build();
    let commands: Vec<_> =
        cli.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let whole = Man::new(cli);
    whole.render_title(page)?;
    whole.render_name_section(page)?;
    whole.render_synopsis_section(page)?;
    whole.render_description_section(page)?;
    whole.render_options_section(page)?;
    for command in commands.iter().filter(|command| command.get_name() != "help") {
        section(command, page)?;
    }
    page.write_all(MORE.as_bytes())
}

/// The section of one command, without the options that all commands have.
fn section(command: &Command, page: &mut impl Write) -> io::Result<()> {
    let command = command.clone().mut_args(|arg| {
        let hidden = arg.is_hide_set() || arg.is_global_set();
        arg.hide(hidden)
    });
    let name = command.get_name().to_uppercase();
    let man = Man::new(command);
    let mut text = Vec::new();
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    writeln!(page, ".SH \"LOCKKIT {name}\"")?;
    for line in text.lines() {
        match line {
            ".SH SYNOPSIS" | ".SH OPTIONS" => {}
            "" | ".SH DESCRIPTION" => writeln!(page, ".PP")?,
            line => writeln!(page, "{line}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_all_commands_and_exit_codes() {
        let mut page = Vec::new();
        render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        for section in [
            "NAME",
            "SYNOPSIS",
            "\"LOCKKIT RUN\"",
            "\"LOCKKIT ONCE\"",
            "\"LOCKKIT MAN\"",
            "\"EXIT STATUS\"",
        ] {
            assert!(
                page.lines().any(|line| line == format!(".SH {section}")),
                "{section} in\n{page}"
            );
        }
        assert!(!page.contains("__launch") && !page.contains("__watchdog"));
        assert!(page.contains("conflict\\-exit\\-code"), "{page}");
    }
}
