//! Requests that are refused, with the reason.

use std::time::Duration;

use lockkit_core::{
    Error, ErrorKind, Kind, LockOptions,
    spi::{Backend as _, Wait},
    url::StoreUrl,
};
use lockkit_fixture::claims::given_up;
use lockkit_zk::{Config, ZooKeeper, zookeeper_client as zk};

use crate::support::*;

#[tokio::test]
async fn c13_a_chroot_must_exist_and_is_where_all_paths_start() {
    let bed = Bed::shared();
    let admin = bed.admin().await;
    let chroot = bed.prefix.clone();
    let url = format!("zk://{}/{chroot}?prefix=locks&{}", bed.server.addr(), session(60));
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
    assert!(error.to_string().contains(&format!("\"/{chroot}\" does not exist")), "{error}");
    let anyone = zk::Acls::anyone_all();
    admin
        .0
        .create(&format!("/{chroot}"), b"", &zk::CreateMode::Persistent.with_acls(anyone))
        .await
        .unwrap();
    let zk = connect_in_the_end(&url).await;
    let mut holder = claim(&zk, "a");
    let mut waiter = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    assert!(busy(waiter.attempt(Wait::Queue).await).0);
    assert_eq!(admin.children(&format!("/{chroot}/locks/mutex/a")).await.len(), 2);
    given_up(holder.release()).await;
    lock(&mut waiter).await;
    given_up(waiter.release()).await;
    bed.assert_clean().await;
}

#[test]
fn c13_parameters_that_make_no_sense_are_refused_without_a_server() {
    use ErrorKind as K;
    for (url, kind, word) in [
        ("zk:///", K::InvalidUrl, "host"),
        ("zk://h/?session_timeout=soon", K::InvalidUrl, "session_timeout"),
        ("zk://h/?session_timeout=10ms", K::InvalidOption, "100 ms"),
        ("zk://h/?session_timeout=25h", K::InvalidOption, "24 h"),
        ("zk://h/?connect_timeout=3s", K::InvalidOption, "session timeout of 10s"),
        ("zk://h/?connect_timeout=0s", K::InvalidOption, "1 ms"),
        ("zk://a,b,c/?connect_timeout=1s&session_timeout=9s", K::InvalidOption, "3 servers"),
        ("zk://h/?heartbeat=often", K::InvalidUrl, "sync or write"),
        ("zk://h/?acl=mine", K::InvalidUrl, "open or creator"),
        ("zk://h/?acl=creator", K::InvalidOption, "user:password@"),
        ("zk://h/?fair=maybe", K::InvalidUrl, "true or false"),
        ("zk://h/?prefix=/a", K::InvalidOption, "slash"),
        ("zk://h/?prefix=zookeeper/a", K::InvalidOption, "/zookeeper"),
        ("zk://h/a//b", K::InvalidUrl, "empty part"),
        ("zk://h/?ca=/a", K::UnknownParameter, "ca"),
        ("zk://h/?sesion_timeout=1s", K::UnknownParameter, "sesion_timeout"),
        ("zk://user@h/", K::InvalidUrl, "user:password@"),
        // The client library takes the text after the comma for another server, and reports that
        // none answers.
        ("zk://h/a,b", K::InvalidUrl, "comma"),
        ("zk://h/a%2Cb", K::InvalidUrl, "comma"),
        ("zk://h:0/", K::InvalidUrl, "port 0"),
        ("zk://a,b:0,c/", K::InvalidUrl, "port 0"),
    ] {
        let parsed = StoreUrl::parse(url).and_then(Config::from_url);
        let error = parsed.map(|config| format!("{config:?}")).unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(word), "{url}: {error}");
    }
}

#[tokio::test]
async fn c13_a_ttl_below_the_negotiated_session_timeout_is_refused_and_both_are_named() {
    let bed = Bed::shared();
    let locker = bed.locker("session_timeout=2s").await;
    assert_eq!(locker.descriptor().min_ttl, Duration::from_secs(2));
    let options = LockOptions::new().with_ttl(Duration::from_millis(1_900));
    let mutex = locker.mutex("a").unwrap().with_options(options).unwrap();
    let error = mutex.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("1.9s") && error.to_string().contains("2s"), "{error}");

    // The server's limits are 400 ms and 10 min.
    for (asked, given) in [("300ms", Duration::from_millis(400)), ("20m", Duration::from_secs(600))]
    {
        let zk = bed.connect(&format!("session_timeout={asked}")).await;
        assert_eq!(zk.descriptor().min_ttl, given);
        let mut spec = spec("a");
        spec.ttl = given - Duration::from_millis(1);
        let error = zk.claim(spec).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        let asked = asked.replace("20m", "1200s");
        let given_text = format!("{given:?}");
        assert!(
            error.to_string().contains(&given_text) && error.to_string().contains(&asked),
            "{error}"
        );
        // The shorter session may be over by now.
        if given > OP_TIMEOUT {
            let mut claim = claim(&zk, "a");
            granted(Ok(persistently(async || claim.attempt(Wait::Queue).await).await));
            drop(claim);
            bed.assert_clean().await;
        }
    }
}

async fn try_permit(zk: &ZooKeeper, limit: u32, wait: Wait) -> Result<(), Error> {
    let mut claim = permits(zk, "a", 1, limit);
    claim.attempt(wait).await?;
    given_up(claim.release()).await;
    Ok(())
}

#[tokio::test]
async fn c5_c13_two_limits_for_one_name_are_refused_with_both_numbers() {
    let bed = Bed::shared();
    let locker = bed.locker("").await;
    let guard = locker.semaphore("a", 3).unwrap().acquire().await.unwrap();
    let zk = bed.connect("").await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Semaphore, "a");
    for wait in [Wait::No, Wait::Queue] {
        let mut claim = permits(&zk, "a", 1, 2);
        let error = claim.attempt(wait).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(!error.is_outcome_unknown(), "{error}");
        assert_eq!(admin.children(&folder).await.len(), 1, "C5: only the holder is left");
        assert!(
            error.to_string().contains("limit of 3 permits")
                && error.to_string().contains("uses 2"),
            "{error}"
        );
    }
    try_permit(&zk, 3, Wait::No).await.unwrap();
    guard.release().await.unwrap();
    bed.assert_clean().await;
    try_permit(&zk, 2, Wait::No).await.unwrap();
    bed.assert_clean().await;
}

#[tokio::test]
async fn c13_a_folder_that_is_not_a_locks_is_wrong_type_and_is_left_alone() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let admin = bed.admin().await;
    let options = |mode: zk::CreateMode| mode.with_acls(zk::Acls::anyone_all());
    // The folder contains nodes of another program. An attempt, a wait and an inspection fail with
    // the same text.
    for (name, theirs) in
        [("theirs", "theirs"), ("kazoo", "1f0a8d4e7c2b4f6a9e3d5b7c8a9f0e1d__lock__0000000001")]
    {
        let folder = bed.folder(Kind::Mutex, name);
        admin.0.create(&folder, b"", &options(zk::CreateMode::Persistent)).await.unwrap();
        let node = format!("{folder}/{theirs}");
        admin.0.create(&node, b"", &options(zk::CreateMode::Persistent)).await.unwrap();
        let mut errors = vec![zk.inspect(&mutex(name)).await.unwrap_err()];
        for wait in [Wait::No, Wait::Queue] {
            errors.push(claim(&zk, name).attempt(wait).await.unwrap_err());
        }
        for error in &errors {
            assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
            assert_eq!(error.to_string(), errors[0].to_string());
        }
        let text = errors[0].to_string();
        assert!(
            [theirs, &folder, "lockkit does not support kazoo's locks"]
                .iter()
                .all(|part| text.contains(part)),
            "{text}"
        );
        bed.assert_clean().await;
        assert_eq!(admin.children(&folder).await, [theirs]);
    }

    // An ephemeral node at the path of the folder.
    let folder = bed.folder(Kind::Mutex, "b");
    admin.0.create(&folder, b"", &options(zk::CreateMode::Ephemeral)).await.unwrap();
    let error = claim(&zk, "b").attempt(Wait::Queue).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert!(error.to_string().contains(&folder), "{error}");
    assert!(admin.exists(&folder).await);
    admin.delete(&folder).await;
    bed.assert_clean().await;
}
