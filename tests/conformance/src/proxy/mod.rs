//! A TCP proxy that disturbs connections as networks do: it delays, swallows, cuts and resets. It
//! needs no privilege and no kernel module.

mod connection;
mod link;
mod pipe;
#[cfg(test)]
mod tests;

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    net::TcpListener,
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use self::connection::serve;

/// One proxy in front of one endpoint. Dropping it resets every connection and ends listening.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    state: watch::Sender<State>,
    listener: JoinHandle<()>,
}

/// The faults that the proxy applies to its present and future connections.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toxics {
    /// The faults for bytes from the client to the server.
    pub up: Direction,
    /// The faults for bytes from the server to the client.
    pub down: Direction,
    /// New connections are accepted and reset.
    pub refuse: bool,
    /// New connections are accepted, but never get a byte.
    pub accept_hole: bool,
}

/// The faults for the bytes of one direction.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Each byte arrives this much later.
    pub delay: Duration,
    /// Each piece is delayed by up to this much more. The order of the pieces is kept.
    pub jitter: Duration,
    /// A black hole: no byte arrives until this fault ends, and then all bytes do.
    pub hold: bool,
    /// The proxy reads bytes and throws them away. When this fault ends, a connection that lost
    /// bytes is reset, because a TCP stream can't continue after a gap.
    pub discard: bool,
    /// Each connection is reset after this many more bytes. They count from the connection's start,
    /// or from when this was set, whichever was later. If the limit falls on the end of a piece,
    /// that piece lacks its last byte.
    pub cut_after: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct State {
    toxics: Toxics,
    /// Counts calls of `reset_all`.
    resets: u64,
    /// Counts calls of `reset_clients`.
    client_resets: u64,
    /// The argument of the last call of `reset_clients`.
    late: Duration,
    /// Counts calls of `heal`.
    heals: u64,
    /// Counts changes of a `cut_after`.
    cuts: u64,
}

impl Proxy {
    /// Listens on a free port of the loopback interface, and forwards connections to `server`.
    ///
    /// # Errors
    /// No port was available.
    ///
    /// # Cancel safety
    /// If this future is dropped, nothing listens.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let socket = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = socket.local_addr()?;
        let (state, watched) = watch::channel(State::default());
        let listener = tokio::spawn(listen(socket, server, watched));
        Ok(Self { addr, state, listener })
    }

    /// The address that clients connect to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the faults of the connections.
    pub fn set(&self, change: impl FnOnce(&mut Toxics)) {
        self.state.send_modify(|state| state.change(change));
    }

    /// Ends all faults. Held and delayed bytes arrive now, in their order.
    pub fn heal(&self) {
        self.state.send_modify(|state| {
            state.change(|toxics| *toxics = Toxics::default());
            state.heals += 1;
        });
    }

    /// Resets every live connection, at both ends; bytes in transit are lost.
    pub fn reset_all(&self) {
        self.state.send_modify(|state| state.resets += 1);
    }

    /// Resets the client's end of every live connection. Bytes in transit to the server still
    /// arrive there, but not before `late` has passed. This models a request that comes after its
    /// client has given up.
    pub fn reset_clients(&self, late: Duration) {
        self.state.send_modify(|state| {
            state.client_resets += 1;
            state.late = late;
        });
    }
}

impl State {
    fn change(&mut self, change: impl FnOnce(&mut Toxics)) {
        let cuts = |toxics: &Toxics| (toxics.up.cut_after, toxics.down.cut_after);
        let before = cuts(&self.toxics);
        change(&mut self.toxics);
        self.cuts += u64::from(cuts(&self.toxics) != before);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn listen(socket: TcpListener, server: SocketAddr, state: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((client, _)) = socket.accept() => {
                connections.spawn(serve(client, server, state.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
