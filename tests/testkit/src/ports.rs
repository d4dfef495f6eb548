//! Ports for servers that are killed and started again on the same port.

use std::{
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Error, Result, bail};

/// Below every system's range for outgoing connections. While a server is down, a client keeps
/// trying its port. The system could give that very port to the client as its own end. The client
/// would then talk to itself and keep the server out.
const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;

/// How many ports this process has looked at.
static LOOKED_AT: AtomicU32 = AtomicU32::new(0);

/// A port of 127.0.0.1 that no program listens on. This process does not get the same port again
/// soon.
pub(crate) fn free() -> Result<u16> {
    // Processes that run side by side search in different ranges. Otherwise a process could take
    // the port of a server that is down.
    let start = process::id().wrapping_mul(997);
    for _ in 0..COUNT {
        let step = LOOKED_AT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + start.wrapping_add(step) % COUNT)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of 127.0.0.1 between {FIRST} and {} is free", FIRST + COUNT)
}

/// Whether a server failed to start because another program has one of its ports.
pub(crate) fn is_taken(error: &Error) -> bool {
    is_told(&format!("{error:#}"))
}

/// Whether a server's log says so.
pub(crate) fn is_told(log: &str) -> bool {
    log.contains("Address already in use")
}
