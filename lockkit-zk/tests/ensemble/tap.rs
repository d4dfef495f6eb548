//! A forwarder for one client that also reads the traffic: it records which `sync` was answered,
//! and when it was sent. It can mute the client for a while. The client's requests then wait, and
//! the forwarder answers its pings, so that the client notices nothing.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

const PING: i32 = -2;
const SYNC: i32 = 9;

/// A forwarder in front of one server. Its threads end with their connections. The listener's
/// thread ends with the process.
#[derive(Debug)]
pub(crate) struct Tap {
    addr: SocketAddr,
    line: Arc<Mutex<Line>>,
}

#[derive(Debug, Default)]
struct Line {
    connections: usize,
    /// The requests that wait while the client is muted.
    waiting: Option<Vec<Vec<u8>>>,
    to_server: Option<TcpStream>,
    asked: Option<Sync>,
    answered: Option<Sync>,
}

/// A `sync` that was sent to the server.
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
                // If a forwarder fails, the connection ends, and the test sees that.
                let _ =
                    TcpStream::connect(server).and_then(|server| serve(client, server, &shared));
            }
        });
        Ok(Self { addr, line })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops passing the client's requests to the server.
    pub(crate) fn mute(&self) {
        lock(&self.line).waiting.get_or_insert_default();
    }

    /// Sends the requests that waited.
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

    /// The newest `sync` that was answered.
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
        // Ends the other direction, too, which may have ended already.
        let _ = (from_client.shutdown(Shutdown::Both), lock(&up).to_server.take());
    });
    thread::spawn(move || {
        while let Ok(frame) = read(&mut from_server) {
            // The lock is held for the whole write, so that no pong comes into the middle of a
            // frame.
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

/// Reads a frame with its length. After the length come the number of the request and its type.
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

/// The answer to a ping: the number of the request, a zxid, and no error.
fn pong() -> Vec<u8> {
    [&16_i32.to_be_bytes()[..], &PING.to_be_bytes(), &[0; 8], &[0; 4]].concat()
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}
