//! What a quorum asks a member for an operator, whether the member has an
//! [`Admin`](lockkit_core::spi::Admin) or not.

use lockkit_core::{
    Error, ErrorKind, Kind, LockName, Result,
    spi::{Backend, Diagnostic, Role},
};

/// A member that answers no operator is asked for a lock that nobody has.
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
        None => Err(Error::new(ErrorKind::Unsupported, "this backend has no lists of names")),
    }
}

pub(crate) async fn diagnose(member: &dyn Backend) -> Result<Vec<Diagnostic>> {
    match member.admin() {
        Some(admin) => admin.diagnose().await,
        None => Ok(Vec::new()),
    }
}
