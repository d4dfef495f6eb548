//! Contenders for one name, each with a bare connection.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use mysql_async::{self as my, Conn, prelude::Queryable as _};
use tokio::time::sleep;

use super::{
    bare::{KIND, LEASE_US, acquire_params},
    sql,
};

const NAME: &str = "0";
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);

/// How a contender asks for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// lockkit's statement, and a plain read while it waits.
    OneStatement,
    /// A read, and an update if the lock is free.
    Classic,
    /// lockkit's statement each millisecond.
    Naive,
}

/// The counts of one contender.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) grants: u64,
    pub(crate) statements: u64,
    /// Writes that lost to another contender's.
    pub(crate) lost: u64,
}

/// When the lock was released last, and how long it was idle each time.
pub(crate) struct Gaps(Mutex<(Instant, Vec<Duration>)>);

impl Gaps {
    pub(crate) fn start() -> Arc<Self> {
        Arc::new(Self(Mutex::new((Instant::now(), Vec::new()))))
    }

    /// Call when the lock is granted, and about to be released.
    pub(crate) fn granted(&self) {
        let mut gaps = self.0.lock().unwrap();
        let now = Instant::now();
        let gap = now - gaps.0;
        gaps.1.push(gap);
        gaps.0 = now;
    }

    /// The median, in µs.
    pub(crate) fn median(&self) -> f64 {
        let gaps = &mut self.0.lock().unwrap().1;
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).map_or(f64::NAN, |gap| gap.as_secs_f64() * 1e6)
    }
}

pub(crate) struct Contender {
    pub(crate) conn: Conn,
    pub(crate) owner: String,
    pub(crate) tally: Tally,
    way: Way,
    until: Instant,
}

impl Contender {
    pub(crate) fn new(conn: Conn, way: Way, number: usize, until: Instant) -> Self {
        Self { conn, owner: format!("{number:032x}"), tally: Tally::default(), way, until }
    }

    /// Takes the lock and releases it, again and again. `rest` lets the others have a turn.
    pub(crate) async fn work(mut self, gaps: Arc<Gaps>, rest: bool) -> Self {
        while self.lock().await {
            gaps.granted();
            self.tally.grants += 1;
            self.release().await;
            if rest {
                sleep(jittered(SHORTEST)).await;
            }
        }
        self
    }

    /// False if the time is up.
    async fn lock(&mut self) -> bool {
        let mut pause = SHORTEST;
        let mut version = 0;
        let mut is_first = true;
        while Instant::now() < self.until {
            let (is_mine, seen) = match self.way {
                Way::Classic => self.read_then_update().await,
                // A waiter reads before it writes.
                Way::OneStatement if is_first => (self.acquire().await, 0),
                Way::OneStatement => match self.look(&sql::peek()).await {
                    (left, seen) if left > 0 => (false, seen),
                    (_, seen) => (self.acquire().await, seen),
                },
                Way::Naive => (self.acquire().await, 0),
            };
            if is_mine {
                return true;
            }
            if seen != version {
                (version, pause) = (seen, SHORTEST);
            }
            sleep(jittered(pause)).await;
            if self.way != Way::Naive {
                pause = (pause * 2).min(LONGEST);
            }
            is_first = false;
        }
        false
    }

    async fn acquire(&mut self) -> bool {
        let statement = self.conn.prep(sql::acquire(sql::NOW, "DUAL")).await.unwrap();
        let params = acquire_params(NAME, &self.owner);
        self.tally.statements += 1;
        let answer = self.conn.exec_drop(&statement, params).await;
        let is_mine =
            done(answer) && self.conn.last_insert_id().unwrap_or(0) > 1_000_000_000_000_000;
        self.tally.lost += u64::from(!is_mine);
        is_mine
    }

    async fn read_then_update(&mut self) -> (bool, u64) {
        let (left, version) = self.look(&sql::classic_read()).await;
        if left > 0 {
            return (false, version);
        }
        let statement = self.conn.prep(sql::classic_write()).await.unwrap();
        self.tally.statements += 1;
        let answer =
            self.conn.exec_drop(&statement, (&self.owner, LEASE_US, KIND, NAME, version)).await;
        let is_mine = done(answer) && self.conn.affected_rows() == 1;
        self.tally.lost += u64::from(!is_mine);
        (is_mine, version)
    }

    /// How long the lease still lasts, and the version.
    async fn look(&mut self, sql: &str) -> (i64, u64) {
        let statement = self.conn.prep(sql).await.unwrap();
        self.tally.statements += 1;
        let row: Option<my::Row> = self.conn.exec_first(&statement, (KIND, NAME)).await.unwrap();
        let row = row.unwrap();
        let at = row.len() - 2;
        (row.get(at + 1).unwrap(), row.get(at).unwrap())
    }

    async fn release(&mut self) {
        let statement = self.conn.prep(sql::release_in_place()).await.unwrap();
        loop {
            self.tally.statements += 1;
            let params = (KIND, NAME, &self.owner);
            if done(self.conn.exec_drop(&statement, params).await) {
                assert_eq!(self.conn.last_insert_id(), Some(2), "the lock was lost");
                return;
            }
        }
    }
}

/// False if the statement lost a race: a deadlock, or a row that was locked for too long.
fn done(answer: my::Result<()>) -> bool {
    match answer {
        Ok(()) => true,
        Err(my::Error::Server(error)) if [1205, 1213].contains(&error.code) => false,
        Err(error) => panic!("{error}"),
    }
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.75 + 0.5 * rand::random::<f64>())
}
