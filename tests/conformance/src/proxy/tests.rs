use std::{io, net::SocketAddr, time::Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

use super::*;

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(10);

/// A server that echoes, and reports what it read.
async fn echo_server() -> (SocketAddr, mpsc::UnboundedReceiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (heard, ear) = mpsc::unbounded_channel();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let heard = heard.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(length @ 1..) = socket.read(&mut buffer).await {
                    heard.send(buffer[..length].to_vec()).unwrap();
                    if socket.write_all(&buffer[..length]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (addr, ear)
}

/// Lets the proxy read what has arrived. A sleep may end before that on a busy machine, because a
/// timer that is due comes before the proxy's turn.
async fn the_proxy_has_read() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn start() -> (Proxy, TcpStream, mpsc::UnboundedReceiver<Vec<u8>>) {
    let (server, ear) = echo_server().await;
    let proxy = Proxy::start(server).await.unwrap();
    let client = connect(&proxy).await;
    (proxy, client, ear)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    let client = TcpStream::connect(proxy.addr()).await.unwrap();
    client.set_nodelay(true).unwrap();
    client
}

async fn round_trip(client: &mut TcpStream) -> io::Result<Duration> {
    let start = Instant::now();
    client.write_all(b"ping").await?;
    let mut reply = [0; 4];
    client.read_exact(&mut reply).await?;
    assert_eq!(&reply, b"ping");
    Ok(start.elapsed())
}

async fn is_reset(client: &mut TcpStream) -> bool {
    let end = timeout(LONG, client.read(&mut [0; 16])).await.expect("a reset, not silence");
    end.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn passes_bytes_and_ends_in_order() {
    let (_proxy, mut client, _ear) = start().await;
    for _ in 0..100 {
        round_trip(&mut client).await.unwrap();
    }
    client.shutdown().await.unwrap();
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn delays_each_direction_and_keeps_the_order() {
    let (proxy, mut client, _ear) = start().await;
    proxy.set(|t| (t.up.delay, t.down.delay, t.down.jitter) = (SHORT / 2, SHORT / 2, SHORT));
    assert!(round_trip(&mut client).await.unwrap() >= SHORT);
    for n in 0..50_u8 {
        client.write_all(&[n]).await.unwrap();
    }
    let mut replies = [0; 50];
    client.read_exact(&mut replies).await.unwrap();
    assert!(replies.is_sorted());
}

#[tokio::test]
async fn holds_a_direction_and_delivers_late() {
    let (proxy, mut client, mut ear) = start().await;
    proxy.set(|t| t.up.hold = true);
    timeout(SHORT, round_trip(&mut client)).await.unwrap_err();
    ear.try_recv().unwrap_err();
    proxy.heal();
    client.read_exact(&mut [0; 4]).await.unwrap();

    proxy.set(|t| t.down.hold = true);
    timeout(SHORT, round_trip(&mut client)).await.unwrap_err();
    assert_eq!(ear.recv().await.unwrap(), b"ping");
    assert_eq!(ear.recv().await.unwrap(), b"ping", "executed, and the reply is held");
}

#[tokio::test]
async fn discards_replies_and_resets_what_has_a_hole() {
    let (proxy, mut client, mut ear) = start().await;
    proxy.set(|t| t.down.discard = true);
    timeout(SHORT, round_trip(&mut client)).await.unwrap_err();
    assert_eq!(ear.recv().await.unwrap(), b"ping");
    the_proxy_has_read().await;
    proxy.heal();
    assert!(is_reset(&mut client).await);
    round_trip(&mut connect(&proxy).await).await.unwrap();
}

#[tokio::test]
async fn cuts_after_n_bytes() {
    let (proxy, mut client, _ear) = start().await;
    proxy.set(|t| t.down.cut_after = Some(6));
    round_trip(&mut client).await.unwrap();
    client.write_all(b"ping").await.unwrap();
    let mut reply = Vec::new();
    client.read_to_end(&mut reply).await.unwrap_err();
    assert!(reply.len() <= 2, "{reply:?}");
}

#[tokio::test]
async fn a_cut_counts_from_when_it_was_set_and_comes_within_a_message() {
    for limit in 1..=8 {
        let (proxy, mut client, _ear) = start().await;
        for _ in 0..10 {
            round_trip(&mut client).await.unwrap();
        }
        proxy.set(|t| t.down.cut_after = Some(limit));
        let mut replies = Vec::new();
        // One message at a time, so that each is a piece of its own.
        while let Ok(length @ 1..) = async {
            client.write_all(b"ping").await?;
            client.read_buf(&mut replies).await
        }
        .await
        {
            assert!(length <= 4);
        }
        let limit = usize::try_from(limit).unwrap();
        // The reset may overtake the bytes before it.
        assert!(
            replies.len() >= (limit - 1) / 4 * 4 && replies.len() <= limit,
            "{limit}: {replies:?}"
        );
        assert!(limit % 4 != 0 || replies.len() < limit, "{limit}: cut between messages");
    }
}

#[tokio::test]
async fn a_heal_delivers_late_messages_at_once_and_in_order() {
    let (proxy, mut client, mut ear) = start().await;
    proxy.set(|t| t.up.delay = LONG * 6);
    for n in 0..5_u8 {
        client.write_all(&[n]).await.unwrap();
    }
    tokio::time::sleep(SHORT).await;
    the_proxy_has_read().await;
    ear.try_recv().unwrap_err();
    proxy.heal();
    client.write_all(&[5]).await.unwrap();
    let mut replies = [0; 6];
    timeout(LONG, client.read_exact(&mut replies))
        .await
        .expect("nothing is late any more")
        .unwrap();
    assert_eq!(replies, [0, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn resets_all_with_rst() {
    let (proxy, mut client, _ear) = start().await;
    round_trip(&mut client).await.unwrap();
    proxy.reset_all();
    assert!(is_reset(&mut client).await);
}

#[tokio::test]
async fn delivers_a_request_after_its_client_left() {
    let (proxy, mut client, mut ear) = start().await;
    round_trip(&mut client).await.unwrap();
    ear.recv().await.unwrap();
    proxy.set(|t| t.up.hold = true);
    client.write_all(b"late").await.unwrap();
    tokio::time::sleep(SHORT).await;
    the_proxy_has_read().await;
    proxy.reset_clients(Duration::from_secs(3));
    proxy.heal();
    assert!(is_reset(&mut client).await);
    round_trip(&mut connect(&proxy).await).await.unwrap();
    assert_eq!(ear.recv().await.unwrap(), b"ping", "a new connection overtakes what is late");
    assert_eq!(timeout(LONG, ear.recv()).await.unwrap().unwrap(), b"late");
}

#[tokio::test]
async fn a_client_that_ended_its_requests_before_it_is_cut_off_is_no_trouble() {
    let front = listener().await;
    let back = listener().await;
    let (state, seen) = watch::channel(State::default());
    let mut client = TcpStream::connect(front.local_addr().unwrap()).await.unwrap();
    let (proxied, _) = front.accept().await.unwrap();
    let serving = tokio::spawn(serve(proxied, back.local_addr().unwrap(), seen));
    let (mut server, _) = back.accept().await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
    state.send_modify(|state| state.client_resets += 1);
    drop(server);
    timeout(LONG, serving).await.unwrap().unwrap();
}

async fn listener() -> TcpListener {
    TcpListener::bind(("127.0.0.1", 0)).await.unwrap()
}

#[tokio::test]
async fn refuses_new_connections() {
    let (proxy, mut old, _ear) = start().await;
    round_trip(&mut old).await.unwrap();
    proxy.set(|t| t.refuse = true);
    assert!(is_reset(&mut connect(&proxy).await).await);
    round_trip(&mut old).await.unwrap();
}

#[tokio::test]
async fn accepts_and_never_talks() {
    let (proxy, mut old, _ear) = start().await;
    round_trip(&mut old).await.unwrap();
    proxy.set(|t| t.accept_hole = true);
    timeout(SHORT, round_trip(&mut connect(&proxy).await)).await.unwrap_err();
}

#[tokio::test]
async fn drop_leaves_no_task() {
    let (proxy, mut client, _ear) = start().await;
    round_trip(&mut client).await.unwrap();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    drop(proxy);
    assert!(is_reset(&mut client).await);
    while alive() > before - 2 {
        tokio::task::yield_now().await;
    }
}
