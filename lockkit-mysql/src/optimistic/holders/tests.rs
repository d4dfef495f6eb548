//! Tests of each statement by itself, and of what may come between two of them.

use std::{num::NonZeroU32, time::Duration};

use lockkit_core::{FencingToken, Kind, LockName, OwnerId, url::StoreUrl};
use lockkit_fixture::{SqlFlavor, SqlServer, on_both};
use mysql_async::{
    Conn, Opts,
    prelude::{FromRow, Queryable as _},
};

use super::*;
use crate::{channel::Checkout, config::Config, connection::Outcome, pool::Pool, schema};

on_both!(
    c1_a_candidate_from_before_a_resume_gets_no_grant,
    c1_a_candidate_of_an_older_version_gets_no_grant,
    c1_a_grant_without_a_candidate_changes_nothing,
    c1_an_attempt_that_waited_for_a_grant_sees_it,
    c1_c13_a_demoted_server_grants_nothing,
    c1_c2_a_holder_whose_lease_has_ended_counts_until_it_is_deleted,
    c1_each_mode_counts_the_holders_that_it_excludes,
    c4_each_grant_and_each_raised_token_is_the_version,
    c5_a_late_request_leaves_nothing,
    c5_the_owner_of_a_live_lease_gets_its_token_again,
);

/// A server may stall for two seconds, and then it has a lot to do.
const PATIENCE: Duration = Duration::from_secs(30);
const LEASE_US: u64 = 600_000_000;
/// Not-after times: one that is far away, and one that has passed.
const SOON: u64 = u64::MAX;
const PAST: u64 = 1;
const READ: Mode = Mode::Shared;
const WRITE: Mode = Mode::Exclusive;

fn permit(limit: u32) -> Mode {
    let limit = NonZeroU32::new(limit).unwrap();
    Mode::Permits { count: NonZeroU32::MIN, limit }
}

struct World {
    name: LockName,
    admin: Conn,
    connection: Checkout,
    sql: HoldersSql,
    looks: LookSql,
    _pool: Pool,
    _server: SqlServer,
}

impl World {
    /// A name that has been used.
    async fn on(flavor: SqlFlavor, kind: Kind) -> Self {
        let server = SqlServer::start(flavor).unwrap();
        let url = server.url() + "?connect_timeout=20s";
        let pool = Pool::new(Config::from_url(StoreUrl::parse(&url).unwrap()).unwrap());
        let mut connection = pool.get(PATIENCE).await.unwrap();
        schema::prepare(&mut connection, pool.config()).await.unwrap();
        let admin = Conn::new(Opts::from_url(&server.admin_url()).unwrap()).await.unwrap();
        let tables = pool.config().tables();
        let sql = HoldersSql::new(tables);
        let looks = LookSql::new(tables);
        let name = LockName::new(kind, "a").unwrap();
        let mut world = Self { name, admin, connection, sql, looks, _pool: pool, _server: server };
        let mode = if kind == Kind::Semaphore { permit(1) } else { WRITE };
        world.granted("first", mode).await;
        world.release("first").await;
        world
    }

    async fn acquire(&mut self, owner: &str, mode: Mode, not_after_us: u64) -> Answer {
        let asked = asked(&self.name, owner, not_after_us);
        let answer = self.sql.acquire(&mut self.connection, &self.looks, mode, &asked);
        answer.await.unwrap().unwrap()
    }

    async fn granted(&mut self, owner: &str, mode: Mode) -> u64 {
        match self.acquire(owner, mode, SOON).await {
            Answer::Granted { token } => token,
            answer => panic!("{owner}: {answer:?}"),
        }
    }

    async fn release(&mut self, owner: &str) -> Option<bool> {
        let asked = asked(&self.name, owner, 0);
        self.sql.release(&mut self.connection, &asked).await.unwrap()
    }

    async fn raise(&mut self, owner: &str, floor: u64) -> Option<u64> {
        let asked = asked(&self.name, owner, 0);
        self.sql.raise(&mut self.connection, &asked, floor).await.unwrap()
    }

    async fn resume(
        &mut self,
        owner: &str,
        mode: Mode,
        not_after_us: u64,
        former: &GrantId,
    ) -> Option<u64> {
        let asked = asked(&self.name, owner, not_after_us);
        self.sql.resume(&mut self.connection, mode, &asked, former).await.unwrap()
    }

    /// Only the first statement of an attempt.
    async fn candidate(&mut self, owner: &str, mode: Mode, not_after_us: u64) -> Outcome {
        let sql = self.sql.candidate(mode, &asked(&self.name, owner, not_after_us));
        self.connection.script(&sql).await.unwrap()[0].outcome
    }

    /// Only the second statement of an attempt.
    async fn grant(&mut self, owner: &str, mode: Mode, not_after_us: u64) -> Outcome {
        let sql = self.sql.grant(mode, &asked(&self.name, owner, not_after_us));
        self.connection.script(&sql).await.unwrap()[0].outcome
    }

    async fn one<T: FromRow + Send + 'static>(&mut self, question: &str) -> T {
        self.admin.query_first(question).await.unwrap().unwrap()
    }

    async fn version(&mut self) -> u64 {
        self.one("SELECT fence FROM lockkit_lock").await
    }

    async fn owners(&mut self) -> Vec<String> {
        self.admin.query("SELECT owner FROM lockkit_holder ORDER BY owner").await.unwrap()
    }

    async fn change(&mut self, change: &str) {
        self.admin.query_drop(change).await.unwrap();
    }
}

fn asked<'a>(name: &'a LockName, owner: &'a str, not_after_us: u64) -> LockRequest<'a> {
    LockRequest { name, owner, label: "", lease_us: LEASE_US, not_after_us, client: 7 }
}

/// Catches a grant that does not compare the version. Also catches a rest of the lost race.
async fn c1_a_candidate_of_an_older_version_gets_no_grant(flavor: SqlFlavor) {
    let mut world = World::on(flavor, Kind::RwLock).await;
    assert_eq!(world.candidate("slow", WRITE, SOON).await.affected, 1);
    // A candidate keeps no other claim away.
    let token = world.granted("fast", WRITE).await;
    assert_eq!(world.grant("slow", WRITE, SOON).await.id, 0);
    assert_eq!((world.version().await, world.owners().await.len()), (token, 2));
    assert!(matches!(world.acquire("slow", WRITE, SOON).await, Answer::Busy { left: Some(_) }));
    assert_eq!(world.release("fast").await, Some(true));
    assert_eq!(world.grant("slow", WRITE, SOON).await.id, 0);
    let next = world.granted("slow", WRITE).await;
    assert!(next > token);
    assert_eq!(world.owners().await, ["slow"]);
    assert_eq!(world.release("slow").await, Some(true));
    assert!(world.owners().await.is_empty());
}

/// Catches a resume that leaves the version, so that an attempt may miss the holder that moves.
/// Also catches one that does not compare the mode, the limit, the owner, the token or the time.
async fn c1_a_candidate_from_before_a_resume_gets_no_grant(flavor: SqlFlavor) {
    for (kind, mode, others) in
        [(Kind::RwLock, READ, &[WRITE][..]), (Kind::Semaphore, permit(2), &[permit(1), permit(3)])]
    {
        let mut world = World::on(flavor, kind).await;
        let owner = OwnerId::new(1);
        let token = world.granted(&owner.to_string(), mode).await;
        assert_eq!(world.candidate("slow", mode, SOON).await.affected, 1);
        let grant = |owner, token| GrantId { owner, token: FencingToken::new(token) };
        let former = grant(owner, token);
        for other in others {
            assert_eq!(world.resume("heir", *other, SOON, &former).await, None, "{other:?}");
        }
        let other = grant(OwnerId::new(2), token);
        assert_eq!(world.resume("heir", mode, SOON, &other).await, None);
        let newer = grant(owner, token + 1);
        assert_eq!(world.resume("heir", mode, SOON, &newer).await, None);
        assert_eq!(world.resume("heir", mode, PAST, &former).await, None);
        for _ in 0..2 {
            assert_eq!(world.resume("heir", mode, SOON, &former).await, Some(token), "{mode:?}");
        }
        assert_eq!(world.resume("late", mode, SOON, &former).await, None, "the ticket is used");
        assert_eq!(world.grant("slow", mode, SOON).await.id, 0, "{mode:?}");
        assert_eq!(world.owners().await, ["heir", "slow"]);
        assert_eq!(world.release("heir").await, Some(true));
    }
}

/// As after Galera has undone the first statement. Catches a second statement that grants alone.
async fn c1_a_grant_without_a_candidate_changes_nothing(flavor: SqlFlavor) {
    for (kind, mode) in [(Kind::RwLock, WRITE), (Kind::RwLock, READ), (Kind::Semaphore, permit(2))]
    {
        let mut world = World::on(flavor, kind).await;
        let before = world.version().await;
        let outcome = world.grant("a", mode, SOON).await;
        assert_eq!((outcome.id, outcome.affected), (0, 0), "{mode:?}");
        assert_eq!((world.version().await, world.owners().await.len()), (before, 0));
        // Nor does it give a holder a second grant.
        let token = world.granted("a", mode).await;
        assert_eq!(world.grant("a", mode, SOON).await.id, 0);
        assert_eq!(world.version().await, token);
    }
}

/// Catches an attempt that reads the holders before it waits for the row of the name, and the
/// version after that.
async fn c1_an_attempt_that_waited_for_a_grant_sees_it(flavor: SqlFlavor) {
    for (kind, mode, letter) in
        [(Kind::RwLock, WRITE, 'x'), (Kind::RwLock, READ, 'x'), (Kind::Semaphore, permit(1), 'p')]
    {
        let mut world = World::on(flavor, kind).await;
        world.change("START TRANSACTION").await;
        world.change("UPDATE lockkit_lock SET fence=fence+1").await;
        let columns = "kind,name,owner,mode,fence,permits,expires_us,acquired_us";
        let live = format!("SELECT kind,name,'first','{letter}',fence,1,1<<62,0 FROM lockkit_lock");
        world.change(&format!("INSERT INTO lockkit_holder({columns}) {live}")).await;
        let mut other = Conn::new(world.admin.opts().clone()).await.unwrap();
        let commits = async {
            let waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'";
            while other.query_first::<(String, u64), _>(waits).await.unwrap().unwrap().1 == 0 {}
            world.admin.query_drop("COMMIT").await.unwrap();
        };
        let asked = asked(&world.name, "second", SOON);
        world.connection.script("SET SESSION innodb_lock_wait_timeout=60").await.unwrap();
        let attempt = world.sql.acquire(&mut world.connection, &world.looks, mode, &asked);
        let (answer, ()) = tokio::join!(attempt, commits);
        assert!(matches!(answer.unwrap(), Some(Answer::Busy { .. })), "{mode:?}");
        assert_eq!(world.owners().await, ["first"]);
    }
}

/// A user who may bypass `read_only` can still write there. Catches each of the two statements if
/// it does not look.
async fn c1_c13_a_demoted_server_grants_nothing(flavor: SqlFlavor) {
    let mut world = World::on(flavor, Kind::RwLock).await;
    let before = world.version().await;
    let asked = asked(&world.name, "a", SOON);
    let (candidate, grant) = (world.sql.candidate(WRITE, &asked), world.sql.grant(WRITE, &asked));
    world.change("SET GLOBAL read_only=1").await;
    world.change(&candidate).await;
    assert!(world.owners().await.is_empty());
    world.change("SET GLOBAL read_only=0").await;
    world.change(&candidate).await;
    assert_eq!(world.owners().await, ["a"]);
    world.change("SET GLOBAL read_only=1").await;
    world.change(&grant).await;
    assert_eq!(world.version().await, before);
    world.change("SET GLOBAL read_only=0").await;
    world.change(&grant).await;
    assert_ne!(world.version().await, before);
}

/// Catches a holder that is ignored but left. A renewal that has waited would extend its lease,
/// beside the next holder.
async fn c1_c2_a_holder_whose_lease_has_ended_counts_until_it_is_deleted(flavor: SqlFlavor) {
    let mut world = World::on(flavor, Kind::RwLock).await;
    let past = world.granted("past", WRITE).await;
    world.change("UPDATE lockkit_holder SET expires_us=1").await;
    for mode in [WRITE, READ] {
        assert_eq!(world.candidate("next", mode, SOON).await.affected, 0, "{mode:?}");
    }
    assert!(world.granted("next", WRITE).await > past);
    assert_eq!(world.owners().await, ["next"]);
    assert_eq!(world.release("past").await, None);
    // The past owner itself gets a new grant, and not its old one.
    world.change("UPDATE lockkit_holder SET expires_us=1").await;
    let version = world.version().await;
    assert!(world.granted("next", WRITE).await > version);
    assert_eq!(world.release("next").await, Some(true));
    world.granted("next", WRITE).await;
    world.change("UPDATE lockkit_holder SET expires_us=1").await;
    assert_eq!(world.release("next").await, Some(false));
    assert!(world.owners().await.is_empty());
}

/// Catches a mode that ignores holders, or counts its own row.
async fn c1_each_mode_counts_the_holders_that_it_excludes(flavor: SqlFlavor) {
    let mut world = World::on(flavor, Kind::RwLock).await;
    world.granted("r1", READ).await;
    world.granted("r2", READ).await;
    assert!(matches!(world.acquire("w", WRITE, SOON).await, Answer::Busy { left: Some(_) }));
    world.change("UPDATE lockkit_lock SET wanted_us=1<<62").await;
    assert!(matches!(world.acquire("r3", READ, SOON).await, Answer::Busy { .. }));
    world.release("r1").await;
    world.release("r2").await;
    assert!(matches!(world.acquire("r3", READ, SOON).await, Answer::Busy { left: None }));
    world.granted("w", WRITE).await;
    assert!(matches!(world.acquire("r3", READ, SOON).await, Answer::Busy { left: Some(_) }));
    world.release("w").await;
    // The writer is not wanted any more.
    world.granted("r3", READ).await;

    let mut world = World::on(flavor, Kind::Semaphore).await;
    for owner in ["p1", "p2", "p3"] {
        world.granted(owner, permit(3)).await;
    }
    assert!(matches!(world.acquire("p4", permit(3), SOON).await, Answer::Busy { left: Some(_) }));
    for limit in [2, 4, 100] {
        let answer = world.acquire("p4", permit(limit), SOON).await;
        assert_eq!(answer, Answer::Mismatch { limit: 3 });
    }
    world.release("p1").await;
    assert_eq!(world.acquire("p4", permit(4), SOON).await, Answer::Mismatch { limit: 3 });
    world.granted("p4", permit(3)).await;
    for owner in ["p2", "p3", "p4"] {
        assert_eq!(world.release(owner).await, Some(true));
    }
    world.granted("p5", permit(9)).await;
    assert_eq!(world.owners().await, ["p5"]);
}

/// Catches a grant that leaves the row of the name as it is. On two nodes of a cluster, two such
/// grants would not exclude each other. Also catches a token that does not rise.
async fn c4_each_grant_and_each_raised_token_is_the_version(flavor: SqlFlavor) {
    let mut world = World::on(flavor, Kind::Semaphore).await;
    let ahead = 1 << 60;
    let mut last = 0;
    for owner in ["p1", "p2", "p3", "p4"] {
        let token = world.granted(owner, permit(9)).await;
        assert!(token > last);
        last = token;
        let own = format!("SELECT fence FROM lockkit_holder WHERE owner='{owner}'");
        assert_eq!((world.version().await, world.one::<u64>(&own).await), (token, token));
        if owner == "p2" {
            // The token is ahead of the clock, as after a step back of the clock.
            last = world.raise(owner, ahead).await.unwrap();
            assert_eq!((last, world.version().await), (ahead, ahead));
            let lower = world.raise(owner, 5).await;
            assert_eq!((lower, world.one::<u64>(&own).await), (Some(ahead), ahead));
        }
    }
    assert_eq!(last, ahead + 2);
    assert_eq!(world.raise("p9", ahead * 2).await, None);
    world.change("UPDATE lockkit_holder SET expires_us=1").await;
    assert_eq!(world.raise("p4", ahead * 2).await, None);
    assert_eq!(world.version().await, last);
    // The row of the name was removed, and its user does not know that.
    world.change("DELETE FROM lockkit_lock").await;
    let token = world.granted("p5", permit(9)).await;
    assert_eq!((world.version().await, world.owners().await), (token, vec!["p5".to_owned()]));
}

/// Catches each of the two statements if it does not compare the time.
async fn c5_a_late_request_leaves_nothing(flavor: SqlFlavor) {
    for (kind, mode) in [(Kind::RwLock, WRITE), (Kind::RwLock, READ), (Kind::Semaphore, permit(2))]
    {
        let mut world = World::on(flavor, kind).await;
        let before = world.version().await;
        assert_eq!(world.acquire("late", mode, PAST).await, Answer::Late);
        assert_eq!(world.candidate("late", mode, PAST).await.affected, 0);
        // The time passes between the two statements.
        assert_eq!(world.candidate("late", mode, SOON).await.affected, 1);
        assert_eq!(world.grant("late", mode, PAST).await.id, 0);
        assert_eq!(world.version().await, before);
        assert_eq!(world.release("late").await, Some(false));
        assert!(world.owners().await.is_empty());
    }
}

/// Catches an attempt that is refused because of the grant of an earlier, unanswered one.
async fn c5_the_owner_of_a_live_lease_gets_its_token_again(flavor: SqlFlavor) {
    for (kind, mode) in [(Kind::RwLock, WRITE), (Kind::RwLock, READ), (Kind::Semaphore, permit(1))]
    {
        let mut world = World::on(flavor, kind).await;
        let token = world.granted("a", mode).await;
        // A writer waits, and that keeps new readers away.
        world.change("UPDATE lockkit_lock SET wanted_us=1<<62").await;
        let end = "SELECT expires_us FROM lockkit_holder";
        let before = world.one::<u64>(end).await;
        assert_eq!(world.granted("a", mode).await, token, "{mode:?}");
        assert!(world.one::<u64>(end).await > before);
        world.change("UPDATE lockkit_holder SET expires_us=1<<62").await;
        assert_eq!(world.granted("a", mode).await, token);
        assert_eq!(world.one::<u64>(end).await, 1 << 62, "a lease became shorter");
        assert_eq!((world.version().await, world.owners().await.len()), (token, 1));
    }
}
