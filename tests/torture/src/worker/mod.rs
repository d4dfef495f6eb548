//! The work of a child process.

mod connect;
mod footprint;
mod handle;
mod hold;
mod holder;
mod locks;
mod observer;
mod parent;
mod plan;
mod pulse;

use std::time::Duration;

use lockkit::{ErrorKind, Locker};
use tokio::time::timeout;

use self::{footprint::Footprint, parent::Parent};
pub(crate) use self::{
    handle::{in_time, inspect},
    locks::Locks,
};
use crate::{
    child::{Answer, Job, Role},
    error::{Error, Result},
    history::{Event, REGISTER, Writer},
    register::Server,
};

/// The time for a locker to shut down, beyond the longest lease.
const FAREWELL: Duration = Duration::from_secs(5);

/// Does the work of a child process. The program that starts a [`Child`](crate::child::Child)
/// starts itself again to call this. `connect` is `lockkit::connect`, or creates a [`Locker`] in
/// another way.
///
/// It reads its role from standard input. It ends when its standard input ends, because its parent
/// ends it or has died. It needs a tokio runtime, preferably with two threads. No other task may
/// run on that runtime, because this counts the remaining tasks at its end.
///
/// # Errors
/// The child can't work, because it was not started as a child, or the set-up is broken. The
/// program that calls this writes the reason to standard error, and ends with a status other than
/// 0.
pub async fn child<F>(connect: F) -> Result<()>
where
    F: AsyncFn(&str) -> lockkit::Result<Locker>,
{
    let (parent, role) = Parent::hear().await?;
    let done = match role {
        Role::Holder(job) => work(&parent, job, connect, Task::Hold).await,
        Role::Observer(job) => work(&parent, job, connect, Task::Observe).await,
        Role::Register { history } => register(&parent, &history).await,
    };
    if let Err(error) = &done {
        parent.say(&Answer::Failed { reason: error.to_string() });
    }
    done
}

#[derive(Clone, Copy, Debug)]
enum Task {
    Hold,
    Observe,
}

async fn work<F>(parent: &Parent, job: Job, connect: F, task: Task) -> Result<()>
where
    F: AsyncFn(&str) -> lockkit::Result<Locker>,
{
    let history = Writer::create(&job.history, job.process)?;
    let before = Footprint::now();
    let Some(locker) = connect::connect(parent, &job.url, connect).await? else { return Ok(()) };
    history.write(Event::Begins { backend: locker.descriptor().name.to_owned() });
    match task {
        Task::Hold => holder::hold(parent, &job, &locker, &history).await?,
        Task::Observe => observer::observe(parent, &job, &locker, &history).await?,
    }
    let longest = job.workload.ttls.iter().max().copied().unwrap_or_default();
    let bound = longest.max(locker.descriptor().min_ttl) + FAREWELL;
    // If the shutdown hangs or fails, tasks or files remain, and the footprint shows them.
    let _ = timeout(bound, locker.shutdown()).await;
    drop(locker);
    let left = before.left().await;
    history.write(Event::Ends { tasks: left.tasks, files: left.files });
    Ok(())
}

async fn register(parent: &Parent, history: &std::path::Path) -> Result<()> {
    let server = Server::start(Writer::create(history, REGISTER)?).await?;
    parent.say(&Answer::Ready { address: Some(server.address()?) });
    tokio::select! {
        () = parent.leaves() => Ok(()),
        ended = server.serve() => ended,
    }
}

/// Returns an error that ends the run, if this error means that the set-up is broken. A broken
/// set-up is not a fault under test.
fn broken(error: &lockkit::Error) -> Result<()> {
    match error.kind() {
        ErrorKind::Authentication
        | ErrorKind::InsideRuntime
        | ErrorKind::InvalidName
        | ErrorKind::InvalidOption
        | ErrorKind::InvalidUrl
        | ErrorKind::MissingFeature
        | ErrorKind::NewerFormat
        | ErrorKind::NoRuntime
        | ErrorKind::PermissionDenied
        | ErrorKind::UnknownParameter
        | ErrorKind::UnknownScheme
        | ErrorKind::Unsupported
        | ErrorKind::WrongType => Err(Error::new(format!(
            "the test can't use the store with its present settings: {error}"
        ))),
        _ => Ok(()),
    }
}
