//! lockkit's backend for the processes of one host, without a server. It has fair mutexes,
//! read/write locks, semaphores and elections in a folder.
//!
//! Each process keeps a file of the folder locked (`flock`). The system unlocks that file when the
//! process ends, however it ends. Each name has a small readable file, which lists the holders and
//! the waiters in order. The system (`inotify`) wakes waiters within a fraction of a millisecond.
//!
//! ```text
//! file:///var/lib/app/locks[?parameter=value&…]
//! ```
//!
//! | parameter | default | meaning |
//! |---|---|---|
//! | `allow_network_fs` | `false` | allows a folder on NFS, SMB, FUSE and the like |
//!
//! Without `allow_network_fs`, a folder on a network file system is refused, because two hosts may
//! not see each other's locks there.
//!
//! There is no lease. A lock is free when it is released, when its process ends, or when an
//! operator frees it. A stopped process keeps its lock, and no other process gets it meanwhile. The
//! ttl only says how often a holder checks that it still has the lock. A holder learns at once if
//! an operator frees its lock, or if the file of its session is removed.
//!
//! * **The folder** must be on a disk of this host, and must outlast a restart, so do not use
//!   `/run` or `/tmp`. If a cleanup removes files while the folder is in use, two processes may
//!   hold the same lock. Without the records, only the clock keeps the order of fencing tokens. It
//!   is as harmful to remove single files of a folder that is in use. All processes need to read
//!   and write all of it. Files have the mode 0660 and folders 0770, less the umask. So a group can
//!   share a folder whose set-group-ID bit is set.
//! * **Tokens** are the wall clock in microseconds, or one more than the last token of the name if
//!   that is larger. Records are not written to the disk at once. So a restart of the host may lose
//!   a record, or a backup may restore an older one. Tokens still rise. The exceptions are a clock
//!   that was set back meanwhile, and a [`raise_token`](lockkit_core::spi::Claim::raise_token) that
//!   had raised the last token beyond the clock.
//! * **A release that fails** is repeated: the store tries again about once a second, until the
//!   release succeeds or the store is closed.
//! * **Notes** are on the disk before they count as written.
//! * **A child process** that was started by `exec` holds nothing. A forked child that continues
//!   without `exec` keeps the locks of its parent until it ends, too, or the parent releases them.
//!   So does a child that was given the [`SessionFile`]. A forked child must not use the store
//!   itself.
//! * **A process that is stopped** in the few microseconds in which it changes a record blocks that
//!   name for all others. They get an error that names the process, until it continues or ends. A
//!   waiter that is stopped loses its turn after three seconds.
//! * Files of idle names stay, with a few hundred bytes each. For each of the last 64 names, two
//!   files stay open.
//!
//! Needs Unix. On systems other than Linux, waiters look up to ten times a second.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod attachment;
mod backend;
mod claim;
mod cleanups;
mod config;
mod diagnosis;
mod error;
mod files;
mod folder;
mod gate;
mod gate_cache;
mod host;
mod local_claims;
mod mount;
mod names;
mod note;
mod record;
mod session;
mod shared;
mod store;
mod turns;
mod version;
mod watching;

use std::sync::Arc;

use lockkit_core::{Connector, Registry, Result, spi::Backend, url::StoreUrl};

pub use self::{attachment::SessionFile, backend::FileStore, config::Config};

/// The URL schemes of this backend.
pub const SCHEMES: &[&str] = &["file"];

/// Registers the schemes of this backend.
pub fn register(registry: &mut Registry) {
    registry.register(FileConnector);
}

struct FileConnector;

#[async_trait::async_trait]
impl Connector for FileConnector {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    async fn connect(&self, url: StoreUrl, _: &Registry) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(FileStore::open(Config::from_url(url)?)?))
    }
}
