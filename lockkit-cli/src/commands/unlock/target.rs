//! Finds the grants that `lockkit unlock` frees.

use lockkit::{FencingToken, Grants, LockName};

use crate::{
    cli::UnlockArguments,
    error::{Error, Result},
    view::{HolderView, LockView},
};

/// The grants of one lock that the operator wants to end.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: LockName,
    pub(super) short: String,
    pub(super) grants: Grants,
    pub(super) holders: Vec<HolderView>,
}

pub(super) enum Found {
    Target(Target),
    /// Other owners hold it; the text describes them.
    Other(String),
    Free,
}

impl Target {
    /// # Errors
    /// The name fits several locks.
    pub(super) fn find(arguments: &UnlockArguments, views: Vec<LockView>) -> Result<Found> {
        let name = &arguments.look.name;
        let held: Vec<_> = views.into_iter().filter(|view| !view.holders.is_empty()).collect();
        let Some(token) = arguments.token else {
            let Some(view) = only(name, held)? else { return Ok(Found::Free) };
            let last = view.holders.iter().filter_map(|holder| holder.token).max();
            let last = FencingToken::new(last.unwrap_or_default());
            return Ok(Found::Target(Self::new(view, Grants::UpTo(last))));
        };
        let has_token = |holder: &HolderView| holder.token == Some(token);
        let who: Vec<_> = held.iter().flat_map(|view| view.holders.iter().map(who)).collect();
        let with_token =
            held.into_iter().filter(|view| view.holders.iter().any(has_token)).collect();
        let Some(mut view) = only(name, with_token)? else {
            return Ok(Found::Other(match who.is_empty() {
                true => format!("no client holds {name:?}, with token {token} or another token"),
                false => {
                    format!(
                        "no client holds {name:?} with token {token}, but it is held by {}",
                        who.join(" and ")
                    )
                }
            }));
        };
        view.holders.retain(has_token);
        Ok(Found::Target(Self::new(view, Grants::Only(FencingToken::new(token)))))
    }

    fn new(view: LockView, grants: Grants) -> Self {
        Self { name: view.full, short: view.name, grants, holders: view.holders }
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.holders.iter().filter_map(|holder| holder.token)
    }

    /// The holders, in words for people.
    pub(super) fn who(&self) -> String {
        self.holders.iter().map(who).collect::<Vec<_>>().join(" and ")
    }
}

fn who(holder: &HolderView) -> String {
    let token = holder.token.map(|token| format!(" (token {token})")).unwrap_or_default();
    format!("{}{token}", holder.who())
}

fn only(name: &str, mut views: Vec<LockView>) -> Result<Option<LockView>> {
    let view = views.pop();
    if views.is_empty() {
        return Ok(view);
    }
    let kinds: Vec<_> = views.iter().chain(&view).map(|view| view.kind).collect();
    Err(Error::new(format!("{name:?} is held as {}; choose one with --kind", kinds.join(" and "))))
}
