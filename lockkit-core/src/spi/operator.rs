//! Sends the questions of operators to any store, with or without an [`Admin`].

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
pub(crate) async fn probe(backend: &dyn Backend) -> Result<Role> {
    if let Some(admin) = backend.admin() {
        return admin.probe().await;
    }
    backend.inspect(&LockName::new(Kind::Mutex, "lockkit health")?).await?;
    Ok(Role::Unknown)
}

pub(crate) async fn names(
    backend: &dyn Backend,
    kind: Kind,
    prefix: &str,
) -> Result<Vec<LockName>> {
    admin_of(backend, "lists of names")?.names(kind, prefix).await
}

pub(crate) async fn diagnose(backend: &dyn Backend) -> Result<Vec<Diagnostic>> {
    match backend.admin() {
        Some(admin) => admin.diagnose().await,
        None => Ok(Vec::new()),
    }
}
