//! A TCP proxy that does to a connection what networks do: it delays, swallows, cuts and resets. It
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

/// One proxy in front of one endpoint. Dropped, it resets every connection and stops to listen.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    state: watch::Sender<State>,
    listener: JoinHandle<()>,
}

/// What the proxy does to its connections, the present ones and those to come.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toxics {
    /// What happens to bytes from the client to the server.
    pub up: Direction,
    /// What happens to bytes from the server to the client.
    pub down: Direction,
    /// New connections are accepted and reset.
    pub refuse: bool,
    /// New connections are accepted, and nobody ever talks on them.
    pub accept_hole: bool,
}

/// What happens to the bytes of one direction.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Each byte arrives this much later.
    pub delay: Duration,
    /// Each piece is delayed by up to this much more. The order is kept.
    pub jitter: Duration,
    /// A black hole: nothing arrives until it is lifted, and then everything does.
    pub hold: bool,
    /// Bytes are read and thrown away. A connection that lost some is reset when this is lifted: no
    /// TCP stream goes on behind a hole.
    pub discard: bool,
    /// Each connection is reset when so many bytes more have passed: counted from its start, or
    /// from when this was set, whichever was later. Where what was sent at once would end just
    /// there, it lacks its last byte.
    pub cut_after: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct State {
    toxics: Toxics,
    /// Counts calls of `reset_all`.
    resets: u64,
    /// Counts calls of `reset_clients`.
    client_resets: u64,
    /// The argument of the last one.
    late: Duration,
    /// Counts calls of `heal`.
    heals: u64,
    /// Counts changes of a `cut_after`.
    cuts: u64,
}

impl Proxy {
    /// Listens on a free port of the loopback interface, for connections that go on to `server`.
    ///
    /// # Errors
    /// No port could be had.
    ///
    /// # Cancel safety
    /// Dropped midway, nothing listens.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let socket = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = socket.local_addr()?;
        let (state, watched) = watch::channel(State::default());
        let listener = tokio::spawn(listen(socket, server, watched));
        Ok(Self { addr, state, listener })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes what happens to the connections.
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

    /// Resets every live connection, at both ends; bytes under way are lost.
    pub fn reset_all(&self) {
        self.state.send_modify(|state| state.resets += 1);
    }

    /// Resets the client's end of every live connection. What is under way to the server still
    /// arrives there, but not before `late` has passed: a request that comes after its client has
    /// given up.
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
