//! `lockkit run`

use crate::{
    cli::{OutputArguments, RunArguments},
    error::Result,
    exit::Exit,
    store::Store,
};

pub(crate) async fn run(arguments: RunArguments, store: Store, output: &OutputArguments) -> Result<Exit> {
    todo!("{arguments:?} {store:?} {output:?}")
}
