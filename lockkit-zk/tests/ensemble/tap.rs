//! A forwarder for one client that reads along: which `sync` was answered, and when it was sent. It can hold answers
//! back. Threads of its own, as the clients' runtime is to stall.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

const SYNC: i32 = 9;

/// In front of one server. Its threads end with their connections; the listener's, with the process.
#[derive(Debug)]
pub(crate) struct Tap {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<Vec<Line>>,
    holding: Mutex<bool>,
    released: Condvar,
}

/// One connection.
#[derive(Debug, Default)]
struct Line {
    asked: Option<Sync>,
    answered: Option<Sync>,
    /// Whether an answer is held back.
    held: bool,
}

/// A `sync` that passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sync {
    xid: i32,
    /// Not before its client did.
    pub(crate) sent: Instant,
}

impl Tap {
    pub(crate) fn on(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (addr, shared) = (listener.local_addr()?, Arc::new(Shared::default()));
        let for_lines = Arc::clone(&shared);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                // A forwarder that breaks ends a connection, which the test sees.
                let _ = serve(client, server, &for_lines);
            }
        });
        Ok(Self { addr, shared })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on answers are read and not passed on, until the opposite is set.
    pub(crate) fn hold(&self, hold: bool) {
        *lock(&self.shared.holding) = hold;
        self.shared.released.notify_all();
    }

    /// Whether an answer is held back.
    pub(crate) fn holds(&self) -> bool {
        lock(&self.shared.lines).iter().any(|line| line.held)
    }

    /// How often the client has connected.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.shared.lines).len()
    }

    /// The newest answered one.
    pub(crate) fn newest(&self) -> Option<Sync> {
        lock(&self.shared.lines).iter().filter_map(|line| line.answered).max_by_key(|sync| sync.sent)
    }
}

fn serve(client: TcpStream, server: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let index = {
        let mut lines = lock(&shared.lines);
        lines.push(Line::default());
        lines.len() - 1
    };
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    let up = Arc::clone(shared);
    thread::spawn(move || {
        forward(from_client, to_server, |xid, rest| {
            if number(rest) == Some(SYNC) {
                lock(&up.lines)[index].asked = Some(Sync { xid, sent: Instant::now() });
            }
        })
    });
    let down = Arc::clone(shared);
    thread::spawn(move || {
        forward(server, client, |xid, _| {
            {
                let line = &mut lock(&down.lines)[index];
                if let Some(asked) = line.asked.take_if(|asked| asked.xid == xid) {
                    line.answered = Some(asked);
                }
            }
            let holding = lock(&down.holding);
            lock(&down.lines)[index].held = *holding;
            drop(down.released.wait_while(holding, |holding| *holding));
        })
    });
    Ok(())
}

/// Frame by frame: a length, then the number of the request, then what it is.
fn forward(mut from: TcpStream, mut to: TcpStream, mut read_along: impl FnMut(i32, &[u8])) {
    let mut pass = || -> io::Result<()> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let size = usize::try_from(i32::from_be_bytes(length)).map_err(io::Error::other)?;
        let mut frame = vec![0; size];
        from.read_exact(&mut frame)?;
        if let Some(xid) = number(&frame) {
            read_along(xid, &frame[4..]);
        }
        to.write_all(&[&length, &frame[..]].concat())
    };
    while pass().is_ok() {}
    // The other direction ends, too; it may have ended already.
    let _ = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
}

fn number(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
