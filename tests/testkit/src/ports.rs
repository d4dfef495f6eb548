//! Ports for servers that are killed and come back on the same one.

use std::{
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Error, Result, bail};

/// Below every system's range for outgoing connections: while a server is down, a client that keeps
/// trying its port could otherwise be given that very port as its own end, and would then talk to
/// itself and keep the server out.
const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;

/// How many ports this process has looked at.
static LOOKED_AT: AtomicU32 = AtomicU32::new(0);

/// A port of 127.0.0.1 that nobody listens on, and that this process is not given a second time
/// soon.
pub(crate) fn free() -> Result<u16> {
    // Processes that run side by side look in different places, and don't get to each other's: a
    // server may be down.
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

/// Whether a server failed to start because somebody else has one of its ports.
pub(crate) fn is_taken(error: &Error) -> bool {
    is_told(&format!("{error:#}"))
}

/// Whether a server's log tells so.
pub(crate) fn is_told(log: &str) -> bool {
    log.contains("Address already in use")
}
