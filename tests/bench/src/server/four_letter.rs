//! ZooKeeper's four-letter words: a connection each, without encryption.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(2);
/// Far more than any answer has.
const LONGEST: u64 = 1 << 20;

/// What a server answers to a word; `None` if it is not allowed, or not understood.
pub(super) async fn ask(address: &str, word: &str) -> Option<String> {
    let answer = timeout(PATIENCE, exchange(address, word)).await.ok()?.ok()?;
    (!answer.is_empty() && !answer.contains("not executed because")).then_some(answer)
}

async fn exchange(address: &str, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).await?;
    Ok(answer)
}
