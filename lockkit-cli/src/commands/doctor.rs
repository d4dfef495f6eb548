//! `lockkit doctor`

use crate::{cli::OutputArguments, error::Result, exit::Exit, store::Store};

pub(crate) async fn doctor(store: &Store, output: &OutputArguments) -> Result<Exit> {
    todo!("{store:?} {output:?}")
}
