//! What it costs the server to tell the time in lockkit's acquiring statement, in several forms.

use std::time::{Duration, Instant};

use mysql_async::{Conn, Value, prelude::Queryable as _};

use super::{
    bare::{self, KIND, LEASE_US, OWNER},
    figures::{Figures, float},
    sql::{NOW, acquire},
    stage::Stage,
};

const ROUNDS: usize = 15;
/// Neither part heeds the time zone, and both are of the start of the statement.
const SECONDS_AND_MICROS: &str = "(UNIX_TIMESTAMP()*1000000+MICROSECOND(UTC_TIMESTAMP(6)))";
/// Right only while the session's time zone has no summer time.
const UNIX_DECIMAL: &str = "CAST(UNIX_TIMESTAMP(NOW(6))*1000000 AS UNSIGNED)";
/// What is left if time costs nothing.
const CONSTANT: &str = "1900000000000000";
const FREE: &str = "UPDATE bare_lock SET owner='',expires_us=0 WHERE kind=? AND name=?";

struct Form {
    what: &'static str,
    sql: String,
    rate: Figures,
    cpu: Figures,
    rate_ratio: Figures,
    cpu_ratio: Figures,
}

fn forms() -> Vec<Form> {
    let form = |what, sql| Form {
        what,
        sql,
        rate: Figures::new(),
        cpu: Figures::new(),
        rate_ratio: Figures::new(),
        cpu_ratio: Figures::new(),
    };
    let derived = |now: &str| acquire("t.n", "t.n", &format!("(SELECT {now} AS n) AS t"));
    vec![
        form("TIMESTAMPDIFF", acquire(NOW, NOW, "DUAL")),
        form("seconds and micros", acquire(SECONDS_AND_MICROS, SECONDS_AND_MICROS, "DUAL")),
        form("decimal UNIX_TIMESTAMP", acquire(UNIX_DECIMAL, UNIX_DECIMAL, "DUAL")),
        form("derived table, T.DIFF", derived(NOW)),
        form("derived table, seconds", derived(SECONDS_AND_MICROS)),
        form("session variable", acquire("@n", "@n", &format!("(SELECT @n:={NOW}) AS t"))),
        form("no time at all", acquire(CONSTANT, CONSTANT, "DUAL")),
        form(
            "a bare update",
            "UPDATE bare_lock SET owner=?,fence=LAST_INSERT_ID(fence+1),expires_us=? WHERE kind=? AND name=?"
                .to_owned(),
        ),
    ]
}

pub(crate) async fn compare(stage: &Stage) {
    let mut conn = bare::prepare(stage).await;
    println!("one evaluation on the server:");
    for now in [NOW, SECONDS_AND_MICROS, UNIX_DECIMAL] {
        let start = Instant::now();
        conn.query_drop(format!("DO BENCHMARK(300000,{now})")).await.unwrap();
        println!("  {:.0} ns  {now}", start.elapsed().as_secs_f64() * 1e9 / 300_000.0);
    }
    let mut forms = forms();
    for round in 0..=stage.rounds(ROUNDS) {
        let mut first = None;
        for form in &mut forms {
            let (rate, cpu) = measure(stage, &mut conn, &form.sql).await;
            let (first_rate, first_cpu) = *first.get_or_insert((rate, cpu));
            if round > 0 {
                form.rate.push(rate);
                form.cpu.push(cpu);
                form.rate_ratio.push(rate / first_rate);
                form.cpu_ratio.push(cpu / first_cpu);
            }
        }
    }
    println!("acquiring, and a bare update that frees it, one connection:");
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
async fn measure(stage: &Stage, conn: &mut Conn, sql: &str) -> (f64, f64) {
    let (take, free) = (conn.prep(sql).await.unwrap(), conn.prep(FREE).await.unwrap());
    let params: Vec<Value> = if sql.starts_with("INSERT") {
        let (owner, lease) = (Value::from(OWNER), Value::from(LEASE_US));
        let of_row: [Value; 3] = [KIND.into(), "0".into(), owner.clone()];
        let rest: [Value; 9] = [
            lease.clone(),
            "".into(),
            u64::MAX.into(),
            owner.clone(),
            "".into(),
            owner.clone(),
            owner.clone(),
            owner,
            lease,
        ];
        of_row.into_iter().chain(rest).collect()
    } else {
        vec![OWNER.into(), LEASE_US.into(), KIND.into(), "0".into()]
    };
    let (mut count, mut fence) = (0, 0);
    let (cpu, start) = (stage.server_cpu(), Instant::now());
    let until = start + stage.slice(60).max(Duration::from_millis(20));
    while Instant::now() < until {
        conn.exec_drop(&take, params.clone()).await.unwrap();
        let id = conn.last_insert_id().unwrap_or(0);
        assert!(id > fence, "{id} after {fence}: {sql}");
        fence = id;
        conn.exec_drop(&free, (KIND, "0")).await.unwrap();
        count += 1;
    }
    let taken = start.elapsed();
    let cpu = (stage.server_cpu() - cpu).as_secs_f64() * 1e6;
    (float(count) / taken.as_secs_f64(), cpu / float(count))
}
