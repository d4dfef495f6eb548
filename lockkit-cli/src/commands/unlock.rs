//! `lockkit unlock`

use crate::{
    cli::{OutputArguments, UnlockArguments},
    error::Result,
    exit::Exit,
    store::Store,
};

pub(crate) async fn unlock(
    arguments: &UnlockArguments,
    store: &Store,
    output: &OutputArguments,
) -> Result<Exit> {
    todo!("{arguments:?} {store:?} {output:?}")
}
