//! Lockers on the session of a client that belongs to the program.

use std::time::{Duration, Instant};

use lockkit_conformance::proxy::Proxy;
use lockkit_core::{
    ErrorKind, Kind,
    spi::{Backend as _, LossReason, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::claims::given_up;
use lockkit_zk::{
    Config, ZooKeeper,
    zookeeper_client::{Acls, Client, CreateMode, SessionState},
};

use crate::support::*;

/// The session timeout of the program. The first proof of the session takes 0.4 of it.
const LEASE: Duration = Duration::from_secs(24);

async fn program_at(address: &str, lease: Duration) -> Client {
    let connector =
        Client::connector().with_session_timeout(lease).with_connection_timeout(lease * 2 / 9);
    connector.connect(address).await.unwrap()
}

async fn program(bed: &Bed) -> Client {
    program_at(&bed.server.addr().to_string(), LEASE).await
}

fn config(bed: &Bed, client: &Client) -> Config {
    Config::from_client(client.clone()).with_prefix(&bed.prefix).unwrap()
}

async fn connect_by(bed: &Bed, client: &Client) -> ZooKeeper {
    persistently(async || ZooKeeper::connect(config(bed, client)).await).await
}

/// A node of the program, outside of lockkit's prefix. It shows whether the session lives.
async fn own_node(bed: &Bed, client: &Client) -> String {
    let path = format!("/own-{}", bed.prefix);
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    client.create(&path, b"", &ephemeral).await.unwrap();
    path
}

/// Fails unless lockkit has left nothing in the session of the program, which still lives.
async fn assert_left(bed: &Bed, admin: &Admin, own: &str) {
    bed.assert_clean().await;
    let heartbeats = format!("/{}/session", bed.prefix);
    until("no heartbeat is left", async || admin.children(&heartbeats).await.is_empty()).await;
    assert!(admin.exists(own).await, "the session of the program has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_a_client_of_the_program_leads_to_the_same_locks() {
    let bed = Bed::shared();
    let client = program(&bed).await;
    let own = connect_by(&bed, &client).await;
    let other = bed.connect("").await;
    let mut a = claim(&own, "a");
    let mut b = claim(&other, "a");
    let first = granted(a.attempt(Wait::Queue).await).token;
    assert!(busy(b.attempt(Wait::Queue).await).0);
    assert_eq!(a.release().await.unwrap(), Released::Freed);
    let second = lock(&mut b).await.token;
    assert!(second > first);
    assert!(busy(a.attempt(Wait::Queue).await).0);
    assert_eq!(b.release().await.unwrap(), Released::Freed);
    assert!(lock(&mut a).await.token > second);
    assert!(matches!(a.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    given_up(a.release()).await;
}

/// Catches a locker that uses paths from the root, or an id of another session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_the_chroot_of_a_client_of_the_program_counts() {
    let bed = Bed::shared();
    let admin = bed.admin().await;
    let chroot = format!("/{}", bed.prefix);
    let client = program(&bed).await.chroot(chroot.clone()).unwrap();
    let config = || Config::from_client(client.clone()).with_prefix("locks").unwrap();
    let error = ZooKeeper::connect(config()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
    assert!(error.to_string().contains("does not exist"), "{error}");
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    admin.0.create(&chroot, b"", &persistent).await.unwrap();
    let own = persistently(async || ZooKeeper::connect(config()).await).await;
    let url = format!("zk://{}{chroot}?prefix=locks&{}", bed.server.addr(), session(60));
    let other = connect_in_the_end(&url).await;
    let mut holder = claim(&own, "a");
    granted(holder.attempt(Wait::Queue).await);
    assert_eq!(admin.children(&format!("{chroot}/locks/mutex/a")).await.len(), 1);
    assert!(!busy(claim(&other, "a").attempt(Wait::No).await).0);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
}

/// Catches a locker that relies on the end of its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c7_c9_closing_leaves_no_lock_in_the_session_of_the_program() {
    let bed = Bed::shared();
    let admin = bed.admin().await;
    let client = program(&bed).await;
    let own = own_node(&bed, &client).await;
    let zk = connect_by(&bed, &client).await;
    let mut holder = claim(&zk, "a");
    let mut waiter = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    assert!(busy(waiter.attempt(Wait::Queue).await).0);
    // The next locker on the client is not harmed by the end of the first one.
    let next = locker(connect_by(&bed, &client).await);
    let guard = next.mutex("b").unwrap().lock().await.unwrap();
    zk.close().await.unwrap();
    until("the locks are free", async || {
        admin.children(&bed.folder(Kind::Mutex, "a")).await.is_empty()
    })
    .await;
    let outcome = holder.renew(None).await.unwrap();
    assert!(matches!(outcome, RenewalOutcome::Lost(_)), "{outcome:?}");
    assert_eq!(waiter.attempt(Wait::Queue).await.unwrap_err().kind(), ErrorKind::Closed);
    assert!(guard.is_held());
    drop(guard);
    next.shutdown().await.unwrap();
    drop((zk, holder, waiter));
    assert_left(&bed, &admin, &own).await;
}

/// Lockers may share a backend, and another one may await the answer of an attempt. Catches a close
/// that forgets its node. The node would stay for as long as the session of the program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_a_node_that_is_made_during_the_close_does_not_stay() {
    let bed = Bed::shared();
    let admin = bed.admin().await;
    let client = program(&bed).await;
    let own = own_node(&bed, &client).await;
    let zk = connect_by(&bed, &client).await;
    let mut claim = claim(&zk, "a");
    let mut attempt = claim.attempt(Wait::Queue);
    tokio::select! {
        biased;
        answer = &mut attempt => panic!("{answer:?}"),
        () = std::future::ready(()) => {}
    }
    zk.close().await.unwrap();
    // The request was sent before the close, and its answer is read only now.
    drop(attempt.await);
    drop(claim);
    assert_left(&bed, &admin, &own).await;
}

/// Without a shutdown, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c7_c9_a_dropped_locker_leaves_no_lock_in_the_session_of_the_program() {
    let bed = Bed::shared();
    let admin = bed.admin().await;
    let client = program(&bed).await;
    let own = own_node(&bed, &client).await;
    for fair in [true, false] {
        // Queues and their absence need different prefixes.
        let bed = Bed { prefix: format!("{}-{fair}", bed.prefix), ..bed.clone() };
        let config = || {
            let config = config(&bed, &client);
            if fair { config } else { config.with_unfair_mutexes() }
        };
        let zk = persistently(async || ZooKeeper::connect(config()).await).await;
        let mut holder = claim(&zk, "a");
        granted(holder.attempt(Wait::Queue).await);
        drop((zk, holder));
        assert_left(&bed, &admin, &own).await;
    }
}

/// A session of the program may live although the runtime of lockkit's task has ended. Catches
/// claims that take this for the end of their nodes.
#[test]
fn c7_a_claim_whose_runtime_has_ended_frees_its_lock() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let bed = Bed::shared();
    let programs = runtime();
    let client = programs.block_on(program(&bed));
    let first = runtime();
    let (zk, mut released, dropped) = first.block_on(async {
        let zk = connect_by(&bed, &client).await;
        let mut released = claim(&zk, "a");
        let mut dropped = claim(&zk, "b");
        granted(released.attempt(Wait::Queue).await);
        granted(dropped.attempt(Wait::Queue).await);
        (zk, released, dropped)
    });
    drop(first);
    programs.block_on(async {
        let lost = released.renew(None).await.unwrap();
        assert_eq!(lost, RenewalOutcome::Lost(LossReason::SessionLost));
        assert_eq!(released.release().await.unwrap(), Released::Freed);
        drop(dropped);
        bed.assert_clean().await;
        // The next claim uses the session again.
        granted(Ok(persistently(async || claim(&zk, "a").attempt(Wait::Queue).await).await));
        zk.close().await.unwrap();
    });
}

/// The program has opened the session at an unknown time, and the leader may have heard nothing of
/// it since. Catches a locker that takes the time of its own start for a proof.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_nothing_is_granted_before_the_session_of_the_program_is_proven() {
    let bed = Bed::shared();
    let client = program(&bed).await;
    let start = Instant::now();
    let zk = connect_by(&bed, &client).await;
    assert!(start.elapsed() >= LEASE / 4, "no ping of the leader is sure to have come since");
    // Nothing is left to wait for.
    granted(claim(&zk, "a").attempt(Wait::No).await);
    assert_eq!(zk.descriptor().min_ttl, LEASE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_c13_locks_end_with_the_session_of_the_program_and_later_calls_say_so() {
    let bed = Bed::shared();
    let proxy = Proxy::start(bed.server.addr()).await.unwrap();
    let client = program_at(&proxy.addr().to_string(), LEASE / 2).await;
    let zk = connect_by(&bed, &client).await;
    let mut holder = claim(&zk, "a");
    granted(Ok(persistently(async || holder.attempt(Wait::Queue).await).await));
    proxy.set(|toxics| toxics.refuse = true);
    proxy.reset_all();
    until("the session expires", async || client.state() == SessionState::Expired).await;
    until("the loss is seen", async || {
        holder.renew(None).await.ok() == Some(RenewalOutcome::Lost(LossReason::SessionLost))
    })
    .await;
    proxy.heal();
    let error = claim(&zk, "a").attempt(Wait::Queue).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(!error.is_temporary() && error.to_string().contains("Expired"), "{error}");
    assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
    let error = ZooKeeper::connect(config(&bed, &client)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    bed.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_settings_that_the_client_of_the_program_has_decided_are_refused() {
    let bed = Bed::shared();
    let client = program(&bed).await;
    let plain = || config(&bed, &client);
    for (config, word) in [
        (plain().with_chroot("/a"), "chroot"),
        (plain().with_credentials("app", "secret"), "credentials"),
        (plain().with_session_timeout(LEASE * 2), "session_timeout"),
        (plain().with_connect_timeout(Duration::from_secs(1)), "connect_timeout"),
    ] {
        let error = ZooKeeper::connect(config.unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}
