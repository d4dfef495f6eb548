//! Compares the pessimistic strategy with the bare transaction: BEGIN, FOR UPDATE, the fence on a
//! second connection, COMMIT.

use std::time::{Duration, Instant};

use lockkit_mysql::Strategy;
use mysql_async::{Conn, prelude::Queryable as _};

use super::{
    bare::{self, KIND, OWNER},
    figures::{Figures, float},
    own_names::lockkit_pairs,
    sql::NOW,
    stage::{Stage, statements},
};

const ROUNDS: usize = 25;
const NAME: &str = "0";

/// How the bare driver sends the work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Four requests, the middle ones prepared.
    Prepared,
    /// BEGIN and the read as one text: three requests.
    Text,
    /// The statements that lockkit sends.
    Ours,
}

const FORMS: [(&str, Form); 3] = [
    ("its statements, bare", Form::Ours),
    ("bare, prepared", Form::Prepared),
    ("bare, text", Form::Text),
];

#[derive(Default)]
struct Side {
    rate: Figures,
    pairs: u64,
    client: Duration,
    server: Duration,
}

impl Side {
    fn show(&self) -> String {
        let each = |used: Duration| used.as_secs_f64() * 1e6 / float(self.pairs);
        let client = each(self.client);
        let server = each(self.server);
        format!(
            "{} pairs/s; {client:.0} µs of client and {server:.0} µs of server CPU per pair",
            self.rate.show(0)
        )
    }
}

pub(crate) async fn compare(stage: &Stage) {
    let mut side = bare::prepare(stage).await;
    let locker = stage.locker(Strategy::Pessimistic, 16).await;
    let mut conns = [stage.open().await, stage.open().await];
    let slice = stage.slice(50);
    let mut sides: [Side; 4] = Default::default();
    let [mut to_statements, mut ratio, mut asked] = [const { Figures::new() }; 3];
    for round in 0..=stage.rounds(ROUNDS) {
        let mut rates = [0.0; 4];
        for (at, side_of) in sides.iter_mut().enumerate() {
            let before = statements(&mut side).await;
            let client = stage.client_cpu();
            let server = stage.server_cpu();
            let start = Instant::now();
            let until = start + slice;
            let count = match at.checked_sub(1).and_then(|form| FORMS.get(form)) {
                None => lockkit_pairs(locker.clone(), "own".to_owned(), until).await,
                Some((_, form)) => floor(&mut conns, *form, until).await,
            };
            rates[at] = float(count) / start.elapsed().as_secs_f64();
            if round > 0 {
                side_of.rate.push(rates[at]);
                side_of.pairs += count;
                side_of.client += stage.client_cpu() - client;
                side_of.server += stage.server_cpu() - server;
                if at == 0 {
                    asked.push(float(statements(&mut side).await - before - 1) / float(count));
                }
            }
        }
        if round > 0 {
            to_statements.push(rates[0] / rates[1]);
            ratio.push(rates[0] / rates[2].max(rates[3]));
        }
    }
    println!("1 task, a row lock:");
    for (what, side) in ["lockkit"].into_iter().chain(FORMS.map(|form| form.0)).zip(&sides) {
        println!("  {what:<24} {}", side.show());
    }
    println!("  statements per pair      {}", asked.show(2));
    println!("  lockkit / its statements {}", to_statements.show(2));
    println!("  lockkit / the faster     {}", ratio.show(2));
}

async fn floor([lock, fence]: &mut [Conn; 2], form: Form, until: Instant) -> u64 {
    let read = "SELECT 1 FROM bare_row WHERE kind=? AND name=? FOR UPDATE";
    let read = lock.prep(read).await.unwrap();
    let this = format!("kind='{KIND}' AND name='{NAME}'");
    let text = format!("BEGIN;SELECT 1 FROM bare_row WHERE {this} FOR UPDATE");
    let bump = format!(
        "INSERT INTO bare_fence(kind,name,fence) VALUES(?,?,LAST_INSERT_ID({NOW})) \
         ON DUPLICATE KEY UPDATE fence=LAST_INSERT_ID(GREATEST(fence+1,{NOW}))"
    );
    let bump = fence.prep(bump).await.unwrap();
    let signed = format!(
        "START TRANSACTION;SELECT GET_LOCK(CONCAT('bare.{OWNER}.',CONNECTION_ID()),0),(SELECT last.fence FROM bare_fence AS last \
         WHERE last.kind=this.kind AND last.name=this.name),CONNECTION_ID() FROM bare_row AS this WHERE {this} FOR UPDATE"
    );
    let signed_bump = format!(
        "UPDATE bare_fence SET fence=LAST_INSERT_ID(GREATEST(fence+1,{NOW})) WHERE kind=? AND name=? AND fence<>? AND \
         IS_USED_LOCK(CONCAT(?,CONVERT(LEFT(kind,0) USING utf8mb4)))<=>?"
    );
    let signed_bump = fence.prep(signed_bump).await.unwrap();
    let commit = format!(
        "SELECT fence,kind,RELEASE_LOCK(CONCAT('bare.{OWNER}.',CONNECTION_ID())) FROM bare_fence WHERE {this};COMMIT"
    );
    let thread = lock.id();
    let sign = format!("bare.{OWNER}.{thread}");
    if form == Form::Ours {
        fence.exec_drop(&bump, (KIND, NAME)).await.unwrap();
    }
    let mut count = 0;
    while Instant::now() < until {
        match form {
            Form::Prepared => {
                lock.query_drop("BEGIN").await.unwrap();
                lock.exec_drop(&read, (KIND, NAME)).await.unwrap();
            }
            Form::Text => lock.query_drop(&text).await.unwrap(),
            Form::Ours => lock.query_drop(&signed).await.unwrap(),
        }
        if form == Form::Ours {
            fence.exec_drop(&signed_bump, (KIND, NAME, 0, &sign, thread)).await.unwrap();
            assert!(fence.last_insert_id().is_some());
            lock.query_drop(&commit).await.unwrap();
        } else {
            fence.exec_drop(&bump, (KIND, NAME)).await.unwrap();
            lock.query_drop("COMMIT").await.unwrap();
        }
        count += 1;
    }
    count
}
