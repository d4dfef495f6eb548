//! Finds the server that has a name's keys, and keeps connections to the servers.

pub(crate) mod batch;
mod cluster;
mod collected;
mod connect;
mod endpoint;
mod handshake;
mod link;
mod node;
mod pool;
pub(crate) mod replicas;
mod route;
mod sentinel;
mod subscription_connection;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "tls")]
pub(crate) use self::tls::Tls;
pub(crate) use self::{
    cluster::Cluster,
    endpoint::Endpoint,
    link::Link,
    node::Node,
    route::{Destination, Route, Topology},
    sentinel::Sentinels,
};
