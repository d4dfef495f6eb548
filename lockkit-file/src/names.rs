//! Lists the names in use.

use lockkit_core::{Kind, LockName, Result};
use tokio::task::yield_now;

use crate::{
    files,
    folder::{RECORD, stem},
    record::Record,
    store::Store,
};

/// How many names one step looks at. Other tasks run between two steps.
const NAMES_PER_LOOK: usize = 100;

/// The names of a kind that begin with `prefix` and have a holder or a waiter.
///
/// # Errors
/// An error of the system.
pub(crate) async fn in_use(store: &Store, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
    let mut names = Vec::new();
    for stems in store.folder.stems(kind)?.chunks(NAMES_PER_LOOK) {
        for found in stems {
            let path = store.folder.names(kind).join(format!("{found}{RECORD}"));
            // A file that is not lockkit's contains no name. A call that locks that name gets the
            // error.
            let named = |record: Record| {
                let name = LockName::new(kind, record.name()).ok()?;
                (stem(name.as_str()) == *found).then_some((name, record))
            };
            let content = files::read_shared(&path).ok();
            let record = content.and_then(|content| Record::parse_any(&content.bytes).ok());
            let Some((name, mut record)) = record.and_then(named) else { continue };
            if !name.as_str().starts_with(prefix) {
                continue;
            }
            store.drop_dead(&mut record)?;
            if record.is_used() {
                names.push(name);
            }
        }
        yield_now().await;
    }
    Ok(names)
}
