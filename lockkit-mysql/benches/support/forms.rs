//! Measures what it costs the server to take a lock in several forms of lockkit's statement. The
//! forms differ in how they read the time, and in whether they could insert.

use std::time::{Duration, Instant};

use mysql_async::{Conn, Value, prelude::Queryable as _};

use super::{
    bare::{self, KIND, LEASE_US, OWNER, acquire_params, if_free_params, update_params},
    figures::{Figures, float},
    sql::{
        FREE, FREE_IN_PLACE, NOW, TAKE, acquire, acquire_by_update, acquire_if_free, release,
        release_in_place,
    },
    stage::Stage,
};

const ROUNDS: usize = 25;
const NAME: &str = "0";
/// Neither part depends on the time zone, and both are of the start of the statement.
const SECONDS: &str = "(UNIX_TIMESTAMP()*1000000+MICROSECOND(UTC_TIMESTAMP(6)))";
/// Right only while the session's time zone has no summer time.
const DECIMAL: &str = "CAST(UNIX_TIMESTAMP(NOW(6))*1000000 AS UNSIGNED)";
/// A constant shows what is left if time costs nothing.
const CONSTANT: &str = "1900000000000000";

struct Form {
    what: &'static str,
    sql: String,
    params: Vec<Value>,
    free: String,
    free_params: Vec<Value>,
    rate: Figures,
    cpu: Figures,
    rate_ratio: Figures,
    cpu_ratio: Figures,
}

impl Form {
    fn new(what: &'static str, sql: String, params: Vec<Value>) -> Self {
        let [rate, cpu, rate_ratio, cpu_ratio] = [const { Figures::new() }; 4];
        let free = FREE.to_owned();
        let free_params = vec![KIND.into(), NAME.into()];
        Self { what, sql, params, free, free_params, rate, cpu, rate_ratio, cpu_ratio }
    }
}

fn freed_by(mut form: Form, what: &'static str, free: &str, params: Vec<Value>) -> Form {
    (form.what, form.free, form.free_params) = (what, free.to_owned(), params);
    form
}

fn forms() -> Vec<Form> {
    let insert = |what, now, source: &str| {
        Form::new(what, acquire(now, source), acquire_params(NAME, OWNER))
    };
    let update = |what, now| Form::new(what, acquire_by_update(now), update_params(NAME, OWNER));
    let if_free = |what| Form::new(what, acquire_if_free(), if_free_params(NAME, OWNER));
    let ours = || vec![KIND.into(), NAME.into(), OWNER.into()];
    let take = vec![OWNER.into(), LEASE_US.into(), KIND.into(), NAME.into()];
    vec![
        insert("insert, TIMESTAMPDIFF", NOW, "DUAL"),
        insert("insert, seconds", SECONDS, "DUAL"),
        insert("insert, decimal", DECIMAL, "DUAL"),
        insert("insert, derived table", "t.n", &format!("(SELECT {NOW} AS n) AS t")),
        insert("insert, @variable", "@n", &format!("(SELECT @n:={NOW}) AS t")),
        insert("insert, no time at all", CONSTANT, "DUAL"),
        update("update, TIMESTAMPDIFF", NOW),
        update("update, seconds", SECONDS),
        update("update, no time at all", CONSTANT),
        if_free("update if free"),
        freed_by(if_free(""), "if free, in place", FREE_IN_PLACE, vec![KIND.into(), NAME.into()]),
        freed_by(if_free(""), "if free, release old", &release(), ours()),
        freed_by(if_free(""), "if free, release", &release_in_place(), ours()),
        freed_by(insert("", NOW, "DUAL"), "insert, release old", &release(), ours()),
        Form::new("bare update", TAKE.to_owned(), take.clone()),
        freed_by(
            Form::new("", TAKE.to_owned(), take),
            "bare update in place",
            FREE_IN_PLACE,
            vec![KIND.into(), NAME.into()],
        ),
    ]
}

pub(crate) async fn compare(stage: &Stage) {
    let mut conn = bare::prepare(stage).await;
    println!("one evaluation on the server:");
    for now in [NOW, SECONDS, DECIMAL] {
        let start = Instant::now();
        conn.query_drop(format!("DO BENCHMARK(300000,{now})")).await.unwrap();
        println!("  {:.0} ns  {now}", start.elapsed().as_secs_f64() * 1e9 / 300_000.0);
    }
    let mut forms = forms();
    for round in 0..=stage.rounds(ROUNDS) {
        let mut first = None;
        for form in &mut forms {
            let (rate, cpu) = measure(stage, &mut conn, form).await;
            let (first_rate, first_cpu) = *first.get_or_insert((rate, cpu));
            if round > 0 {
                form.rate.push(rate);
                form.cpu.push(cpu);
                form.rate_ratio.push(rate / first_rate);
                form.cpu_ratio.push(cpu / first_cpu);
            }
        }
    }
    println!("taking a free lock in these forms, and a bare update that frees it, one connection:");
    for form in forms {
        println!(
            "  {:<24} {} pairs/s, × {}; server CPU {} µs per pair, × {}",
            form.what,
            form.rate.show(0),
            form.rate_ratio.show(2),
            form.cpu.show(0),
            form.cpu_ratio.show(2)
        );
    }
}

/// Pairs per second, and µs of the server's CPU for each.
async fn measure(stage: &Stage, conn: &mut Conn, form: &Form) -> (f64, f64) {
    let take = conn.prep(&form.sql).await.unwrap();
    let free = conn.prep(&form.free).await.unwrap();
    let mut count = 0;
    let mut fence = 0;
    let cpu = stage.server_cpu();
    let start = Instant::now();
    let until = start + stage.slice(40).max(Duration::from_millis(20));
    while Instant::now() < until {
        conn.exec_drop(&take, form.params.clone()).await.unwrap();
        let id = conn.last_insert_id().unwrap_or(0);
        assert!(id > fence, "{id} after {fence}: {}", form.sql);
        fence = id;
        conn.exec_drop(&free, form.free_params.clone()).await.unwrap();
        count += 1;
    }
    let taken = start.elapsed();
    let cpu = (stage.server_cpu() - cpu).as_secs_f64() * 1e6;
    (float(count) / taken.as_secs_f64(), cpu / float(count))
}
