//! Tests of faults between the steps of an acquisition.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lockkit_core::{
    Clock, FencingToken, Kind, LockName, OwnerId,
    spi::{Attempt, ClaimSpec, Mode, Wait},
    url::StoreUrl,
};
use lockkit_fixture::{SqlFlavor, SqlServer, mysql_is_there};
use mysql_async::{Conn, Opts, Params, Row, prelude::Queryable as _};

use super::{Pessimistic, Store, acquire::Locked, row_lock::End, sql::Key};
use crate::{config::Config, pool::Pool, schema, strategy::Locking as _};

/// A server may stall for two seconds, and then it has a lot to do.
const OP_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a test on every available server.
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

mod release;

on_each! {
    c4_a_connection_that_dies_between_the_row_and_the_token_gets_no_grant,
    c4_a_connection_that_dies_between_the_token_and_the_proof_gets_no_grant,
    c4_a_transaction_that_ended_before_the_token_takes_none_from_the_next,
    c4_a_server_that_restarts_between_the_steps_grants_nothing,
    c2_a_late_token_of_an_ended_owner_changes_nothing,
    c4_a_token_that_waits_for_its_row_does_not_go_to_a_dead_client,
    c8_the_owner_of_the_row_is_granted_despite_late_requests_of_the_last_one,
    the_token_is_found_by_the_primary_key,
    c8_a_waiter_reads_the_latest_token_when_its_turn_comes,
    no_sign_stays_behind,
    a_lock_and_its_release_are_five_statements,
}

struct World {
    server: SqlServer,
    backend: Pessimistic,
}

impl World {
    async fn start(flavor: SqlFlavor) -> Self {
        Self::start_with(flavor, "").await
    }

    async fn start_with(flavor: SqlFlavor, more: &str) -> Self {
        let server = SqlServer::start(flavor).unwrap();
        let backend = connect(&server, more).await;
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
        self.until_gone(thread).await;
    }

    /// Waits until the server has ended a connection, with its locks. MySQL hides the connection
    /// from the list of processes as soon as its socket is closed, and keeps its thread for longer.
    async fn until_gone(&self, thread: u64) {
        let mut admin = self.admin().await;
        let left = format!(
            "SELECT (SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID={thread}) \
             + (SELECT COUNT(*) FROM performance_schema.threads WHERE PROCESSLIST_ID={thread})"
        );
        while admin.query_first::<u64, _>(&left).await.unwrap() != Some(0) {
            tokio::task::yield_now().await;
        }
    }

    /// The last token of the name.
    async fn stored_token(&self) -> Option<u64> {
        self.admin().await.query_first("SELECT fence FROM lockkit_fence").await.unwrap()
    }

    async fn is_signed(&self, key: &Key, thread: u64) -> bool {
        let question = format!("SELECT IS_USED_LOCK('{}')", key.sign(thread));
        self.admin()
            .await
            .query_first::<Option<u64>, _>(question)
            .await
            .unwrap()
            .flatten()
            .is_some()
    }

    async fn locked(&self, key: &Arc<Key>) -> Locked {
        let connection = self.store().pool.get(OP_TIMEOUT).await.unwrap();
        // The server may not have noticed yet that the connection of an earlier hold is closed.
        self.store().lock(connection, key, Some(OP_TIMEOUT)).await.unwrap().expect("it is free")
    }

    /// Waits until a statement waits for a row: a statement of this connection, or of any.
    async fn until_waits(&self, thread: Option<u64>) {
        let whose =
            thread.map_or(String::new(), |thread| format!(" AND trx_mysql_thread_id={thread}"));
        let waits = format!(
            "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state='LOCK WAIT'{whose}"
        );
        let mut admin = self.admin().await;
        let start = Instant::now();
        while admin.query_first::<u64, _>(&waits).await.unwrap() != Some(1) {
            assert!(start.elapsed() < Duration::from_secs(60), "no statement waits");
            // The server renews that table only if it was not read for so long.
            tokio::time::sleep(Duration::from_millis(110)).await;
        }
    }

    /// Lets another claim get the lock, and returns its token. Some connections may have broken
    /// with a restart, and their first users find that out.
    async fn token(&self) -> FencingToken {
        self.token_for(spec()).await
    }

    async fn token_for(&self, spec: ClaimSpec) -> FencingToken {
        let mut claim = self.backend.claim(spec).unwrap();
        let mut refusals = 0;
        let start = Instant::now();
        while refusals < 4 {
            match claim.attempt(Wait::No).await {
                Ok(Attempt::Granted(grant)) => {
                    // The test needs only the token.
                    let _ = claim.release().await.unwrap();
                    return grant.token;
                }
                Err(error) if error.is_temporary() => refusals += 1,
                // The server has not noticed yet that the connection of an earlier attempt or hold
                // is closed.
                Ok(Attempt::Busy { .. }) if start.elapsed() < OP_TIMEOUT => {
                    tokio::task::yield_now().await
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("no grant");
    }
}

async fn connect(server: &SqlServer, more: &str) -> Pessimistic {
    let url = format!("{}?strategy=pessimistic&connect_timeout=20s{more}", server.url());
    let pool = Pool::new(Config::from_url(StoreUrl::parse(&url).unwrap()).unwrap());
    let mut connection = pool.get(OP_TIMEOUT).await.unwrap();
    schema::prepare(&mut connection, pool.config()).await.unwrap();
    drop(connection);
    Pessimistic::new(Arc::new(pool))
}

fn spec() -> ClaimSpec {
    let name = LockName::new(Kind::Mutex, "a").unwrap();
    ClaimSpec::new(name, OwnerId::random(), Mode::Exclusive, OP_TIMEOUT * 20, OP_TIMEOUT)
}

fn key() -> Arc<Key> {
    Arc::new(Key::new(&spec()))
}

/// Catches a token that is raised without a check of the lock's connection, even where no other
/// claim came in between.
async fn c4_a_connection_that_dies_between_the_row_and_the_token_gets_no_grant(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    for (is_first, has_next) in [(true, false), (false, false), (false, true)] {
        let before = world.stored_token().await;
        assert_eq!(before.is_none(), is_first);
        let key = key();
        let mut first = world.locked(&key).await.hold;
        world.kill(first.server().thread).await;
        // In one case, the next claim also raises its token first.
        let token = if has_next { Some(world.token().await.get()) } else { before };
        let late = world.store().bump(&key, &mut first, OP_TIMEOUT).await.unwrap_err();
        assert!(late.is_temporary() && !late.is_outcome_unknown(), "{late}");
        assert_eq!(world.stored_token().await, token, "it has changed something");
        let refused = world.store().prove(&mut first).await.unwrap_err();
        assert!(refused.is_temporary() && !refused.is_outcome_unknown(), "{refused}");
        drop(first);
        assert!(Some(world.token().await.get()) > token);
    }
}

/// The connection is open and has its sign, but the row's lock is gone. Catches a token that is
/// raised from whatever value it has.
async fn c4_a_transaction_that_ended_before_the_token_takes_none_from_the_next(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    for _ in 0..2 {
        let first_key = key();
        let second_key = key();
        let mut first = world.locked(&first_key).await.hold;
        let mut connection = first.lend().await.unwrap();
        connection.script("ROLLBACK").await.unwrap();
        first.take_back(connection, Clock::Boot.now());
        let mut second = world.locked(&second_key).await.hold;
        world.store().bump(&second_key, &mut second, OP_TIMEOUT).await.unwrap();
        let late = world.store().bump(&first_key, &mut first, OP_TIMEOUT).await.unwrap_err();
        assert!(late.is_temporary(), "{late}");
        world.store().prove(&mut second).await.unwrap();
        world.store().prove(&mut first).await.unwrap_err();
        assert_eq!(world.stored_token().await, Some(second.token()));
    }
}

/// The connection is gone before the caller receives the grant.
async fn c4_a_connection_that_dies_between_the_token_and_the_proof_gets_no_grant(
    flavor: SqlFlavor,
) {
    let world = World::start(flavor).await;
    let key = key();
    let mut first = world.locked(&key).await.hold;
    world.store().bump(&key, &mut first, OP_TIMEOUT).await.unwrap();
    world.kill(first.server().thread).await;
    let refused = world.store().prove(&mut first).await.unwrap_err();
    assert!(refused.is_temporary(), "{refused}");
    assert_eq!(first.finish(true).await.unwrap(), End::Gone);
    assert!(world.token().await.get() > first.token());
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
            // The side connections broke, too, and the first requests find that out.
            for _ in 0..4 {
                world.store().bump(&key, &mut hold, OP_TIMEOUT).await.unwrap_err();
            }
            assert_eq!(world.stored_token().await, None, "it has changed something");
        }
        let refused = world.store().prove(&mut hold).await.unwrap_err();
        assert!(refused.is_temporary(), "{refused}");
        last = hold.token();
        assert_eq!(last > 0, bumps_before);
    }
    assert!(world.token().await.get() > last);
}

async fn c2_a_late_token_of_an_ended_owner_changes_nothing(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    let first_key = key();
    let second_key = key();
    let mut first = world.locked(&first_key).await.hold;
    world.kill(first.server().thread).await;
    let mut second = world.locked(&second_key).await.hold;
    world.store().bump(&second_key, &mut second, OP_TIMEOUT).await.unwrap();
    let late = world.store().bump(&first_key, &mut first, OP_TIMEOUT).await.unwrap_err();
    assert!(late.is_temporary(), "{late}");
    world.store().prove(&mut second).await.unwrap();
    world.store().prove(&mut first).await.unwrap_err();
    // Nor does a late token that comes before the token of the present holder.
    drop((first, second));
    let mut first = world.locked(&first_key).await.hold;
    world.kill(first.server().thread).await;
    let mut second = world.locked(&second_key).await.hold;
    world.store().bump(&first_key, &mut first, OP_TIMEOUT).await.unwrap_err();
    world.store().bump(&second_key, &mut second, OP_TIMEOUT).await.unwrap();
    world.store().prove(&mut first).await.unwrap_err();
    world.store().prove(&mut second).await.unwrap();
    let stored_token = second.token();
    drop((first, second));
    assert!(world.token().await.get() > stored_token);
}

/// Catches a look for the sign before the row of the token is locked.
async fn c4_a_token_that_waits_for_its_row_does_not_go_to_a_dead_client(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    world.token().await;
    let first_key = key();
    let second_key = key();
    let before = world.stored_token().await;
    let mut first = world.locked(&first_key).await.hold;
    let thread = first.server().thread;
    let mut admin = world.admin().await;
    admin.query_drop("BEGIN").await.unwrap();
    admin.query_drop("SELECT * FROM lockkit_fence FOR UPDATE").await.unwrap();
    let store = Arc::clone(world.store());
    let late_key = Arc::clone(&first_key);
    let late = tokio::spawn(async move { store.bump(&late_key, &mut first, OP_TIMEOUT).await });
    world.until_waits(None).await;
    world.kill(thread).await;
    let mut second = world.locked(&second_key).await.hold;
    admin.query_drop("COMMIT").await.unwrap();
    let late = late.await.unwrap().unwrap_err();
    assert!(late.is_temporary() && !late.is_outcome_unknown(), "{late}");
    assert_eq!(world.stored_token().await, before, "it has changed something");
    world.store().bump(&second_key, &mut second, OP_TIMEOUT).await.unwrap();
    assert_eq!(second.finish(true).await.unwrap(), End::Done);
}

/// A late token is given between the end of a transaction and the end of its connection's sign.
/// Catches a refusal of the claim that has the row then, and a grant below the late token.
async fn c8_the_owner_of_the_row_is_granted_despite_late_requests_of_the_last_one(
    flavor: SqlFlavor,
) {
    let world = World::start(flavor).await;
    let mut admin = world.admin().await;
    let mut last = 0;
    for is_first in [true, false, false] {
        let store = world.store();
        let key = key();
        let mut hold = world.locked(&key).await.hold;
        assert_eq!(hold.last_token(), last);
        let ghost = if is_first {
            "INSERT INTO lockkit_fence(kind,name,fence,owner) VALUES('mutex','a',\
             TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))+3600000000,'x')"
        } else {
            "UPDATE lockkit_fence SET fence=fence+1,owner='x'"
        };
        admin.query_drop(ghost).await.unwrap();
        let raised = world.stored_token().await.unwrap();
        store.bump(&key, &mut hold, OP_TIMEOUT).await.unwrap();
        assert!(hold.token() > raised);
        store.prove(&mut hold).await.unwrap();
        assert_eq!(hold.finish(true).await.unwrap(), End::Done);
        last = hold.token();
    }
}

async fn the_token_is_found_by_the_primary_key(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    world.token().await;
    let key = key();
    let hold = world.locked(&key).await.hold;
    let explain = format!("EXPLAIN {}", world.store().sql.bump);
    let params = key.bump(&world.store().sql, hold.server(), hold.last_token());
    let mut admin = world.admin().await;
    if flavor == SqlFlavor::MySql {
        admin.query_drop("SET explain_format='TRADITIONAL'").await.unwrap();
    }
    let plan: Vec<Row> = admin.exec(explain, Params::Positional(params)).await.unwrap();
    let [row] = &plan[..] else { panic!("{plan:?}") };
    assert_eq!(row.get::<Option<String>, _>("key").unwrap().as_deref(), Some("PRIMARY"), "{row:?}");
    assert_eq!(row.get::<Option<u64>, _>("rows").unwrap(), Some(1), "{row:?}");
}

/// Catches a read of the last token that is older than the row's lock. With it, a claim that has
/// waited would be refused each time.
async fn c8_a_waiter_reads_the_latest_token_when_its_turn_comes(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    for _ in 0..2 {
        let first_key = key();
        let second_key = key();
        let mut first = world.locked(&first_key).await.hold;
        let connection = world.store().pool.get(OP_TIMEOUT).await.unwrap();
        let thread = connection.server().thread;
        let store = Arc::clone(world.store());
        let waiting = Arc::clone(&second_key);
        let waiter =
            tokio::spawn(async move { store.lock(connection, &waiting, Some(OP_TIMEOUT)).await });
        world.until_waits(Some(thread)).await;
        world.store().bump(&first_key, &mut first, OP_TIMEOUT).await.unwrap();
        assert_eq!(first.finish(true).await.unwrap(), End::Done);
        let mut second = waiter.await.unwrap().unwrap().expect("it is free").hold;
        assert_eq!(second.last_token(), first.token());
        world.store().bump(&second_key, &mut second, OP_TIMEOUT).await.unwrap();
        assert!(second.token() > first.token());
        assert_eq!(second.finish(true).await.unwrap(), End::Done);
    }
}

/// Catches a sign that stays on a connection of the pool, where it would count for the next user.
async fn no_sign_stays_behind(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    let store = world.store();
    let holder = key();
    let other = key();
    // The first hold makes the row.
    let mut hold = world.locked(&holder).await.hold;
    let thread = hold.server().thread;
    assert!(world.is_signed(&holder, thread).await);
    for patience in [None, Some(Duration::from_secs(1))] {
        let connection = store.pool.get(OP_TIMEOUT).await.unwrap();
        let refused = connection.server().thread;
        assert!(store.lock(connection, &other, patience).await.unwrap().is_none());
        let connection = store.pool.get(OP_TIMEOUT).await.unwrap();
        assert_eq!(connection.server().thread, refused, "it was given back");
        assert!(!world.is_signed(&other, refused).await);
    }
    store.bump(&holder, &mut hold, OP_TIMEOUT).await.unwrap();
    assert_eq!(hold.finish(true).await.unwrap(), End::Done);
    assert!(!world.is_signed(&holder, thread).await);
    for end in 0..2 {
        let mut hold = world.locked(&other).await.hold;
        let thread = hold.server().thread;
        if end == 0 {
            hold.note_free().await
        } else {
            assert_eq!(hold.finish(false).await.unwrap(), End::Done)
        }
        assert!(!world.is_signed(&other, thread).await);
    }
    let mut hold = world.locked(&holder).await.hold;
    let thread = hold.server().thread;
    store.bump(&holder, &mut hold, OP_TIMEOUT).await.unwrap();
    store.transfer(&mut hold, &holder, &other, OP_TIMEOUT).await.unwrap().expect("it stands");
    let mut hold = hold.transfer_to(Arc::clone(&other));
    assert!(!world.is_signed(&holder, thread).await && world.is_signed(&other, thread).await);
    assert_eq!(hold.finish(true).await.unwrap(), End::Done);
    assert!(!world.is_signed(&other, thread).await);
    // The transaction has ended, and the connection has not.
    let mut hold = world.locked(&other).await.hold;
    let thread = hold.server().thread;
    let mut connection = hold.lend().await.unwrap();
    connection.script("ROLLBACK").await.unwrap();
    hold.take_back(connection, Clock::Boot.now());
    store.prove(&mut hold).await.unwrap_err();
    let gone = tokio::time::timeout(OP_TIMEOUT, world.until_gone(thread)).await;
    gone.expect("the connection with the sign is kept");
}

/// The statements are START TRANSACTION, the row with the sign and the last token, and the fence.
/// The release adds the check of the owner, which also frees the sign, and COMMIT.
async fn a_lock_and_its_release_are_five_statements(flavor: SqlFlavor) {
    // A lease that is still new when it begins, however busy the machine is.
    let long = || {
        let mut spec = spec();
        spec.ttl = Duration::from_secs(3600);
        spec
    };
    let world = World::start(flavor).await;
    let mut admin = world.admin().await;
    for _ in 0..2 {
        world.token_for(long()).await;
    }
    let question = "SHOW GLOBAL STATUS LIKE 'Questions'";
    let mut last: (String, u64) = admin.query_first(question).await.unwrap().unwrap();
    for _ in 0..3 {
        world.token_for(long()).await;
        let now: (String, u64) = admin.query_first(question).await.unwrap().unwrap();
        assert_eq!(now.1 - last.1 - 1, 5);
        last = now;
    }
}
