//! Asks any store the questions of operators, with or without an [`Admin`].

use super::{Admin, Backend, Diagnostic, Role};
use crate::{
    error::{Error, Result},
    name::{Kind, LockName},
};

/// # Errors
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): the store answers no operator.
pub(crate) fn admin_of<'a>(backend: &'a dyn Backend, what: &str) -> Result<&'a dyn Admin> {
    backend.admin().ok_or_else(|| Error::unsupported(what))
}

/// Probes a store. If it has no [`Admin`], the function inspects a lock that no claim uses.
///
/// # Errors
/// The store did not answer, or refused.
pub async fn probe(backend: &dyn Backend) -> Result<Role> {
    if let Some(admin) = backend.admin() {
        return admin.probe().await;
    }
    backend.inspect(&LockName::new(Kind::Mutex, "lockkit health")?).await?;
    Ok(Role::Unknown)
}

/// Lists the names of a kind that begin with `prefix`, as [`Admin::names`] does.
///
/// # Errors
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): the store has no [`Admin`]. Otherwise
/// those of [`Admin::names`].
pub async fn names(backend: &dyn Backend, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
    admin_of(backend, "lists of names")?.names(kind, prefix).await
}

/// Diagnoses a store. Finds nothing in a store without an [`Admin`].
///
/// # Errors
/// Those of [`Admin::diagnose`].
pub async fn diagnose(backend: &dyn Backend) -> Result<Vec<Diagnostic>> {
    match backend.admin() {
        Some(admin) => admin.diagnose().await,
        None => Ok(Vec::new()),
    }
}
