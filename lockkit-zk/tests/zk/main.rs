//! The ZooKeeper backend against real single servers: with the core's driver, and without it.

mod acl;
mod batches;
mod cancel;
mod container;
mod counts;
mod crowd;
mod diagnosis;
mod downgrade;
mod evict;
mod format;
mod heartbeat;
mod lease;
mod lost;
mod many;
mod names;
mod note;
mod outage;
mod own_client;
mod permits;
mod reachable;
mod refusal;
mod runtime;
mod session;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod unfair;
mod unfair_lost;
mod unfair_storm;
mod unfair_tampered;
mod waiting;
