//! A proxy to the server that loses requests or replies.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Notify,
};

/// Forwards connections.
#[derive(Clone, Default)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// How many connections the clients have opened, and not closed.
    pub(crate) open: Arc<AtomicUsize>,
    /// Holds back the requests of the first connection until `let_go` is notified.
    pub(crate) hold: Arc<AtomicBool>,
    pub(crate) let_go: Arc<Notify>,
    /// Loses the first request on a connection that contains this text, and all later ones.
    pub(crate) lose: Arc<OnceLock<&'static [u8]>>,
    /// Loses the next reply, and its connection with it.
    pub(crate) cut: Arc<AtomicBool>,
    /// Delays each piece of the server's output by this many ms, one piece after the other.
    pub(crate) slow: Arc<AtomicU64>,
    /// How many bytes came from the server.
    pub(crate) heard: Arc<AtomicUsize>,
    /// Takes new connections, and leaves them without an answer.
    pub(crate) hang: Arc<AtomicBool>,
    /// How many connections were left without an answer.
    pub(crate) hung: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), ..Self::default() };
        let serving = proxy.clone();
        tokio::spawn(async move {
            let mut first = true;
            let mut hanging = Vec::new();
            while let Ok((client, _)) = listener.accept().await {
                if serving.hang.load(Ordering::SeqCst) {
                    hanging.push(client);
                    serving.hung.store(hanging.len(), Ordering::SeqCst);
                    continue;
                }
                serving.open.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(serving.clone().requests(
                    from_client,
                    to_server,
                    std::mem::take(&mut first),
                ));
                tokio::spawn(serving.clone().replies(from_server, to_client));
            }
        });
        proxy
    }

    pub(crate) fn url(&self, query: &str) -> String {
        format!("redis://127.0.0.1:{}/{query}", self.port)
    }

    async fn requests(self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, may_hold: bool) {
        let mut buffer = vec![0; 1 << 16];
        let mut loses = false;
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            if may_hold && self.hold.load(Ordering::SeqCst) {
                self.let_go.notified().await;
            }
            let request = &buffer[..length];
            let has = |text: &&[u8]| request.windows(text.len()).any(|part| part == *text);
            loses = loses || self.lose.get().is_some_and(has);
            if !loses {
                to.write_all(request).await.unwrap();
            }
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    async fn replies(self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            self.heard.fetch_add(length, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(self.slow.load(Ordering::SeqCst))).await;
            if self.cut.swap(false, Ordering::SeqCst)
                || to.write_all(&buffer[..length]).await.is_err()
            {
                return;
            }
        }
    }
}
