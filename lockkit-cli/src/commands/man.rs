//! `lockkit man`

use std::io;

use clap::CommandFactory as _;

use crate::{
    cli::Cli,
    error::{Error, Result},
    exit::Exit,
};

pub(crate) fn man() -> Result<Exit> {
    let page = clap_mangen::Man::new(Cli::command());
    page.render(&mut io::stdout()).map_err(|error| Error::of("the page can't be printed", error))?;
    Ok(Exit::Done)
}
