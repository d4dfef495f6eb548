//! `lockkit watch`

use crate::{
    cli::{OutputArguments, WatchArguments},
    error::Result,
    exit::Exit,
    store::Store,
};

pub(crate) async fn watch(
    arguments: &WatchArguments,
    store: &Store,
    output: &OutputArguments,
) -> Result<Exit> {
    todo!("{arguments:?} {store:?} {output:?}")
}
