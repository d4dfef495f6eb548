//! `lockkit show`

use crate::{
    cli::{LookArguments, OutputArguments},
    error::Result,
    exit::Exit,
    store::Store,
};

pub(crate) async fn show(arguments: &LookArguments, store: &Store, output: &OutputArguments) -> Result<Exit> {
    todo!("{arguments:?} {store:?} {output:?}")
}
