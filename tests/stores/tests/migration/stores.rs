//! The stores of a move, and their URLs.

use std::{process::Command, sync::Arc};

use lockkit::{
    FencingToken, Kind, LockName, OwnerId, file, redis,
    spi::{Attempt, Backend, ClaimSpec, Mode, Released, Wait},
    url::StoreUrl,
};
use lockkit_fixture::{RedisServer, SqlFlavor, SqlServer, ZooKeeperOptions, ZooKeeperServer};

use super::fleet::{NAMES, OP_TIMEOUT, TTL};

/// One hour, in microseconds.
pub(crate) const AHEAD: u64 = 3_600_000_000;

pub(crate) fn redis() -> RedisServer {
    RedisServer::start().unwrap()
}

pub(crate) fn mariadb() -> SqlServer {
    SqlServer::start(SqlFlavor::MariaDb).unwrap()
}

pub(crate) fn zookeeper() -> ZooKeeperServer {
    let options = ZooKeeperOptions::default().with_config("maxSessionTimeout=60000");
    ZooKeeperServer::start_with(options).unwrap()
}

/// The URL of a server that may pause for seconds.
pub(crate) fn patient(url: &str) -> String {
    let session = if url.starts_with("zk:") { "&session_timeout=36s" } else { "" };
    format!("{url}?connect_timeout=8s{session}")
}

pub(crate) fn with_base(url: &str, base: u64) -> String {
    let and = if url.contains('?') { '&' } else { '?' };
    format!("{url}{and}token_base={base}")
}

/// The result of the command in docs/migrating.md, exactly as the page shows it.
pub(crate) fn base_of_the_page() -> u64 {
    let page = include_str!("../../../../docs/migrating.md");
    let section = page.split_once("**Which base?**").expect("what it says of bases").1;
    let command =
        section.split_once("```sh\n").expect("a command").1.split_once("```").expect("its end").0;
    let said = Command::new("sh").args(["-c", command]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().parse().expect("a number")
}

/// All of these stores, in this order.
pub(crate) fn all_of(members: &[&str]) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let members = members
        .iter()
        .map(|url| format!("&member={}", url.bytes().map(encode).collect::<String>()));
    format!("quorum://?need=all{}", members.collect::<String>())
}

/// Raises the store's tokens beyond its clock by this much.
pub(crate) async fn raised(url: &str, ahead: u64) {
    let parsed = StoreUrl::parse(url).unwrap();
    let backend: Arc<dyn Backend> = match parsed.scheme() {
        "file" => Arc::new(file::FileStore::open(file::Config::from_url(parsed).unwrap()).unwrap()),
        _ => {
            Arc::new(redis::Redis::connect(redis::Config::from_url(parsed).unwrap()).await.unwrap())
        }
    };
    for name in NAMES {
        let name = LockName::new(Kind::Mutex, name).unwrap();
        let spec = ClaimSpec::new(name, OwnerId::random(), Mode::Exclusive, TTL, OP_TIMEOUT);
        let mut claim = backend.claim(spec).unwrap();
        let Attempt::Granted(grant) = claim.attempt(Wait::No).await.unwrap() else {
            panic!("it is not free")
        };
        let floor = FencingToken::new(grant.token.get() + ahead);
        assert_eq!(claim.raise_token(floor).await.unwrap(), Some(floor));
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
    backend.close().await.unwrap();
}
