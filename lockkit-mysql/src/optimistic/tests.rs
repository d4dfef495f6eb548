//! Tests that the two statements that take a lock give the same answers and have the same effects.

use std::{sync::LazyLock, time::Duration};

use lockkit_core::{Kind, LockName, url::StoreUrl};
use lockkit_fixture::{SqlFlavor, SqlServer, mysql_is_there};
use mysql_async::{Conn, Opts, prelude::Queryable as _};

use super::{
    record::{Answer, LockRequest},
    row::RowSql,
};
use crate::{
    channel::Checkout, config::Config, connection::Connection, pool::Pool, schema, sql::NOW,
};

/// A server may stall for two seconds, and then it has a lot to do.
const PATIENCE: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(600);
const LEASE_US: u64 = 600_000_000;
/// Not-after times: one that is far away, and one that has passed.
const SOON: u64 = u64::MAX;
const PAST: u64 = 1;

#[tokio::test]
async fn c5_a_row_that_was_seen_before_is_asked_for_as_any_other_mariadb() {
    each_answer(SqlFlavor::MariaDb).await;
}

#[tokio::test]
async fn c5_a_row_that_was_seen_before_is_asked_for_as_any_other_mysql() {
    match mysql_is_there() {
        Ok(()) => each_answer(SqlFlavor::MySql).await,
        Err(reason) => eprintln!("left out: {reason}"),
    }
}

fn asked(owner: &'static str, not_after_us: u64) -> LockRequest<'static> {
    static NAME: LazyLock<LockName> = LazyLock::new(|| LockName::new(Kind::Mutex, "a").unwrap());
    let label = "label";
    let lease_us = LEASE_US;
    LockRequest { name: &NAME, owner, label, lease_us, not_after_us, client: 7 }
}

/// The owner, the token, and the end of the lease.
type Row = (String, u64, u64);

struct World {
    admin: Conn,
    pool: Pool,
    /// The statements that know the row.
    knowing: RowSql,
}

impl World {
    async fn on(server: &SqlServer) -> (Self, Checkout) {
        let config =
            Config::from_url(StoreUrl::parse(&(server.url() + "?connect_timeout=20s")).unwrap())
                .unwrap();
        let pool = Pool::new(config);
        let mut connection = pool.get(PATIENCE).await.unwrap();
        schema::prepare(&mut connection, pool.config()).await.unwrap();
        let knowing = RowSql::new(pool.config().tables());
        let admin = Conn::new(Opts::from_url(&server.admin_url()).unwrap()).await.unwrap();
        (Self { admin, pool, knowing }, connection)
    }

    async fn acquire(
        &self,
        connection: &mut Connection,
        knows: bool,
        asked: &LockRequest<'_>,
    ) -> Answer {
        let fresh = RowSql::new(self.pool.config().tables());
        let sql = if knows { &self.knowing } else { &fresh };
        sql.acquire(connection, asked).await.unwrap()
    }

    async fn row(&mut self) -> Row {
        let question = "SELECT owner,fence,expires_us FROM lockkit_lock";
        self.admin.query_first(question).await.unwrap().unwrap()
    }

    /// `wanted_us`, the label, and the length of the lease in µs, if the row was just touched.
    async fn rest_of_row(&mut self) -> (u64, String, i64) {
        let question = format!(
            "SELECT wanted_us,label,CAST(expires_us AS SIGNED)-CAST(acquired_us AS SIGNED) FROM lockkit_lock \
             WHERE touched_us>{NOW}-60000000"
        );
        self.admin.query_first(question).await.unwrap().unwrap()
    }

    async fn change(&mut self, change: &str) {
        self.admin.query_drop(change).await.unwrap();
    }
}

fn token(answer: Answer) -> u64 {
    let Answer::Granted { token } = answer else { panic!("{answer:?}") };
    token
}

/// Catches a statement that takes a lock that another owner has, and a late one that takes it.
/// Catches one that gives the answer of another case, and one that relies on a row that is gone.
async fn each_answer(flavor: SqlFlavor) {
    let server = SqlServer::start(flavor).unwrap();
    let (mut world, mut connection) = World::on(&server).await;
    let mut last = token(world.acquire(&mut connection, true, &asked("x", SOON)).await);
    for knows in [false, true] {
        world.change("UPDATE lockkit_lock SET expires_us=0,wanted_us=5,wanted_by=7").await;
        // A late request does not take a free row.
        let before = world.row().await;
        assert_eq!(world.acquire(&mut connection, knows, &asked("a", PAST)).await, Answer::Late);
        assert_eq!(world.row().await, before);
        // The row is free, and its new owner does not wait any more.
        let first = token(world.acquire(&mut connection, knows, &asked("a", SOON)).await);
        assert!(first > last);
        let taken = world.row().await;
        assert_eq!((taken.0.as_str(), taken.1), ("a", first));
        let rest = world.rest_of_row().await;
        assert_eq!(rest, (0, "label".to_owned(), LEASE.as_micros().try_into().unwrap()));
        // Another owner has the lock.
        match world.acquire(&mut connection, knows, &asked("b", SOON)).await {
            Answer::Busy { left: Some(left) } => {
                assert!(left <= LEASE && left > LEASE / 2, "{left:?}")
            }
            answer => panic!("{answer:?}"),
        }
        assert_eq!(world.row().await, taken);
        assert_eq!(world.acquire(&mut connection, knows, &asked("b", PAST)).await, Answer::Late);
        // The owner has the lock already, and a repeated attempt extends it.
        assert_eq!(token(world.acquire(&mut connection, knows, &asked("a", SOON)).await), first);
        let extended = world.row().await;
        assert!((extended.1, extended.2 > taken.2) == (first, true), "{taken:?} {extended:?}");
        // The lease ends.
        world.change("UPDATE lockkit_lock SET expires_us=1").await;
        let second = token(world.acquire(&mut connection, knows, &asked("b", SOON)).await);
        assert!(second > first);
        // Only the owner can release the lock, and only once.
        let release = async |connection: &mut Connection, owner| {
            world.knowing.release(connection, &asked(owner, 0), None, false).await.unwrap()
        };
        assert_eq!(release(&mut connection, "a").await, None);
        assert_eq!(release(&mut connection, "b").await, Some(true));
        assert_ne!(release(&mut connection, "b").await, Some(true));
        // Only a claim that has joined a batch takes this end for the work of the batch.
        for (end, has_joined, was_live) in
            [(1, true, true), (1, false, false), (0, true, false), (2, true, false)]
        {
            world.change(&format!("UPDATE lockkit_lock SET expires_us={end}")).await;
            let asked = asked("b", 0);
            let found = world.knowing.release(&mut connection, &asked, None, has_joined).await;
            assert_eq!(found.unwrap(), Some(was_live), "{end}");
        }
        // The token is ahead of the clock, as after a step back of the clock.
        world.change("UPDATE lockkit_lock SET fence=fence+3600000000").await;
        let third = token(world.acquire(&mut connection, knows, &asked("a", SOON)).await);
        assert_eq!(third, second + 3_600_000_001);
        world.change("DELETE FROM lockkit_lock").await;
        last = token(world.acquire(&mut connection, knows, &asked("a", SOON)).await);
        assert!(last > second);
    }
}
