//! One direction of a connection: a reader that stamps each piece with the time at which it is due, a queue, and a
//! writer. Apart from each other, so that delays of pieces that follow each other closely don't add up.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{Direction, State, Toxics};

pub(super) type Which = fn(&Toxics) -> &Direction;

#[derive(Debug)]
pub(super) struct Piece {
    due: Instant,
    bytes: Vec<u8>,
}

/// Unbounded: a proxy of tests holds what a test sends, and back pressure would change the timing.
pub(super) fn queue() -> (mpsc::UnboundedSender<Piece>, mpsc::UnboundedReceiver<Piece>) {
    mpsc::unbounded_channel()
}

/// Reads until the end of the stream.
pub(super) async fn fill(
    mut from: impl AsyncRead + Unpin,
    queue: mpsc::UnboundedSender<Piece>,
    mut state: watch::Receiver<State>,
    which: Which,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut torn = false;
    loop {
        let length = tokio::select! {
            length = from.read(&mut buffer) => length?,
            _ = state.wait_for(|s| !which(&s.toxics).discard), if torn => return Err(reset()),
        };
        if length == 0 {
            return Ok(());
        }
        let direction = which(&state.borrow().toxics).clone();
        if direction.discard {
            torn = true;
            continue;
        }
        let due = Instant::now() + direction.delay + some_of(direction.jitter);
        let bytes = buffer.get(..length).unwrap_or_default().to_vec();
        if queue.send(Piece { due, bytes }).is_err() {
            return Err(reset());
        }
    }
}

/// Writes what is due until the reader has ended, then ends the stream.
pub(super) async fn drain(
    mut queue: mpsc::UnboundedReceiver<Piece>,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<State>,
    which: Which,
) -> io::Result<()> {
    let mut sent: u64 = 0;
    while let Some(Piece { due, mut bytes }) = queue.recv().await {
        sleep_until(due).await;
        let cut_after = match state.wait_for(|s| !which(&s.toxics).hold).await {
            Ok(state) => which(&state.toxics).cut_after,
            Err(_) => return Err(reset()),
        };
        let room = cut_after.map_or(u64::MAX, |limit| limit.saturating_sub(sent));
        let cut = u64::try_from(bytes.len()).is_ok_and(|length| length >= room);
        if cut {
            bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        }
        to.write_all(&bytes).await?;
        if cut {
            return Err(reset());
        }
        sent = sent.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }
    to.shutdown().await
}

fn some_of(jitter: Duration) -> Duration {
    if jitter.is_zero() { jitter } else { jitter.mul_f64(rand::random()) }
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
