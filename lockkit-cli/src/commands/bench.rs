//! `lockkit bench`

use crate::{cli::BenchArguments, error::Result, exit::Exit};

pub(crate) async fn bench(arguments: &BenchArguments) -> Result<Exit> {
    todo!("{arguments:?}")
}
