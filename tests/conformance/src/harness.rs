//! The interface of a store under test: how to connect to it, and how to disturb it.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    LockName, Result as StoreResult,
    spi::{Backend, Descriptor},
};

use crate::faulty::Faulty;

/// Why a store could not be opened, or a hook failed.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// One kind of store under test, such as one server. The runner asks it for a fresh [`Harness`] for
/// each case.
///
/// Resources that all cases share, such as a server, start when the value is made, and end when it
/// is dropped.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The first part of the names of its tests, such as `redis`.
    fn name(&self) -> &str;

    /// The descriptor of its backends, by which the suite chooses the cases. No I/O.
    fn descriptor(&self) -> Descriptor;

    /// The site of its data. A case that pauses, fills or restarts one of two stores of one site
    /// disturbs the other store as well. No I/O.
    fn site(&self) -> String {
        self.name().to_owned()
    }

    /// The optional hooks that its harness supports. No I/O. An empty list is a good start.
    ///
    /// A case that needs a missing hook is listed as not applicable, with the reason.
    fn hooks(&self) -> Vec<Hook>;

    /// Whether another store of the same run has the same locks, so that the first lock of this one
    /// is enough for each case. No I/O.
    fn is_twin(&self) -> bool {
        false
    }

    /// The same store on a server that no other case uses, for cases that pause, fill or restart
    /// it. This call may start that server. `None` if there is only one server; then such a case
    /// runs while no other case does.
    ///
    /// # Errors
    /// The server can't be started.
    fn on_a_server_of_its_own(&self) -> Result<Option<Arc<dyn Store>>, BoxError> {
        Ok(None)
    }

    /// Makes a harness with a namespace of its own, such as a random prefix where the store is
    /// shared.
    ///
    /// # Errors
    /// The store can't be reached.
    async fn open(&self) -> Result<Box<dyn Harness>, BoxError>;
}

/// One store, or one namespace of a shared store, for one case. Dropping it undoes the effects of
/// its hooks.
#[async_trait]
pub trait Harness: fmt::Debug + Send + Sync + 'static {
    /// Connects: a new backend over the same data, with a connection of its own.
    ///
    /// # Errors
    /// The store can't be reached.
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError>;

    /// Connects through a link that can break the connection.
    ///
    /// A store behind a socket puts the [fault proxy](crate::proxy::Proxy) in between and claims
    /// [`Hook::Wire`]. Without that, faults happen between core and backend. This default is not
    /// enough for a store whose leases belong to its session: the requests that keep up the session
    /// must suffer as well.
    ///
    /// # Errors
    /// The store can't be reached.
    async fn connect_through_faults(&self) -> Result<(Arc<dyn Backend>, Arc<dyn Link>), BoxError> {
        let faulty = Faulty::new(self.connect().await?);
        let line = faulty.line();
        Ok((Arc::new(faulty), line))
    }

    /// Ends every grant of a name without the holders' knowledge, as an eviction or a careless
    /// operator does. Idle data of the name, such as its last token, remains.
    ///
    /// # Errors
    /// The store can't be reached.
    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError>;

    /// Lists the entries of the namespace that must not exist once all locks are released, with a
    /// text for each. Data that an idle name may leave, such as its last token with a time to live,
    /// is not listed.
    ///
    /// # Errors
    /// The store can't be reached.
    async fn leaks(&self) -> Result<Vec<String>, BoxError>;

    /// Ends the harness's own connections and tasks. Afterwards the process must not have more of
    /// either than before the case.
    async fn close(&self);

    /// [`Hook::Flush`]: the namespace loses all its data, as by FLUSHALL or by a failover to an
    /// empty replica.
    ///
    /// # Errors
    /// The hook is missing, or the store can't be reached.
    async fn flush(&self) -> Result<(), BoxError> {
        missing(Hook::Flush)
    }

    /// [`Hook::Foreign`]: a client that is not lockkit takes the lock for this long, in the usual
    /// way of such clients.
    ///
    /// # Errors
    /// The hook is missing, or the store can't be reached.
    async fn foreign_lock(&self, name: &LockName, ttl: Duration) -> Result<(), BoxError> {
        let _ = (name, ttl);
        missing(Hook::Foreign)
    }

    /// [`Hook::Foreign`]: that client gives the lock back. True if it still had the lock.
    ///
    /// # Errors
    /// The hook is missing, or the store can't be reached.
    async fn foreign_unlock(&self, name: &LockName) -> Result<bool, BoxError> {
        let _ = name;
        missing(Hook::Foreign)
    }

    /// [`Hook::Parts`]: the links between each part of the store, such as a member of a quorum, and
    /// all backends of this harness. They are made with the harness, and also disturb backends that
    /// connect later.
    fn parts(&self) -> Vec<Arc<dyn Link>> {
        Vec::new()
    }

    /// [`Hook::Pause`]: the store becomes silent, as by SIGSTOP; its connections remain.
    ///
    /// # Errors
    /// The hook is missing, or the store can't be stopped.
    async fn pause(&self) -> Result<(), BoxError> {
        missing(Hook::Pause)
    }

    /// [`Hook::Pause`]: the store continues.
    ///
    /// # Errors
    /// The hook is missing, or the store can't be continued.
    async fn resume(&self) -> Result<(), BoxError> {
        missing(Hook::Pause)
    }

    /// [`Hook::ClockBack`]: sets the store's clock back by this much, at least for a mutex that is
    /// held: its lease ends later by this much.
    ///
    /// # Errors
    /// The hook is missing, or the store can't be reached.
    async fn set_clock_back(&self, name: &LockName, by: Duration) -> Result<(), BoxError> {
        let _ = (name, by);
        missing(Hook::ClockBack)
    }

    /// [`Hook::Fill`]: the store has no room left, and refuses writes that need more room. A store
    /// without such a bound does nothing.
    ///
    /// # Errors
    /// The hook is missing, or the store can't be reached.
    async fn fill(&self) -> Result<(), BoxError> {
        missing(Hook::Fill)
    }

    /// [`Hook::Fill`]: the store has room again.
    ///
    /// # Errors
    /// The hook is missing, or the store can't be reached.
    async fn make_room(&self) -> Result<(), BoxError> {
        missing(Hook::Fill)
    }

    /// [`Hook::Restart`]: the store ends and starts again. The store decides which data it keeps.
    ///
    /// # Errors
    /// The hook is missing, or the store does not come back.
    async fn restart(&self) -> Result<(), BoxError> {
        missing(Hook::Restart)
    }
}

/// The hooks that a [`Harness`] may lack.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// [`Harness::set_clock_back`].
    ClockBack,
    /// [`Harness::fill`] and [`Harness::make_room`].
    Fill,
    /// [`Harness::flush`].
    Flush,
    /// [`Harness::foreign_lock`].
    Foreign,
    /// [`Harness::parts`], at least two of them.
    Parts,
    /// [`Harness::pause`] and [`Harness::resume`].
    Pause,
    /// [`Harness::restart`].
    Restart,
    /// [`Harness::connect_through_faults`] breaks a real connection, so that a request can arrive
    /// after its sender has given up.
    Wire,
}

/// The connection of one backend, on which a test can set faults.
pub trait Link: fmt::Debug + Send + Sync + 'static {
    /// Replaces the faults.
    fn set(&self, faults: Faults);

    /// Breaks the present connections. Requests in progress fail with an unknown outcome.
    fn cut(&self);

    /// Breaks the present connections at the client's end only: requests in progress still arrive,
    /// this much later. Without [`Hook::Wire`] the same as [`cut`](Self::cut).
    fn cut_client(&self, late: Duration) {
        let _ = late;
        self.cut();
    }

    /// Ends all faults. This breaks a connection that lost bytes.
    fn heal(&self) {
        self.set(Faults::NONE);
    }
}

/// The faults that a [`Link`] applies to requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Requests arrive this much later.
    pub request_delay: Duration,
    /// Replies arrive this much later.
    pub reply_delay: Duration,
    /// Requests do not arrive until this fault ends.
    pub hold_requests: bool,
    /// Requests are executed, and their replies never come.
    pub lose_replies: bool,
    /// No connection can be made.
    pub refuse: bool,
}

impl Faults {
    /// A healthy link.
    pub const NONE: Self = Self {
        request_delay: Duration::ZERO,
        reply_delay: Duration::ZERO,
        hold_requests: false,
        lose_replies: false,
        refuse: false,
    };
    /// Neither requests nor replies come through.
    pub const SILENCE: Self = Self { hold_requests: true, lose_replies: true, ..Self::NONE };
    /// Requests are executed, and their replies are lost.
    pub const LOST_REPLIES: Self = Self { lose_replies: true, ..Self::NONE };
}

fn missing<T>(hook: Hook) -> Result<T, BoxError> {
    Err(format!("the hook {hook:?} is missing, and a case that doesn't ask for it called it")
        .into())
}

/// Ends every grant of a name by its token, for [`Harness::expire_now`]. A grant may end by itself
/// in the meantime: the end of one grant wakes its holder, which may then give back others.
///
/// # Errors
/// The error of the store.
pub async fn free_all(store: &dyn Backend, name: &LockName) -> StoreResult<()> {
    for token in store.inspect(name).await?.holders.iter().filter_map(|holder| holder.token) {
        let _ = store.force_release(name, token).await?;
    }
    Ok(())
}
