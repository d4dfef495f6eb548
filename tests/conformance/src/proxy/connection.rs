//! One proxied connection.

use std::{io, net::SocketAddr, pin::pin, time::Duration};

use futures_util::{FutureExt as _, future::FusedFuture as _};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    State,
    pipe::{drain, fill, queue},
};

/// How long the proxy waits for a server that doesn't close an orphaned connection itself.
const ORPHAN_LIFE: Duration = Duration::from_secs(5);

pub(super) async fn serve(
    client: TcpStream,
    server: SocketAddr,
    mut state: watch::Receiver<State>,
) {
    // With zero linger, dropping a socket sends RST, so an orderly end shuts down first.
    // `into_split` would send FIN.
    if client.set_zero_linger().is_err() {
        return;
    }
    let (resets, toxics) = {
        let state = state.borrow();
        ((state.resets, state.client_resets), state.toxics.clone())
    };
    if toxics.refuse {
        return;
    }
    if toxics.accept_hole {
        let _closed = state.wait_for(|s| s.resets != resets.0 || !s.toxics.accept_hole).await;
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _closed = forward(client, server, state, resets).await;
}

async fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    mut state: watch::Receiver<State>,
    resets: (u64, u64),
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    server.set_zero_linger()?;
    let orphaned = {
        let (mut from_server, to_server) = server.split();
        let (sender, requests) = queue();
        let mut deliver = pin!(drain(requests, to_server, state.clone(), |t| &t.up).fuse());
        {
            let (from_client, to_client) = client.split();
            let (back, replies) = queue();
            let read_requests = fill(from_client, sender, state.clone(), |t| &t.up);
            let read_replies = fill(&mut from_server, back, state.clone(), |t| &t.down);
            let answer = drain(replies, to_client, state.clone(), |t| &t.down);
            let whole =
                async { tokio::try_join!(read_requests, &mut deliver, read_replies, answer) };
            tokio::select! {
                // The reset comes first, so that a fault that ends with the reset lets nothing
                // through.
                biased;
                _ = state.wait_for(|s| (s.resets, s.client_resets) != resets) => {}
                end = whole => return end.map(|_| ()),
            }
        }
        drop(client);
        // Only the requests in progress are delivered, because their sender has disconnected.
        let late = state.borrow().late;
        let deliver_late = async {
            sleep(late).await;
            // A client may have ended its requests before the proxy disconnected it.
            if deliver.is_terminated() { Ok(()) } else { deliver.await }
        };
        tokio::select! {
            biased;
            _ = state.wait_for(|s| s.resets != resets.0) => false,
            end = deliver_late => end.is_ok(),
        }
    };
    if orphaned {
        // RST could overtake the last request, so the proxy ends the connection in order.
        server.shutdown().await?;
        let mut rest = Vec::new();
        let _answered = timeout(ORPHAN_LIFE, server.read_to_end(&mut rest)).await;
    }
    Ok(())
}
