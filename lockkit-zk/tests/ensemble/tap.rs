//! A forwarder for one client that reads along: which `sync` was answered, and when it was sent. It
//! can make the client mute for a while: its requests wait, and its pings are answered by the
//! forwarder, so that it notices nothing.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

const PING: i32 = -2;
const SYNC: i32 = 9;

/// In front of one server. Its threads end with their connections; the listener's, with the
/// process.
#[derive(Debug)]
pub(crate) struct Tap {
    addr: SocketAddr,
    line: Arc<Mutex<Line>>,
}

#[derive(Debug, Default)]
struct Line {
    connections: usize,
    /// What waits while the client is mute.
    waiting: Option<Vec<Vec<u8>>>,
    to_server: Option<TcpStream>,
    asked: Option<Sync>,
    answered: Option<Sync>,
}

/// A `sync` that went to the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sync {
    xid: i32,
    pub(crate) sent: Instant,
}

impl Tap {
    pub(crate) fn on(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = listener.local_addr()?;
        let line = Arc::new(Mutex::new(Line::default()));
        let shared = Arc::clone(&line);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                // A forwarder that breaks ends the connection, which the test sees.
                let _ =
                    TcpStream::connect(server).and_then(|server| serve(client, server, &shared));
            }
        });
        Ok(Self { addr, line })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on the server hears nothing of the client.
    pub(crate) fn mute(&self) {
        lock(&self.line).waiting.get_or_insert_default();
    }

    /// Sends what has waited.
    pub(crate) fn unmute(&self) -> io::Result<()> {
        let mut line = lock(&self.line);
        for frame in line.waiting.take().unwrap_or_default() {
            line.send(&frame)?;
        }
        Ok(())
    }

    /// How often the client has connected.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.line).connections
    }

    /// The newest that was answered.
    pub(crate) fn newest(&self) -> Option<Sync> {
        lock(&self.line).answered
    }
}

impl Line {
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if let (Some(xid), Some(SYNC)) = (number(frame, 4), number(frame, 8)) {
            self.asked = Some(Sync { xid, sent: Instant::now() });
        }
        self.to_server.as_mut().ok_or(io::ErrorKind::NotConnected)?.write_all(frame)
    }
}

fn serve(client: TcpStream, server: TcpStream, shared: &Arc<Mutex<Line>>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut from_client = client.try_clone()?;
    let mut pongs = client.try_clone()?;
    let mut from_server = server.try_clone()?;
    let mut to_client = client;
    {
        let mut line = lock(shared);
        line.connections += 1;
        line.to_server = Some(server);
    }
    let up = Arc::clone(shared);
    let down = Arc::clone(shared);
    thread::spawn(move || {
        while let Ok(frame) = read(&mut from_client) {
            let mut line = lock(&up);
            let passed = match &mut line.waiting {
                Some(_) if number(&frame, 4) == Some(PING) => pongs.write_all(&pong()),
                Some(waiting) => {
                    waiting.push(frame);
                    Ok(())
                }
                None => line.send(&frame),
            };
            if passed.is_err() {
                break;
            }
        }
        // The other direction ends, too; it may have ended already.
        let _ = (from_client.shutdown(Shutdown::Both), lock(&up).to_server.take());
    });
    thread::spawn(move || {
        while let Ok(frame) = read(&mut from_server) {
            // Held for the whole write: a pong must not come into the middle.
            let mut line = lock(&down);
            if let Some(asked) = line.asked.take_if(|asked| number(&frame, 4) == Some(asked.xid)) {
                line.answered = Some(asked);
            }
            if to_client.write_all(&frame).is_err() {
                break;
            }
        }
        let _ = (from_server.shutdown(Shutdown::Both), to_client.shutdown(Shutdown::Both));
    });
    Ok(())
}

/// A frame with its length: then comes the number of the request, then what it is.
fn read(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame)?;
    let length = number(&frame, 0)
        .and_then(|length| usize::try_from(length).ok())
        .ok_or(io::ErrorKind::InvalidData)?;
    frame.resize(4 + length, 0);
    from.read_exact(&mut frame[4..])?;
    Ok(frame)
}

/// The number of the request, a zxid, no error.
fn pong() -> Vec<u8> {
    [&16_i32.to_be_bytes()[..], &PING.to_be_bytes(), &[0; 8], &[0; 4]].concat()
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}
