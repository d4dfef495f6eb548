//! Tests several servers, and the ways to find one.

mod acl;
mod cluster;
mod crowded;
mod dead_node;
mod deaf;
mod migration;
mod operator;
#[allow(dead_code, reason = "each target of tests uses a part of it")]
#[path = "../redis/proxy.rs"]
mod proxy;
mod replicas;
#[path = "../../src/scripts.rs"]
mod scripts;
mod sentinel;
#[allow(dead_code, reason = "each target of tests uses a part of it")]
#[path = "../redis/support.rs"]
mod support;
#[cfg(feature = "tls")]
mod tls;
