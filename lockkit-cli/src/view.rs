//! A lock as operators see it.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use lockkit::{
    Kind, LockName, Locker,
    spi::{Holder, Inspection, Mode},
};
use serde::Serialize;

use crate::{
    cli::LookArguments,
    error::Result,
    output::plain,
    store::Store,
    table::{Table, brief},
};

/// How many locks lockkit looks at side by side.
const ABREAST: usize = 16;

/// A look at one lock; as JSON, its fields keep their names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LockView {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) holders: Vec<HolderView>,
    pub(crate) waiting: Option<u64>,
    #[serde(skip)]
    pub(crate) full: LockName,
}

/// A holder. A value that the store does not know is null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct HolderView {
    pub(crate) label: Option<String>,
    pub(crate) token: Option<u64>,
    pub(crate) owner: Option<String>,
    pub(crate) mode: String,
    pub(crate) held_ms: Option<u64>,
    pub(crate) left_ms: Option<u64>,
}

impl LockView {
    fn new(name: &str, full: LockName, inspection: Inspection) -> Self {
        Self {
            name: name.to_owned(),
            kind: full.kind().as_str(),
            holders: inspection.holders.into_iter().map(HolderView::of).collect(),
            waiting: inspection.waiters,
            full,
        }
    }

    pub(crate) fn is_used(&self) -> bool {
        !self.holders.is_empty() || self.waiting.is_some_and(|waiting| waiting > 0)
    }

    /// One row for each holder. If there are only waiters, one row without a holder.
    pub(crate) fn rows(&self, table: &mut Table<7>) {
        let waiting = self.waiting.map(|waiting| waiting.to_string()).unwrap_or_default();
        let mut row = |holder: [String; 4]| {
            let [label, token, held, left] = holder;
            table.row([
                self.name.clone(),
                self.kind.to_owned(),
                label,
                token,
                held,
                left,
                waiting.clone(),
            ]);
        };
        if self.holders.is_empty() {
            row(Default::default());
        }
        for holder in &self.holders {
            let time =
                |ms: Option<u64>| ms.map(|ms| brief(Duration::from_millis(ms))).unwrap_or_default();
            let token = holder.token.map(|token| token.to_string()).unwrap_or_default();
            row([holder.who(), token, time(holder.held_ms), time(holder.left_ms)]);
        }
    }
}

/// The table of [`LockView::rows`].
pub(crate) fn lock_table() -> Table<7> {
    Table::new(["NAME", "KIND", "HOLDER", "TOKEN", "HELD", "LEFT", "WAITING"])
}

impl HolderView {
    fn of(holder: Holder) -> Self {
        let ms = |time: Option<Duration>| {
            time.map(|time| time.as_millis().try_into().unwrap_or(u64::MAX))
        };
        Self {
            label: holder.label,
            token: holder.token.map(lockkit::FencingToken::get),
            owner: holder.owner.map(|owner| owner.to_string()),
            mode: match holder.mode {
                Mode::Exclusive => "exclusive".to_owned(),
                Mode::Permits { count, limit } => format!("{count}/{limit}"),
                Mode::Shared => "shared".to_owned(),
                other => format!("{other:?}"),
            },
            held_ms: ms(holder.age),
            left_ms: ms(holder.remaining),
        }
    }

    /// The holder, in words for people.
    pub(crate) fn who(&self) -> String {
        let label = match (&self.label, &self.owner) {
            (Some(label), _) => plain(label),
            (None, Some(owner)) => format!("owner {owner}"),
            (None, None) => "another program".to_owned(),
        };
        match &*self.mode {
            "exclusive" => label,
            mode => format!("{label} ({mode})"),
        }
    }
}

/// The kinds of locks that a store has.
pub(crate) fn kinds(locker: &Locker) -> Vec<Kind> {
    let can = locker.capabilities();
    [
        (can.exclusive && can.labels, Kind::Election),
        (can.exclusive, Kind::Mutex),
        (can.shared, Kind::RwLock),
        (can.permits, Kind::Semaphore),
    ]
    .into_iter()
    .filter_map(|(can, kind)| can.then_some(kind))
    .collect()
}

/// Looks at the locks of one name: of the kind that the user asks for, or of all kinds.
pub(crate) async fn look(store: &Store, arguments: &LookArguments) -> Result<Vec<LockView>> {
    let kinds = match arguments.kind {
        Some(kind) => vec![kind.into()],
        None => kinds(&store.locker),
    };
    let name = &arguments.name;
    let full = kinds.into_iter().map(|kind| Ok((name.clone(), store.name(kind, name)?)));
    look_at(store, full.collect::<Result<_>>()?).await
}

/// Looks at many locks. Each name comes as it is shown and as the store has it.
pub(crate) async fn look_at(
    store: &Store,
    names: Vec<(String, LockName)>,
) -> Result<Vec<LockView>> {
    let looks = names.into_iter().map(async |(name, full)| -> Result<LockView> {
        let inspection = store.locker.inspect(&full).await?;
        Ok(LockView::new(&name, full, inspection))
    });
    stream::iter(looks).buffered(ABREAST).try_collect().await
}
