//! Ports for servers that are killed and started again on the same port.

use std::{
    net::{Ipv4Addr, TcpListener, UdpSocket},
    process,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Error, Result};

/// Below every system's range for outgoing connections. While a server is down, a client keeps
/// trying its port. The system could give that very port to the client as its own end. The client
/// would then talk to itself and keep the server out.
const FIRST: u16 = 10_000;
const BLOCKS: u16 = 220;
const PORTS_IN_A_BLOCK: u16 = 100;

/// The blocks of this process, the current one last.
static BLOCKS_OF_THIS_PROCESS: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// Consecutive ports that no other process takes, although nothing listens on them.
///
/// A test may kill its server and start it again later. Meanwhile another test program must not
/// start a server on that port, because the clients of the first test would take it for their own.
struct Block {
    /// The UDP port of the block's first number. The system gives it to one process only, and frees
    /// it when that process ends.
    _reservation: UdpSocket,
    first: u16,
    /// How many ports of the block this process has looked at.
    looked_at: u16,
}

impl Block {
    /// Reserves a block that no process has. Processes begin their searches at different blocks.
    fn reserve() -> Result<Self> {
        let start = process::id() % u32::from(BLOCKS);
        let numbers = (0..BLOCKS).map(|step| (u16::try_from(start).unwrap_or(0) + step) % BLOCKS);
        let mut firsts = numbers.map(|number| FIRST + number * PORTS_IN_A_BLOCK);
        firsts
            .find_map(|first| {
                let reservation = UdpSocket::bind((Ipv4Addr::LOCALHOST, first)).ok()?;
                Some(Self { _reservation: reservation, first, looked_at: 0 })
            })
            .with_context(|| {
                format!("other programs have reserved all ports of 127.0.0.1 from {FIRST} on")
            })
    }

    /// The next port of the block that no program listens on.
    fn next(&mut self) -> Option<u16> {
        while self.looked_at < PORTS_IN_A_BLOCK {
            let port = self.first + self.looked_at;
            self.looked_at += 1;
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Some(port);
            }
        }
        None
    }
}

/// A port of 127.0.0.1 that no program listens on. While this process runs, no process gets
/// the same port again.
pub(crate) fn free() -> Result<u16> {
    let mut blocks = BLOCKS_OF_THIS_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(port) = blocks.last_mut().and_then(Block::next) {
            return Ok(port);
        }
        blocks.push(Block::reserve()?);
    }
}

/// Whether a server failed to start because another program has one of its ports.
pub(crate) fn is_taken(error: &Error) -> bool {
    is_told(&format!("{error:#}"))
}

/// Whether a server's log says so.
pub(crate) fn is_told(log: &str) -> bool {
    log.contains("Address already in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_although_nothing_listens_on_it() {
        let mut ports: Vec<_> = (0..PORTS_IN_A_BLOCK * 2).map(|_| free().unwrap()).collect();
        let count = ports.len();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), count);
    }

    /// Catches a reservation that only its own process knows.
    #[test]
    fn the_system_gives_a_reserved_block_to_no_other_socket() {
        let block = Block::reserve().unwrap();
        let other = Block::reserve().unwrap();
        assert_ne!(block.first, other.first);
        assert!(UdpSocket::bind((Ipv4Addr::LOCALHOST, block.first)).is_err());
    }
}
