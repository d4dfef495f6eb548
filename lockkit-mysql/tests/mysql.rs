//! Tests of the MySQL backend on real servers, MariaDB and MySQL. They test what both strategies
//! share, and the optimistic strategy, below the core's driver and with it.

#[macro_use]
extern crate lockkit_fixture;

#[path = "mysql/support.rs"]
mod support;

#[path = "mysql/counts.rs"]
mod counts;
#[path = "mysql/crowd.rs"]
mod crowd;
#[path = "mysql/cut.rs"]
mod cut;
#[path = "mysql/diagnosis.rs"]
mod diagnosis;
#[path = "mysql/doubt.rs"]
mod doubt;
#[path = "mysql/format.rs"]
mod format;
#[path = "mysql/galera.rs"]
mod galera;
#[path = "mysql/gc.rs"]
mod gc;
#[path = "mysql/many.rs"]
mod many;
#[path = "mysql/names.rs"]
mod names;
#[path = "mysql/note.rs"]
mod note;
#[path = "mysql/operator.rs"]
mod operator;
#[path = "mysql/outage.rs"]
mod outage;
#[path = "mysql/own_pool.rs"]
mod own_pool;
#[path = "mysql/polling.rs"]
mod polling;
#[path = "mysql/reachable.rs"]
mod reachable;
#[path = "mysql/readers.rs"]
mod readers;
#[path = "mysql/refusal.rs"]
mod refusal;
#[path = "mysql/releases.rs"]
mod releases;
#[path = "mysql/rows.rs"]
mod rows;
#[path = "mysql/runtimes.rs"]
mod runtimes;
#[path = "mysql/settings.rs"]
mod settings;
#[cfg(feature = "tls")]
#[path = "mysql/tls.rs"]
mod tls;
#[path = "mysql/transfer.rs"]
mod transfer;
#[path = "mysql/turns.rs"]
mod turns;
