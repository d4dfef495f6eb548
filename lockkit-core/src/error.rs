//! Defines the one error type. An error says which operation failed, on what, the store's answer,
//! and whether asking again can help.

use std::{borrow::Cow, error::Error as StdError, fmt, result, sync::Arc};

use crate::name::LockName;

/// A `Result` whose error is lockkit's [`Error`].
pub type Result<T, E = Error> = result::Result<T, E>;

type Source = Box<dyn StdError + Send + Sync + 'static>;

/// The kind of failure, as far as a program can react to it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The store refused the credentials, or requires credentials and got none.
    ///
    /// * **Remedy:** correct the user and the password in the store URL.
    /// * **Outcome:** known.
    Authentication,
    /// The [`Locker`](crate::Locker) was shut down, or the program has ended the pool or the
    /// session that it gave to lockkit.
    ///
    /// * **Remedy:** make a new locker, or end the task that still uses this one.
    /// * **Outcome:** known.
    Closed,
    /// A blocking call was made inside a tokio runtime, whose tasks it would stop.
    ///
    /// * **Remedy:** use the async interface there, or call from a thread of your own.
    /// * **Outcome:** unknown, if the call is a release.
    InsideRuntime,
    /// A lock name is empty, too long, or contains control characters.
    ///
    /// * **Remedy:** choose a name as the message says.
    /// * **Outcome:** known.
    InvalidName,
    /// An option has no meaning, or contradicts another one.
    ///
    /// * **Remedy:** correct the option that the message names.
    /// * **Outcome:** known.
    InvalidOption,
    /// A store URL can't be parsed, or a parameter of it has a bad value.
    ///
    /// * **Remedy:** correct the store URL as the message says.
    /// * **Outcome:** known.
    InvalidUrl,
    /// The lock was lost before the call that needs it. Another claim may have it now, or may have
    /// had it since.
    ///
    /// Each call that needs a lock reports the loss, and so does its release. The signals
    /// ([`Lost`](crate::Lost), [`AnyLost`](crate::AnyLost)) report the [reason](crate::LossReason)
    /// at once.
    ///
    /// * **Remedy:** stop the work that the lock protects, and take the lock again.
    /// * **Outcome:** known.
    Lost,
    /// The URL's scheme belongs to a backend whose cargo feature is off.
    ///
    /// * **Remedy:** build lockkit with the cargo feature that the message names.
    /// * **Outcome:** known.
    MissingFeature,
    /// A newer lockkit wrote the record in the store, or made the ticket, in a format that this one
    /// doesn't know. lockkit does not change the record.
    ///
    /// * **Remedy:** upgrade this program.
    /// * **Outcome:** known.
    NewerFormat,
    /// There is no tokio runtime for lockkit's tasks.
    ///
    /// * **Remedy:** call lockkit inside a tokio runtime that has timers, or use blocking calls.
    /// * **Outcome:** unknown, if the call is a release.
    NoRuntime,
    /// The store does not allow this operation to our user.
    ///
    /// * **Remedy:** give the store's user the right that the message names.
    /// * **Outcome:** unknown, if a file could not be written.
    PermissionDenied,
    /// The server takes no writes: a replica, or a primary that was demoted.
    ///
    /// * **Remedy:** connect to the primary, or wait for the end of the failover.
    /// * **Outcome:** unknown, if a commit failed, or a file could not be written.
    ReadOnly,
    /// The store has no room for one more record.
    ///
    /// * **Remedy:** free space in the store, or raise its limit.
    /// * **Outcome:** unknown, if a file could not be written.
    StoreFull,
    /// The store is up and still loading its data.
    ///
    /// * **Remedy:** wait until the store has loaded its data.
    /// * **Outcome:** known.
    StoreLoading,
    /// The bound on waiting passed before the lock was free.
    ///
    /// * **Remedy:** try again later, or wait longer.
    /// * **Outcome:** known.
    Timeout,
    /// The store can't be reached, broke the connection, or did not answer in time.
    ///
    /// * **Remedy:** check that the store runs and can be reached; ask again.
    /// * **Outcome:** unknown, if the request was a write.
    Unavailable,
    /// A backend has a bug, or the store gave an answer that no store should give.
    ///
    /// * **Remedy:** report a bug of lockkit or of the backend.
    /// * **Outcome:** unknown, if the request was a write.
    Unexpected,
    /// No backend is known for the URL's scheme.
    ///
    /// * **Remedy:** correct the scheme, or register a backend for it.
    /// * **Outcome:** known.
    UnknownScheme,
    /// The URL has a parameter that the backend doesn't know, or the settings have an unknown key.
    ///
    /// * **Remedy:** correct or remove the parameter or the key.
    /// * **Outcome:** known.
    UnknownParameter,
    /// The backend can't do what was asked; its capabilities say so.
    ///
    /// * **Remedy:** use another store, or do not use the operation.
    /// * **Outcome:** known.
    Unsupported,
    /// The store has a record of another kind or of another program in the place of lockkit's
    /// record.
    ///
    /// * **Remedy:** use another prefix, or remove the foreign record.
    /// * **Outcome:** unknown, if a file could not be written.
    WrongType,
}

/// Whether asking again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorStatus {
    /// Asking again gives the same answer.
    Permanent,
    /// Asking again may help; lockkit asks again inside its bounds.
    Temporary,
    /// The error looked temporary, and every retry of lockkit failed too.
    Persistent,
}

/// An error of lockkit. It is one pointer wide and prints as one line, and it never shows a
/// password ([C13](crate::contract#c13-errors)). After an [unknown
/// outcome](Self::is_outcome_unknown) the store may have applied the request all the same
/// ([C5](crate::contract#c5-ambiguity)).
///
/// ```
/// use lockkit_core::{ErrorKind, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let error = locker.mutex("a name\nof two lines").unwrap_err();
/// match error.kind() {
///     ErrorKind::InvalidName => println!("{error}"),
///     ErrorKind::Unavailable if error.is_outcome_unknown() => println!("asking again finds out"),
///     _ if error.is_temporary() => println!("later, perhaps"),
///     _ => return Err(error),
/// }
/// # locker.shutdown().await
/// # }
/// ```
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    status: ErrorStatus,
    outcome_unknown: bool,
    operation: Option<&'static str>,
    backend: Option<&'static str>,
    name: Option<LockName>,
    context: Cow<'static, str>,
    source: Option<Arc<dyn StdError + Send + Sync + 'static>>,
}

impl Error {
    /// Makes an error from its kind and a sentence that says what happened and what to do about it.
    ///
    /// The status follows from the kind. A fault from which a store can recover by itself is
    /// [`Temporary`](ErrorStatus::Temporary).
    #[must_use]
    pub fn new(kind: ErrorKind, context: impl Into<Cow<'static, str>>) -> Self {
        let status = match kind {
            ErrorKind::ReadOnly
            | ErrorKind::StoreFull
            | ErrorKind::StoreLoading
            | ErrorKind::Unavailable => ErrorStatus::Temporary,
            _ => ErrorStatus::Permanent,
        };
        Self(Box::new(Inner {
            kind,
            status,
            outcome_unknown: false,
            operation: None,
            backend: None,
            name: None,
            context: context.into(),
            source: None,
        }))
    }

    /// Makes the error of a backend that lacks a capability.
    pub(crate) fn unsupported(what: &str) -> Self {
        Self::new(ErrorKind::Unsupported, format!("this backend does not support {what}"))
    }

    /// Copies the error for another caller that the same fault affects.
    #[doc(hidden)]
    #[must_use]
    pub fn copy(&self) -> Self {
        Self(self.0.clone())
    }

    /// Sets the status.
    #[must_use]
    pub fn with_status(mut self, status: ErrorStatus) -> Self {
        self.0.status = status;
        self
    }

    /// Marks the outcome as *unknown*: the request may have been applied although its reply never
    /// came.
    #[must_use]
    pub fn with_outcome_unknown(mut self) -> Self {
        self.0.outcome_unknown = true;
        self
    }

    /// Sets the operation that failed, unless it is already set.
    #[must_use]
    pub fn with_operation(mut self, operation: &'static str) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Sets the backend that failed, unless it is already set.
    #[must_use]
    pub fn with_backend(mut self, backend: &'static str) -> Self {
        self.0.backend.get_or_insert(backend);
        self
    }

    /// Sets the lock that the error is about, unless it is already set.
    #[must_use]
    pub fn with_name(mut self, name: &LockName) -> Self {
        self.0.name.get_or_insert_with(|| name.clone());
        self
    }

    /// Attaches the error of the layer below.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// The kind, to match on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether asking again can help.
    #[must_use]
    pub fn status(&self) -> ErrorStatus {
        self.0.status
    }

    /// True if asking again may help and lockkit has not tried that yet.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.0.status == ErrorStatus::Temporary
    }

    /// True if the request may have been applied although its reply never came.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        self.0.outcome_unknown
    }

    /// The operation that failed, such as `lock` or `release`.
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// The backend that failed, by its short name.
    #[must_use]
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// The lock that the error is about.
    #[must_use]
    pub fn name(&self) -> Option<&LockName> {
        self.0.name.as_ref()
    }

    /// The sentence that says what happened.
    #[must_use]
    pub fn context(&self) -> &str {
        &self.0.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        if let Some(operation) = inner.operation {
            write!(f, "{operation}")?;
            if let Some(name) = &inner.name {
                write!(f, " of {name}")?;
            }
            if let Some(backend) = inner.backend {
                write!(f, " on {backend}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&inner.context)?;
        match (inner.status == ErrorStatus::Persistent, inner.outcome_unknown) {
            (true, true) => {
                f.write_str(" (every retry failed too, and a request may have been applied)")
            }
            (true, false) => f.write_str(" (every retry failed too)"),
            (false, true) => f.write_str(" (the request may have been applied)"),
            (false, false) => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)?;
        if let Some(source) = &self.0.source {
            write!(f, ", caused by: {source}")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source: &(dyn StdError + 'static) = self.0.source.as_deref()?;
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Kind;

    #[test]
    fn c13_an_error_is_one_line_that_names_operation_lock_backend_and_reason() {
        let name = LockName::new(Kind::Mutex, "orders/42").unwrap();
        let error = Error::new(ErrorKind::Unavailable, "connection reset by peer")
            .with_outcome_unknown()
            .with_operation("lock")
            .with_backend("redis")
            .with_name(&name);
        assert_eq!(
            error.to_string(),
            "lock of mutex \"orders/42\" on redis: connection reset by peer (the request may have been applied)"
        );
        assert!(error.is_temporary());
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn the_first_operation_and_the_first_name_are_kept() {
        let error = Error::new(ErrorKind::Lost, "x").with_operation("renew").with_operation("lock");
        assert_eq!(error.operation(), Some("renew"));
    }
}
