//! The holders' side of the register.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::{Verdict, Write};
use crate::{
    error::{Error, Result},
    history::{Lock, Op},
};

/// No fault hits the register, so only an overloaded machine takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to the register, for one task.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = bounded("connect to", async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        Ok(Self { stream: BufReader::new(stream.await?) })
    }

    /// Writes once, with this token.
    ///
    /// Not cancel safe: the next write would read the answer to this write.
    pub(crate) async fn write(&mut self, op: Op, lock: &Lock, token: u64) -> Result<Verdict> {
        bounded("write to", async {
            let line = serde_json::to_string(&Write { op, lock: lock.clone(), token })?;
            self.stream.write_all(format!("{line}\n").as_bytes()).await?;
            let mut answer = String::new();
            if self.stream.read_line(&mut answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(serde_json::from_str(&answer)?)
        })
        .await
    }
}

async fn bounded<T>(what: &str, work: impl Future<Output = io::Result<T>>) -> Result<T> {
    match timeout(PATIENCE, work).await {
        Ok(done) => {
            done.map_err(|error| Error::of(format!("could not {what} the register"), error))
        }
        Err(_) => {
            Err(Error::new(format!("could not {what} the register: no answer within {PATIENCE:?}")))
        }
    }
}
