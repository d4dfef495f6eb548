//! Runs `lockkit ls`.

use crate::{
    cli::{Format, NamesArguments, OutputArguments},
    error::Result,
    exit::Exit,
    output,
    store::Store,
    view::{lock_table, look_at},
};

pub(crate) async fn ls(
    arguments: &NamesArguments,
    store: &Store,
    output: &OutputArguments,
) -> Result<Exit> {
    let names = store.locker.names(&store.full(&arguments.prefix)).await?;
    let names = names.into_iter().filter_map(|full| Some((store.short(&full)?.to_owned(), full)));
    let mut views = look_at(store, names.collect()).await?;
    // Some locks have become free meanwhile.
    views.retain(|view| view.is_used());
    match output.format {
        Format::Json => views.iter().try_for_each(output::json)?,
        Format::Text => {
            if views.is_empty() && !output.quiet {
                output::aside("lockkit: no lock is held or waited for");
            }
            let mut table = lock_table();
            views.iter().for_each(|view| view.rows(&mut table));
            table.print()?;
        }
    }
    Ok(Exit::Done)
}
