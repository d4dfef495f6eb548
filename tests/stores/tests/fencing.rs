//! Runs the statements and the script of docs/guide.md on real servers.

use lockkit::{
    Kind, LockGuard, LockName, Locker, Released,
    mysql::mysql_async::{Conn, Opts, OptsBuilder, Params, Value, prelude::Queryable as _},
};
use lockkit_fixture::{RedisServer, SqlFlavor, SqlServer};

/// The first block of code after a heading, without its fences.
fn block(heading: &str) -> &'static str {
    let page = include_str!("../../../docs/guide.md");
    let section = page.split_once(&format!("\n{heading}\n")).expect("a heading of the page").1;
    let code = section.split_once("```").expect("a block of code").1;
    code.split_once('\n').expect("its language").1.split_once("```").expect("its end").0
}

fn statements(heading: &str) -> Vec<&'static str> {
    block(heading).split(';').map(str::trim).filter(|statement| !statement.is_empty()).collect()
}

/// A server may pause for seconds.
async fn connect(url: &str) -> Locker {
    lockkit::connect(&format!("{url}?connect_timeout=30s&ttl=60s&op_timeout=20s")).await.unwrap()
}

/// Two grants of one name. The first grant was taken from its holder by force.
struct Two {
    locker: Locker,
    late: LockGuard,
    present: LockGuard,
}

impl Two {
    async fn at(url: &str) -> Self {
        let locker = connect(url).await;
        let mutex = locker.mutex("stock").unwrap();
        let late = mutex.lock().await.unwrap();
        let name = LockName::new(Kind::Mutex, "stock").unwrap();
        assert_eq!(
            locker.force_release(&name, late.fencing_token()).await.unwrap(),
            Released::Freed
        );
        // This is another locker, because the locker's own claims may hear of the release at once.
        let other = connect(url).await;
        let present = other.mutex("stock").unwrap().lock().await.unwrap();
        Self { locker, late, present }
    }

    fn tokens(&self) -> [i64; 2] {
        [&self.late, &self.present].map(|guard| guard.fencing_token().get().try_into().unwrap())
    }
}

struct Database {
    _server: SqlServer,
    two: Two,
    connection: Conn,
}

impl Database {
    /// MySQL counts changed rows, or found rows if the client asks for that.
    async fn start(found_rows: bool) -> Self {
        let server = SqlServer::start(SqlFlavor::MariaDb).unwrap();
        let two = Two::at(&server.url()).await;
        let opts = OptsBuilder::from_opts(Opts::from_url(&server.url()).unwrap())
            .client_found_rows(found_rows);
        let connection = Conn::new(opts).await.unwrap();
        Self { _server: server, two, connection }
    }

    async fn run(&mut self, statement: &str, values: &[(&str, Value)]) -> u64 {
        let named = |(name, value): &(&str, Value)| (name.as_bytes().to_vec(), value.clone());
        let params = match values {
            [] => Params::Empty,
            values => Params::Named(values.iter().map(named).collect()),
        };
        self.connection.exec_drop(statement, params).await.unwrap();
        self.connection.affected_rows()
    }

    /// The number that a statement with values returns.
    async fn ask(&mut self, statement: &str, values: &[(&str, Value)]) -> i64 {
        let named = values.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.clone()));
        self.connection
            .exec_first(statement, Params::Named(named.collect()))
            .await
            .unwrap()
            .unwrap()
    }

    async fn number(&mut self, query: &str) -> i64 {
        self.connection.query_first(query).await.unwrap().unwrap()
    }

    async fn end(self) {
        self.connection.disconnect().await.unwrap();
        self.two.present.release().await.unwrap();
        self.two.locker.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn c4_a_row_and_its_upsert_refuse_the_late_holder() {
    let mut database = Database::start(false).await;
    let [late, present] = database.two.tokens();
    assert!(late < present);
    let [table, update] = statements("### One row")[..] else { panic!("a table and an update") };
    let [upsert, _] = statements("### A row that may not be there yet")[..] else {
        panic!("an upsert")
    };
    database.run(table, &[]).await;
    let insert = |amount: i64, token: i64| {
        [("sku", "apple".into()), ("amount", amount.into()), ("token", token.into())]
    };
    let change = |change: i64, token: i64| {
        [("sku", "apple".into()), ("change", change.into()), ("token", token.into())]
    };
    assert_eq!(database.run(upsert, &insert(5, late)).await, 1);
    assert_eq!(database.run(update, &change(2, late)).await, 1);
    assert_eq!(database.run(update, &change(1, present)).await, 1);
    assert_eq!(
        database.run(update, &change(1, present)).await,
        1,
        "a holder writes more than once"
    );
    assert_eq!(database.run(update, &change(100, late)).await, 0);
    assert_eq!(database.run(upsert, &insert(100, late)).await, 0);
    assert_eq!(database.number("SELECT amount FROM stock").await, 9);
    assert_eq!(database.run(upsert, &insert(3, present)).await, 2);
    assert_eq!(database.number("SELECT amount FROM stock").await, 3);
    assert_eq!(database.number("SELECT token FROM stock").await, present);
    // The page warns of this case.
    assert_eq!(database.run(update, &change(0, present)).await, 0);
    database.end().await;
}

/// The counts of the upsert for an insert, a refused write, an update, and the same update again.
async fn counts_of_the_upsert(found_rows: bool) -> [u64; 4] {
    let mut database = Database::start(found_rows).await;
    let [late, present] = database.two.tokens();
    let [table, _] = statements("### One row")[..] else { panic!("a table and an update") };
    let [upsert, ask] = statements("### A row that may not be there yet")[..] else {
        panic!("an upsert, and how it went")
    };
    database.run(table, &[]).await;
    let mut counts = [0; 4];
    for (at, (amount, token)) in
        [(5, present), (100, late), (7, present), (7, present)].into_iter().enumerate()
    {
        database.run("START TRANSACTION", &[]).await;
        let values =
            [("sku", "apple".into()), ("amount", Value::from(amount)), ("token", token.into())];
        counts[at] = database.run(upsert, &values).await;
        let is_written =
            database.ask(ask, &[("sku", "apple".into()), ("token", token.into())]).await == 1;
        database.run("COMMIT", &[]).await;
        let amount_now = database.number("SELECT amount FROM stock").await;
        assert_eq!(
            (is_written, amount_now == amount),
            (token == present, token == present),
            "write {at}"
        );
    }
    database.end().await;
    counts
}

#[tokio::test]
async fn c4_a_refused_upsert_changes_no_row_but_counts_as_one_where_found_rows_count() {
    assert_eq!(counts_of_the_upsert(false).await, [1, 0, 2, 0]);
    // The page warns of this case: a refused write counts as an insert does.
    assert_eq!(counts_of_the_upsert(true).await, [1, 1, 2, 1]);
}

#[tokio::test]
async fn c11_the_fence_has_separate_rows_for_names_that_differ_in_case_or_a_blank() {
    let mut database = Database::start(false).await;
    let [late, present] = database.two.tokens();
    let [table, fence] = statements("### Several rows or tables")[..] else {
        panic!("a table and an update")
    };
    database.run(table, &[]).await;
    let long = "\u{1f512}".repeat(63) + "abc";
    let names = ["stock", "STOCK", "stock ", "stöck", &long];
    for name in names {
        let values = [("name", Value::from(name))];
        assert_eq!(
            database.run("INSERT INTO fence (name, token) VALUES (:name, 0)", &values).await,
            1
        );
    }
    let check = |name: &str, token: i64| [("name", Value::from(name)), ("token", token.into())];
    assert_eq!(database.run(fence, &check("stock", present)).await, 1);
    for name in &names[1..] {
        assert_eq!(database.run(fence, &check(name, late)).await, 1, "{name:?}");
    }
    assert_eq!(database.run(fence, &check("stock", late)).await, 0);
    database.end().await;
}

#[tokio::test]
async fn c4_a_transaction_that_begins_with_the_fence_refuses_the_late_holder() {
    let mut database = Database::start(false).await;
    let [late, present] = database.two.tokens();
    let [table, fence] = statements("### Several rows or tables")[..] else {
        panic!("a table and an update")
    };
    database.run(table, &[]).await;
    database.run("INSERT INTO fence (name, token) VALUES ('stock', 0)", &[]).await;
    for (token, passes) in [(late, 1), (late, 1), (present, 1), (present, 1), (late, 0)] {
        database.run("START TRANSACTION", &[]).await;
        let values = [("name", "stock".into()), ("token", token.into())];
        assert_eq!(database.run(fence, &values).await, passes, "{token} of {late} and {present}");
        database.run(if passes == 1 { "COMMIT" } else { "ROLLBACK" }, &[]).await;
    }
    database.end().await;
}

#[tokio::test]
async fn c4_a_script_on_redis_refuses_the_late_holder() {
    let server = RedisServer::start().unwrap();
    let two = Two::at(&server.url()).await;
    let [late, present] = two.tokens().map(|token| token.to_string());
    let write = |token: &str, value: &str| {
        server.ask(["EVAL", block("## Redis"), "1", "stock", token, value]).unwrap().text()
    };
    assert_eq!(write(&late, "1"), "1");
    assert_eq!(write(&late, "2"), "1", "a holder writes more than once");
    assert_eq!(write(&present, "3"), "1");
    assert_eq!(write(&late, "4"), "0");
    assert_eq!(server.ask(["HGET", "stock", "value"]).unwrap().text(), "3");
    two.present.release().await.unwrap();
    two.locker.shutdown().await.unwrap();
}
