//! What can go wrong between the steps of an acquisition.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lockkit_core::{
    FencingToken, Kind, LockName, OwnerId,
    spi::{Attempt, Backend as _, ClaimSpec, Mode, Wait},
    url::StoreUrl,
};
use lockkit_fixture::{SqlFlavor, SqlServer, mysql_is_there};
use mysql_async::{Conn, Opts, prelude::Queryable as _};

use super::{Pessimistic, Store, acquire::Locked, sql::Key};
use crate::{config::Config, pool::Pool, schema};

const OP_TIMEOUT: Duration = Duration::from_secs(3);

/// Runs a test on every server that there is.
macro_rules! on_each {
    ($($test:ident),* $(,)?) => {
        $(
            mod $test {
                #[tokio::test]
                async fn mariadb() {
                    super::$test(super::SqlFlavor::MariaDb).await;
                }

                #[tokio::test]
                async fn mysql() {
                    match super::mysql_is_there() {
                        Ok(()) => super::$test(super::SqlFlavor::MySql).await,
                        Err(reason) => eprintln!("left out: {reason}"),
                    }
                }
            }
        )*
    };
}

on_each! {
    c4_a_connection_that_dies_between_the_row_and_the_fence_gets_no_grant,
    c4_a_connection_that_dies_between_the_fence_and_the_proof_gets_no_grant,
    c4_a_server_that_restarts_between_the_steps_grants_nothing,
    c2_a_late_fence_of_one_who_is_gone_changes_nothing,
}

struct World {
    server: SqlServer,
    backend: Pessimistic,
}

impl World {
    async fn start(flavor: SqlFlavor) -> Self {
        let server = SqlServer::start(flavor).unwrap();
        let backend = connect(&server).await;
        Self { server, backend }
    }

    fn store(&self) -> &Arc<Store> {
        &self.backend.store
    }

    async fn admin(&self) -> Conn {
        Conn::new(Opts::from_url(&self.server.admin_url()).unwrap()).await.unwrap()
    }

    async fn kill(&self, thread: u64) {
        let mut admin = self.admin().await;
        admin.query_drop(format!("KILL {thread}")).await.unwrap();
        let left = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID={thread}");
        while admin.query_first::<u64, _>(&left).await.unwrap() != Some(0) {
            tokio::task::yield_now().await;
        }
    }

    async fn locked(&self, key: &Arc<Key>) -> Locked {
        let connection = self.store().pool.get(OP_TIMEOUT).await.unwrap();
        self.store().lock(connection, key, None).await.unwrap().expect("it is free")
    }

    /// Another claim gets the lock. Connections that broke with a restart are found by the first who uses them.
    async fn token(&self) -> FencingToken {
        let mut claim = self.backend.claim(spec()).unwrap();
        let (mut refusals, start) = (0, Instant::now());
        while refusals < 4 {
            match claim.attempt(Wait::No).await {
                Ok(Attempt::Granted(grant)) => {
                    claim.release().await.unwrap();
                    return grant.token;
                }
                Err(error) if error.is_temporary() => refusals += 1,
                // The server has not noticed yet that the connection of an earlier try, or of a hold, is closed.
                Ok(Attempt::Busy { .. }) if start.elapsed() < OP_TIMEOUT => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
        panic!("no grant");
    }
}

async fn connect(server: &SqlServer) -> Pessimistic {
    let url = format!("{}?strategy=pessimistic", server.url());
    let pool = Pool::new(Config::from_url(StoreUrl::parse(&url).unwrap()).unwrap()).unwrap();
    let mut connection = pool.get(OP_TIMEOUT).await.unwrap();
    schema::prepare(&mut connection, pool.config()).await.unwrap();
    drop(connection);
    Pessimistic::new(pool)
}

fn spec() -> ClaimSpec {
    let name = LockName::new(Kind::Mutex, "a").unwrap();
    ClaimSpec::new(name, OwnerId::random(), Mode::Exclusive, Duration::from_secs(30), OP_TIMEOUT)
}

fn key() -> Arc<Key> {
    Arc::new(Key::new(&spec()))
}

async fn c4_a_connection_that_dies_between_the_row_and_the_fence_gets_no_grant(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    let key = key();
    let mut first = world.locked(&key).await.hold;
    world.kill(first.server().thread).await;
    // The next one comes first with its fence, too.
    let token = world.token().await;
    let late = world.store().bump(&key, &mut first, OP_TIMEOUT).await.unwrap_err();
    assert!(late.is_temporary() && !late.is_outcome_unknown(), "{late}");
    let refused = world.store().prove(&mut first).await.unwrap_err();
    assert!(refused.is_temporary() && !refused.is_outcome_unknown(), "{refused}");
    drop(first);
    assert!(world.token().await > token);
}

async fn c4_a_connection_that_dies_between_the_fence_and_the_proof_gets_no_grant(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    let key = key();
    let mut first = world.locked(&key).await.hold;
    world.store().bump(&key, &mut first, OP_TIMEOUT).await.unwrap();
    world.kill(first.server().thread).await;
    let refused = world.store().prove(&mut first).await.unwrap_err();
    assert!(refused.is_temporary(), "{refused}");
    assert!(world.token().await.get() > first.fence());
}

async fn c4_a_server_that_restarts_between_the_steps_grants_nothing(flavor: SqlFlavor) {
    let mut world = World::start(flavor).await;
    let mut last = 0;
    for bumps_before in [false, true] {
        let key = key();
        let mut hold = world.locked(&key).await.hold;
        if bumps_before {
            world.store().bump(&key, &mut hold, OP_TIMEOUT).await.unwrap();
        }
        world.server.restart().unwrap();
        if !bumps_before {
            // The side connections broke, too: the first question finds that out.
            let mut tries = 0;
            while world.store().bump(&key, &mut hold, OP_TIMEOUT).await.is_err() {
                tries += 1;
                assert!(tries < 4);
            }
        }
        let refused = world.store().prove(&mut hold).await.unwrap_err();
        assert!(refused.is_temporary(), "{refused}");
        assert!(hold.fence() > last);
        last = hold.fence();
    }
    assert!(world.token().await.get() > last);
}

async fn c2_a_late_fence_of_one_who_is_gone_changes_nothing(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    let (first_key, second_key) = (key(), key());
    let mut first = world.locked(&first_key).await.hold;
    world.kill(first.server().thread).await;
    let mut second = world.locked(&second_key).await.hold;
    world.store().bump(&second_key, &mut second, OP_TIMEOUT).await.unwrap();
    let late = world.store().bump(&first_key, &mut first, OP_TIMEOUT).await.unwrap_err();
    assert!(late.is_temporary(), "{late}");
    world.store().prove(&mut second).await.unwrap();
    world.store().prove(&mut first).await.unwrap_err();
    // One that comes before the fence of the one who has the row, leaves neither with a grant.
    let fence = second.fence();
    drop((first, second));
    let mut first = world.locked(&first_key).await.hold;
    world.kill(first.server().thread).await;
    let mut second = world.locked(&second_key).await.hold;
    world.store().bump(&first_key, &mut first, OP_TIMEOUT).await.unwrap();
    world.store().bump(&second_key, &mut second, OP_TIMEOUT).await.unwrap_err();
    world.store().prove(&mut first).await.unwrap_err();
    drop((first, second));
    assert!(world.token().await.get() > fence);
}
