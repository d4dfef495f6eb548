//! The pessimistic strategy against the bare transaction: BEGIN, FOR UPDATE, the fence on a second connection, COMMIT.

use std::time::Instant;

use lockkit_mysql::Strategy;
use mysql_async::{Conn, prelude::Queryable as _};

use super::{
    bare::{self, KIND},
    figures::{Figures, float},
    own_names::lockkit_pairs,
    sql::NOW,
    stage::{Stage, statements},
};

const ROUNDS: usize = 13;
const NAME: &str = "0";

/// How the bare driver sends it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Four requests, the middle ones prepared.
    Prepared,
    /// BEGIN and the read as one text: three requests.
    Text,
}

pub(crate) async fn compare(stage: &Stage) {
    let mut side = bare::prepare(stage).await;
    let locker = stage.locker(Strategy::Pessimistic, 16).await;
    let mut conns = [stage.open().await, stage.open().await];
    let slice = stage.slice(100);
    let [mut ours, mut prepared, mut text, mut ratio, mut asked] = [const { Figures::new() }; 5];
    for round in 0..=stage.rounds(ROUNDS) {
        let (before, start) = (statements(&mut side).await, Instant::now());
        let count = lockkit_pairs(locker.clone(), "own".to_owned(), start + slice).await;
        let our_rate = float(count) / start.elapsed().as_secs_f64();
        let asked_by = statements(&mut side).await - before - 1;
        let rate_1 = floor(&mut conns, Form::Prepared, Instant::now() + slice).await;
        let rate_2 = floor(&mut conns, Form::Text, Instant::now() + slice).await;
        if round > 0 {
            ours.push(our_rate);
            asked.push(float(asked_by) / float(count));
            prepared.push(rate_1);
            text.push(rate_2);
            ratio.push(our_rate / rate_1.max(rate_2));
        }
    }
    println!("1 task, a row lock:");
    println!("  lockkit                  {} pairs/s; {} statements per pair", ours.show(0), asked.show(2));
    println!("  bare, prepared           {} pairs/s", prepared.show(0));
    println!("  bare, text               {} pairs/s", text.show(0));
    println!("  lockkit / the faster     {}", ratio.show(2));
}

async fn floor([lock, fence]: &mut [Conn; 2], form: Form, until: Instant) -> f64 {
    let read = "SELECT 1 FROM bare_row WHERE kind=? AND name=? FOR UPDATE";
    let read = lock.prep(read).await.unwrap();
    let text = format!("BEGIN;SELECT 1 FROM bare_row WHERE kind='{KIND}' AND name='{NAME}' FOR UPDATE");
    let bump = format!(
        "INSERT INTO bare_fence(kind,name,fence) VALUES(?,?,LAST_INSERT_ID({NOW})) \
         ON DUPLICATE KEY UPDATE fence=LAST_INSERT_ID(GREATEST(fence+1,{NOW}))"
    );
    let bump = fence.prep(bump).await.unwrap();
    let (start, mut count) = (Instant::now(), 0);
    while Instant::now() < until {
        match form {
            Form::Prepared => {
                lock.query_drop("BEGIN").await.unwrap();
                lock.exec_drop(&read, (KIND, NAME)).await.unwrap();
            }
            Form::Text => lock.query_drop(&text).await.unwrap(),
        }
        fence.exec_drop(&bump, (KIND, NAME)).await.unwrap();
        lock.query_drop("COMMIT").await.unwrap();
        count += 1;
    }
    float(count) / start.elapsed().as_secs_f64()
}
