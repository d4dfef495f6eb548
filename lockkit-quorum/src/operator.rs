//! The requests of an operator to one member, with or without an
//! [`Admin`](lockkit_core::spi::Admin).

use lockkit_core::{
    Error, ErrorKind, Kind, LockName, Result,
    spi::{Backend, Diagnostic, Role},
};

/// Probes a member. A member without an admin is inspected for a lock that no client has.
pub(crate) async fn probe(member: &dyn Backend) -> Result<Role> {
    if let Some(admin) = member.admin() {
        return admin.probe().await;
    }
    member.inspect(&LockName::new(Kind::Mutex, "lockkit health")?).await?;
    Ok(Role::Unknown)
}

pub(crate) async fn names(member: &dyn Backend, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
    match member.admin() {
        Some(admin) => admin.names(kind, prefix).await,
        None => {
            Err(Error::new(ErrorKind::Unsupported, "this backend does not support lists of names"))
        }
    }
}

pub(crate) async fn diagnose(member: &dyn Backend) -> Result<Vec<Diagnostic>> {
    match member.admin() {
        Some(admin) => admin.diagnose().await,
        None => Ok(Vec::new()),
    }
}
