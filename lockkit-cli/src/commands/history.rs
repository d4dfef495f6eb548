//! `lockkit history`

use crate::{
    cli::{LookArguments, OutputArguments},
    error::Result,
    exit::Exit,
    store::Store,
};

pub(crate) async fn history(
    arguments: &LookArguments,
    store: &Store,
    output: &OutputArguments,
) -> Result<Exit> {
    todo!("{arguments:?} {store:?} {output:?}")
}
