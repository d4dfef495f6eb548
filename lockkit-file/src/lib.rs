//! lockkit's backend for the processes of one host, without a server: fair mutexes, read/write
//! locks, semaphores and elections in a folder.
//!
//! Each process keeps a file of the folder locked (`flock`), which the system unlocks when the
//! process ends, however it ends. Who holds a lock and who waits for it in order stands in a small
//! readable file for each name. Waiters are woken by the system (`inotify`) within a fraction of a
//! millisecond.
//!
//! ```text
//! file:///var/lib/app/locks[?parameter=value&…]
//! ```
//!
//! | parameter | default | meaning |
//! |---|---|---|
//! | `allow_network_fs` | `false` | allows a folder on NFS, SMB, FUSE and the like, which is refused else: there, two hosts may not see each other's locks |
//!
//! There is no lease: a lock is free when it is released, when its process ends, or when an
//! operator frees it. A process that is stopped holds on, and nobody has the lock meanwhile; the
//! ttl means only how often a holder looks whether it still has it. Whoever is freed by an
//! operator, or finds the file of its session removed, hears so at once.
//!
//! * **The folder** must be on a disk of this host, and last over a restart: not in `/run` or
//!   `/tmp`, as what is cleaned up there while it is in use lets two hold the same lock, and with
//!   the records the order of fencing tokens goes, unless the clock saves it. Removing single files
//!   of a folder that is in use is as harmful. All processes need to read and write all of it:
//!   files are made with the mode 0660 and folders with 0770, less the umask, so that a group can
//!   share one whose set-group-ID bit is set.
//! * **Tokens** are the wall clock in microseconds, or go on from the last one of a name if that is
//!   larger. Nothing is written to the disk at once, so a restart of the host may lose a record, or
//!   a backup put an older one back: tokens rise all the same, unless the clock was set back
//!   meanwhile, or [`raise_token`](lockkit_core::spi::Claim::raise_token) had raised the last one
//!   beyond it.
//! * **A release that fails** is made up for: the store tries again about once a second, until it
//!   is done or closed.
//! * **Notes** are on the disk before they count as written.
//! * **A child process** made by `exec` holds nothing. One that is forked and goes on without
//!   `exec` keeps the locks of its parent until it ends, too, or the parent gives them up, as does
//!   one that was given the [`SessionFile`]; it must not use the store itself.
//! * **A process that is stopped** in the few microseconds in which it changes a record keeps all
//!   others from that name: they get an error that names it, until it goes on or ends. A waiter
//!   that is stopped loses its turn after three seconds.
//! * Files of idle names stay, a few hundred bytes each. Two for each of the last 64 names stay
//!   open.
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

/// Teaches a registry the schemes of this backend.
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
