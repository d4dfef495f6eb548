//! `lockkit once`

use crate::{
    cli::{OnceArguments, OutputArguments},
    error::Result,
    exit::Exit,
    store::Store,
};

pub(crate) async fn once(arguments: OnceArguments, store: Store, output: &OutputArguments) -> Result<Exit> {
    todo!("{arguments:?} {store:?} {output:?}")
}
