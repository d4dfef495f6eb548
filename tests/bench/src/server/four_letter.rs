//! Sends ZooKeeper's four-letter words: one connection for each word, without encryption.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer that is read, far longer than any real one.
const LONGEST: u64 = 1 << 20;

/// A server's answer to a word; `None` if the word is not allowed, or not understood.
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
