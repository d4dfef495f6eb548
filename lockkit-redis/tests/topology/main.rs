//! Several servers, and the ways to one.

mod acl;
mod cluster;
mod dead_node;
mod migration;
mod operator;
mod replicas;
mod sentinel;
#[allow(dead_code, reason = "each target of tests uses a part of it")]
#[path = "../redis/support.rs"]
mod support;
#[cfg(feature = "tls")]
mod tls;
