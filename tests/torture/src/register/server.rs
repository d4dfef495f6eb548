//! The server side of the register.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{Verdict, Write};
use crate::{
    error::{Error, Result},
    history::{Event, Lock, Writer},
};

/// Listens on this machine only, and compares tokens.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    shelf: Arc<Shelf>,
}

impl Server {
    pub(crate) async fn start(history: Writer) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener =
            listener.map_err(|error| Error::of("the register could not open its port", error))?;
        Ok(Self { listener, shelf: Arc::new(Shelf { largest: Mutex::default(), history }) })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        self.listener
            .local_addr()
            .map_err(|error| Error::of("the register could not read its own address", error))
    }

    /// Serves until it is dropped.
    ///
    /// # Errors
    /// The register got a line that it doesn't understand, or could not accept a connection. In
    /// both cases the run proves nothing.
    pub(crate) async fn serve(self) -> Result<()> {
        let mut callers = JoinSet::new();
        loop {
            tokio::select! {
                caller = self.listener.accept() => {
                    let failed =
                        |error| Error::of("the register could not accept a connection", error);
                    let (caller, _) = caller.map_err(failed)?;
                    callers.spawn(attend(caller, Arc::clone(&self.shelf)));
                }
                Some(left) = callers.join_next() => {
                    left.map_err(|error| Error::of("a task of the register panicked", error))??;
                }
            }
        }
    }
}

/// The largest tokens so far, and the history.
#[derive(Debug)]
struct Shelf {
    largest: Mutex<BTreeMap<Lock, u64>>,
    history: Writer,
}

impl Shelf {
    fn compare(&self, write: Write) -> Verdict {
        let Write { op, lock, token } = write;
        // This lock lasts until the record is written, so the records are in the order of the
        // comparisons.
        let mut known = self.largest.lock().unwrap_or_else(PoisonError::into_inner);
        let largest = known.get(&lock).copied().unwrap_or(0);
        let accepted = token >= largest;
        if accepted {
            known.insert(lock.clone(), token);
        }
        self.history.write(Event::Compared { op, lock, token, largest, accepted });
        Verdict { accepted, largest: largest.max(token) }
    }
}

/// Answers one caller until the caller closes the connection or dies.
async fn attend(caller: TcpStream, shelf: Arc<Shelf>) -> Result<()> {
    let _ = caller.set_nodelay(true);
    let mut caller = BufReader::new(caller);
    let mut line = Vec::new();
    loop {
        line.clear();
        // A line without a line end comes from a caller that was killed.
        if caller.read_until(b'\n', &mut line).await.is_err() || !line.ends_with(b"\n") {
            return Ok(());
        }
        let write = serde_json::from_slice(&line);
        let write = write.map_err(|error| {
            Error::of("the register got a line that it doesn't understand", error)
        })?;
        let answer = answer(&shelf.compare(write))?;
        if caller.write_all(&answer).await.is_err() {
            return Ok(());
        }
    }
}

fn answer(verdict: &Verdict) -> Result<Vec<u8>> {
    let line = serde_json::to_string(verdict).map_err(io::Error::from);
    line.map(|line| format!("{line}\n").into_bytes())
        .map_err(|error| Error::of("the register could not encode its answer", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        history::{Op, REGISTER, Record, read},
        register::Client,
    };

    const OP: Op = Op { process: 1, number: 1 };

    #[tokio::test]
    async fn c4_a_write_below_the_largest_token_is_refused_per_lock() {
        let folder = tempfile::tempdir().unwrap();
        let history = Writer::create(&folder.path().join("register.jsonl"), REGISTER).unwrap();
        let server = Server::start(history).await.unwrap();
        let address = server.address().unwrap();
        let serving = tokio::spawn(server.serve());
        let one = Lock::Mutex("a".to_owned());
        let other = Lock::RwLock("a".to_owned());
        let mut first = Client::connect(address).await.unwrap();
        let mut second = Client::connect(address).await.unwrap();
        let verdict = |accepted, largest| Verdict { accepted, largest };
        assert_eq!(first.write(OP, &one, 5).await.unwrap(), verdict(true, 5));
        assert_eq!(second.write(OP, &one, 4).await.unwrap(), verdict(false, 5));
        assert_eq!(
            second.write(OP, &one, 5).await.unwrap(),
            verdict(true, 5),
            "a holder writes more than once"
        );
        assert_eq!(second.write(OP, &other, 1).await.unwrap(), verdict(true, 1), "another lock");
        assert_eq!(first.write(OP, &one, 7).await.unwrap(), verdict(true, 7));
        serving.abort();
        let compared: Vec<_> = read(folder.path()).unwrap().into_iter().map(seen).collect();
        assert_eq!(
            compared,
            [(5, 0, true), (4, 5, false), (5, 5, true), (1, 0, true), (7, 5, true)]
        );
    }

    #[tokio::test]
    async fn a_bad_line_is_an_error_but_an_incomplete_line_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let history = Writer::create(&folder.path().join("register.jsonl"), REGISTER).unwrap();
        let server = Server::start(history).await.unwrap();
        let address = server.address().unwrap();
        let serving = tokio::spawn(server.serve());
        let mut killed = TcpStream::connect(address).await.unwrap();
        killed.write_all(br#"{"op":"p1."#).await.unwrap();
        drop(killed);
        let mut client = Client::connect(address).await.unwrap();
        assert!(client.write(OP, &Lock::Mutex("a".to_owned()), 1).await.unwrap().accepted);
        let mut confused = TcpStream::connect(address).await.unwrap();
        confused.write_all(b"what?\n").await.unwrap();
        let error = serving.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("doesn't understand"), "{error}");
    }

    fn seen(record: Record) -> (u64, u64, bool) {
        match record.event {
            Event::Compared { token, largest, accepted, .. } => (token, largest, accepted),
            other => panic!("{other:?}"),
        }
    }
}
