//! One direction of a connection: a reader that stamps each piece with the time at which it is due,
//! a queue, and a writer. They are separate, so that the delays of pieces in close succession don't
//! add up.

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
    /// The number of heals when this piece was read.
    heals: u64,
    bytes: Vec<u8>,
}

/// The queue has no bound: the proxy holds what a test sends, and back pressure would change the
/// timing.
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
        let (direction, heals) = {
            let state = state.borrow();
            (which(&state.toxics).clone(), state.heals)
        };
        if direction.discard {
            torn = true;
            continue;
        }
        let due = Instant::now() + direction.delay + some_of(direction.jitter);
        let bytes = buffer.get(..length).unwrap_or_default().to_vec();
        if queue.send(Piece { due, heals, bytes }).is_err() {
            return Err(reset());
        }
    }
}

/// Writes each piece when it is due, until the reader has ended, then ends the stream.
pub(super) async fn drain(
    mut queue: mpsc::UnboundedReceiver<Piece>,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<State>,
    which: Which,
) -> io::Result<()> {
    let (mut sent, mut since): (u64, u64) = (0, state.borrow().cuts);
    while let Some(Piece { due, heals, mut bytes }) = queue.recv().await {
        tokio::select! {
            () = sleep_until(due) => {}
            _ = state.wait_for(|s| s.heals != heals) => {}
        }
        let (cut_after, cuts) = match state.wait_for(|s| !which(&s.toxics).hold).await {
            Ok(state) => (which(&state.toxics).cut_after, state.cuts),
            Err(_) => return Err(reset()),
        };
        if cuts != since {
            (sent, since) = (0, cuts);
        }
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let room = cut_after.map_or(u64::MAX, |limit| limit.saturating_sub(sent));
        let cut = length >= room;
        if cut {
            // At least one byte is missing: an end between two messages would be no cut.
            bytes.truncate(
                usize::try_from(room.min(length.saturating_sub(1))).unwrap_or(usize::MAX),
            );
        }
        to.write_all(&bytes).await?;
        if cut {
            return Err(reset());
        }
        sent = sent.saturating_add(length);
    }
    to.shutdown().await
}

fn some_of(jitter: Duration) -> Duration {
    if jitter.is_zero() { jitter } else { jitter.mul_f64(rand::random()) }
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
