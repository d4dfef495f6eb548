//! `lockkit ls`

use crate::{
    cli::{NamesArguments, OutputArguments},
    error::Result,
    exit::Exit,
    store::Store,
};

pub(crate) async fn ls(arguments: &NamesArguments, store: &Store, output: &OutputArguments) -> Result<Exit> {
    todo!("{arguments:?} {store:?} {output:?}")
}
