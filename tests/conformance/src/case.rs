//! One case of the suite, and the stores that it is for.

use std::{fmt, pin::Pin};

use lockkit_core::spi::{Capabilities, Descriptor, LeaseScope};

use crate::{env::Env, harness::Hook, lock::Flavor};

/// One promise, checked by one function.
#[derive(Clone, Copy)]
pub struct Case {
    /// The function's name, which begins with the promise's number.
    pub name: &'static str,
    /// The wrong implementation that it catches.
    pub catches: &'static str,
    pub(crate) needs: Needs,
    pub(crate) run: fn(Env) -> Pin<Box<dyn Future<Output = ()>>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

/// The abilities of a store that a case needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    subject: Subject,
    hook: Option<Hook>,
    fair: bool,
    push: bool,
    /// Whether attempts must wait inside the store.
    blocking: bool,
    /// Whether leases must end by time. Stores with the exception `no_lease` do not qualify.
    lease: bool,
    /// Another ability that the store must have.
    ability: Option<Ability>,
    /// Whether a claim's lease must be its own, and end when this claim is not renewed.
    claim_lease: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// Run over each lock of the store that can exclude: a mutex, a write side, the only permit.
    EachExclusive,
    /// Run once, on the mutex.
    Mutex,
    /// Run once, on read/write locks.
    ReadWrite,
    /// Run once, on semaphores.
    Permits,
}

/// A capability that only a few cases need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ability {
    Extend,
    Labels,
    Names,
    Notes,
    /// Notes and the time.
    Once,
    RaiseToken,
    Tickets,
    Transfer,
    Time,
}

impl Ability {
    fn is_in(self, capabilities: &Capabilities) -> bool {
        match self {
            Self::Extend => capabilities.extend,
            Self::Labels => capabilities.labels,
            Self::Names => capabilities.names,
            Self::Notes => capabilities.notes,
            Self::Once => capabilities.notes && capabilities.time,
            Self::RaiseToken => capabilities.raise_token,
            Self::Tickets => capabilities.tickets,
            Self::Transfer => capabilities.transfer,
            Self::Time => capabilities.time,
        }
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Extend => "extend",
            Self::Labels => "labels",
            Self::Names => "names",
            Self::Notes => "notes",
            Self::Once => "notes` and `time",
            Self::RaiseToken => "raise_token",
            Self::Tickets => "tickets",
            Self::Transfer => "transfer",
            Self::Time => "time",
        })
    }
}

impl Needs {
    pub(crate) const EXCLUSIVE: Self = Self::subject(Subject::EachExclusive);
    pub(crate) const MUTEX: Self = Self::subject(Subject::Mutex);
    pub(crate) const READ_WRITE: Self = Self::subject(Subject::ReadWrite);
    pub(crate) const PERMITS: Self = Self::subject(Subject::Permits);

    const fn subject(subject: Subject) -> Self {
        let fair = false;
        let push = false;
        let blocking = false;
        let lease = false;
        let claim_lease = false;
        Self { subject, hook: None, fair, push, blocking, lease, ability: None, claim_lease }
    }

    pub(crate) const fn hook(mut self, hook: Hook) -> Self {
        self.hook = Some(hook);
        self
    }

    pub(crate) const fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    pub(crate) const fn push(mut self) -> Self {
        self.push = true;
        self
    }

    pub(crate) const fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }

    pub(crate) const fn lease(mut self) -> Self {
        self.lease = true;
        self
    }

    pub(crate) const fn ability(mut self, ability: Ability) -> Self {
        self.ability = Some(ability);
        self
    }

    pub(crate) const fn claim_lease(mut self) -> Self {
        self.claim_lease = true;
        self.lease()
    }

    /// Whether the case stops, fills or restarts a server that other cases use, too.
    pub(crate) fn disturbs(&self) -> bool {
        matches!(self.hook, Some(Hook::Fill | Hook::Pause | Hook::Restart))
    }

    /// The locks of a store that the case can be run on.
    pub(crate) fn flavors(&self, capabilities: &Capabilities) -> Vec<Flavor> {
        let all = match self.subject {
            Subject::EachExclusive => &[Flavor::Mutex, Flavor::Writer, Flavor::OnePermit][..],
            Subject::Mutex => &[Flavor::Mutex],
            Subject::ReadWrite => &[Flavor::Writer],
            Subject::Permits => &[Flavor::OnePermit],
        };
        all.iter().copied().filter(|flavor| flavor.is_in(capabilities)).collect()
    }

    /// Why the case can't be run although the store has a lock of its flavor.
    pub(crate) fn obstacle(&self, descriptor: &Descriptor, hooks: &[Hook]) -> Option<String> {
        let capabilities = &descriptor.capabilities;
        if self.fair && !capabilities.fair {
            return Some("the store does not claim `fair`".to_owned());
        }
        if self.push && !capabilities.push {
            return Some("the store does not claim `push`".to_owned());
        }
        if self.blocking && descriptor.max_patience.is_zero() {
            return Some("attempts don't wait inside the store".to_owned());
        }
        if self.lease && descriptor.exceptions.no_lease {
            return Some("the store lists the exception `no_lease`".to_owned());
        }
        if self.claim_lease && descriptor.lease_scope != LeaseScope::Claim {
            return Some("the store's leases belong to a session or a connection".to_owned());
        }
        if let Some(ability) = self.ability
            && !ability.is_in(capabilities)
        {
            return Some(format!("the store does not claim `{ability}`"));
        }
        match self.hook {
            Some(hook) if !hooks.contains(&hook) => {
                Some(format!("the harness has no hook {hook:?}"))
            }
            _ => None,
        }
    }

    /// The capability that a store without a lock for this case would need.
    pub(crate) fn missing_capability(&self) -> &'static str {
        match self.subject {
            Subject::EachExclusive | Subject::Mutex => "the store does not claim `exclusive`",
            Subject::ReadWrite => "the store does not claim `shared`",
            Subject::Permits => "the store does not claim `permits`",
        }
    }
}

/// Lists cases: `name: needs, "what it catches";`
macro_rules! cases {
    ($($name:ident: $needs:expr, $catches:literal;)*) => {
        pub(super) const CASES: &[$crate::case::Case] = &[$($crate::case::Case {
            name: stringify!($name),
            catches: $catches,
            needs: $needs,
            run: |env| Box::pin($name(env)),
        }),*];
    };
}
pub(crate) use cases;
