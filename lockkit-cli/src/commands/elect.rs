//! `lockkit elect`

use crate::{
    cli::{ElectArguments, OutputArguments},
    error::Result,
    exit::Exit,
    store::Store,
};

pub(crate) async fn elect(arguments: ElectArguments, store: Store, output: &OutputArguments) -> Result<Exit> {
    todo!("{arguments:?} {store:?} {output:?}")
}
