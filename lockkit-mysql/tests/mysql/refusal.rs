//! Tests of servers, users and tables that can't be used. Each has an error of its own, and no
//! error shows a password.

use std::time::Duration;

use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockOptions, Renewal,
    spi::{
        Admin as _, Backend as _, Mode, Note, Noted, QueuePolicy, Released, RenewalOutcome, Wait,
    },
};
use lockkit_fixture::{SqlFlavor, claims::given_up};
use lockkit_mysql::{
    Config, Strategy,
    mysql_async::{Conn, Opts},
    schema,
};

use crate::support::*;

on_both!(
    c13_a_read_only_server_is_refused,
    c13_a_demoted_server_is_named_and_used_again_after_it,
    c13_the_error_for_a_user_without_create_names_the_statement_to_run,
    c13_a_user_with_four_rights_on_existing_tables_is_enough,
    c13_missing_tables_are_shown_where_none_may_be_made,
    c1_a_demoted_server_grants_nothing_to_users_who_may_write_to_it,
    c13_tables_of_another_form_are_refused,
    c1_c11_tables_in_which_two_names_or_owners_could_be_one_are_refused,
    c5_autocommit_is_on_again_after_a_transaction_and_after_a_lost_race,
    c1_a_prefix_of_the_other_strategy_is_refused,
    c13_newer_tables_are_refused_unless_they_say_that_they_are_compatible,
    c13_a_full_server_is_unavailable_and_used_again_after_it,
    c13_bad_credentials_and_addresses_have_kinds_and_hide_the_password,
);

const PASSWORD: &str = "s3cr3t-word";

impl Bed {
    /// The URL of a new user with rights on the database of the tests.
    pub(crate) async fn user(&self, admin: &mut Admin, grants: &[&str]) -> String {
        let user = format!("u{:08x}", rand::random::<u32>());
        admin.run(format!("CREATE USER {user}@'%' IDENTIFIED BY '{PASSWORD}'")).await;
        for grant in grants {
            admin.run(format!("GRANT {grant} TO {user}@'%'")).await;
        }
        self.url_as(&user, PASSWORD, "")
    }
}

async fn c13_a_read_only_server_is_refused(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &["--read-only=1"]);
    let error = refused(&bed.url("")).await;
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains("read_only"), "{error}");
    // The server is also refused for users who may write to it. Its primary would overwrite their
    // changes, or the server would differ from its primary.
    let error = refused(&bed.with_prefix(&bed.server.admin_url(), "")).await;
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
}

async fn c13_a_demoted_server_is_named_and_used_again_after_it(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let locker = bed.locker("").await;
    let mut admin = bed.admin().await;
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    // A release that is refused is repeated for as long as one request may take.
    let manual = LockOptions::new()
        .with_renewal(Renewal::Manual)
        .with_ttl(SHORT * 3)
        .with_op_timeout(SHORT / 3);
    let given_up = locker.mutex("c").unwrap().with_options(manual).unwrap().lock().await.unwrap();
    admin.run("SET GLOBAL read_only=1").await;
    let error = locker.mutex("b").unwrap().try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    let error = guard.renew().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(guard.is_held(), "an unknown renewal ends nothing");
    // The background task repeats the release for as long as the lease may live.
    let error = given_up.release().await.unwrap_err();
    assert!(error.is_temporary() || error.is_outcome_unknown(), "{error}");
    admin.run("SET GLOBAL read_only=0").await;
    guard.renew().await.unwrap();
    drop(locker.mutex("b").unwrap().try_lock().await.unwrap().unwrap());
    drop(
        within(SOON, "the end of a lease, or its release", locker.mutex("c").unwrap().lock())
            .await
            .unwrap(),
    );
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// Catches any path on which a server that is no primary grants, renews or reports a lock, because
/// the user may bypass `read_only`. The new primary does not know that lock.
async fn c1_a_demoted_server_grants_nothing_to_users_who_may_write_to_it(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let backend = connect(&bed.with_prefix(&bed.server.admin_url(), QUIET)).await.unwrap();
    let mut mutex_holder = claim(&backend, "held");
    let token = granted(mutex_holder.attempt(Wait::No).await).token;
    let read = |name| claim_in(&backend, Kind::RwLock, name, Mode::Shared);
    let write = |name| claim_in(&backend, Kind::RwLock, name, Mode::Exclusive);
    let mut reader = read("held");
    granted(reader.attempt(Wait::No).await);
    next_token(&backend, "known").await;
    admin.run("SET GLOBAL read_only=1").await;
    let mut newcomers = [claim(&backend, "held"), claim(&backend, "known"), claim(&backend, "new")];
    let mut others = [read("held"), write("held"), write("new")];
    for newcomer in newcomers.iter_mut().chain(&mut others) {
        assert_demoted(newcomer.attempt(Wait::No).await);
    }
    for holder in [&mut mutex_holder, &mut reader] {
        assert_demoted(holder.renew(None).await);
        assert_demoted(holder.renew(Some(TTL * 2)).await);
        assert_demoted(holder.raise_token(FencingToken::new(token.get() + 1_000_000)).await);
    }
    assert_demoted(mutex_holder.write_note(&Note::new(1, "a".to_owned())).await);
    assert_demoted(mutex_holder.transfer(&spec("held"), QueuePolicy::TransferFirst).await);
    assert_demoted(mutex_holder.transfer(&spec("held"), QueuePolicy::QueueFirst).await);
    assert_demoted(backend.inspect(&mutex("held")).await);
    assert_demoted(backend.names(Kind::Mutex, "").await);
    assert_demoted(backend.force_release(&mutex("held"), token).await);
    let granted_since = format!("SELECT COUNT(*) FROM {} WHERE fence>{token}", bed.table("lock"));
    assert_eq!(
        admin.one::<u64>(&granted_since).await,
        2,
        "the rows of the reader and of the known name"
    );
    admin.run("SET GLOBAL read_only=0").await;
    for holder in [&mut mutex_holder, &mut reader] {
        assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
    }
    next_token(&backend, "new").await;
}

#[track_caller]
fn assert_demoted<T: std::fmt::Debug>(answer: lockkit_core::Result<T>) {
    let error = answer.expect_err("a demoted server has answered");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(!error.is_outcome_unknown(), "{error}");
}

async fn c13_the_error_for_a_user_without_create_names_the_statement_to_run(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    admin.run("CREATE TABLE IF NOT EXISTS other(id INT PRIMARY KEY)").await;
    for grants in [&["SELECT,INSERT,UPDATE,DELETE ON lockkit.*"][..], &["SELECT ON lockkit.other"]]
    {
        let url = bed.user(&mut admin, grants).await;
        let error = refused(&url).await;
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        let text = error.to_string();
        for table in ["meta", "note", "lock", "holder"] {
            assert!(
                text.contains(&format!("CREATE TABLE IF NOT EXISTS {}", bed.table(table))),
                "{text}"
            );
        }
        assert!(!text.contains('\n') && !texts(&error).contains(PASSWORD), "{}", texts(&error));
    }
    // Without any right, the user can't open the database.
    let url = bed.user(&mut admin, &[]).await;
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    // The statements in the error solve the problem.
    let url = bed.user(&mut admin, &["SELECT,INSERT,UPDATE,DELETE ON lockkit.*"]).await;
    let text = refused(&url).await.to_string();
    let (_, sql) = text.split_once("run: ").unwrap();
    let sql = sql.split_once(", caused by").map_or(sql, |(sql, _)| sql);
    for statement in sql.split(';').filter(|statement| !statement.trim().is_empty()) {
        admin.run(statement).await;
    }
    next_token(&connect(&url).await.unwrap(), "a").await;
}

/// Catches any statement that needs more, such as a lock on a table, or a right on all databases.
async fn c13_a_user_with_four_rights_on_existing_tables_is_enough(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    bed.connect("").await;
    let grants = ["meta", "note", "lock", "holder"]
        .map(|t| format!("SELECT,INSERT,UPDATE,DELETE ON {}", bed.table(t)));
    let url = bed.user(&mut admin, &grants.each_ref().map(String::as_str)).await;
    for query in ["", "&create_table=false"] {
        let backend = connect(&format!("{url}{query}")).await.unwrap();
        next_token(&backend, "a").await;
        backend.collect_garbage().await.unwrap();
        let locker = locker(backend);
        let lock = locker.rw_lock("a").unwrap();
        let reader = lock.read().await.unwrap();
        assert!(lock.try_write().await.unwrap().is_none());
        // The user needs KILL for its own connections only.
        let bound = Duration::from_millis(50);
        let kind = async || match lock.write_timeout(bound).await {
            Err(error) if error.kind() == ErrorKind::Timeout => Ok(error.kind()),
            answer => answer.map(|guard| panic!("{guard:?} beside a reader")),
        };
        assert_eq!(persistently(kind).await, ErrorKind::Timeout);
        reader.renew().await.unwrap();
        let forced = lock.force_release(reader.fencing_token()).await.unwrap();
        assert_eq!(forced, Released::Freed);
        drop(reader);
        locker.semaphore("a", 2).unwrap().acquire().await.unwrap().release().await.unwrap();
        locker.shutdown().await.unwrap();
    }
}

async fn c13_missing_tables_are_shown_where_none_may_be_made(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let error = refused(&bed.url("create_table=false")).await;
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let sql = words(&schema::sql(Strategy::Optimistic, &bed.prefix));
    assert!(error.to_string().contains(&sql), "{error}");
    let mut admin = bed.admin().await;
    let made = format!(
        "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME LIKE '{}%'",
        bed.prefix
    );
    assert_eq!(admin.one::<u64>(made).await, 0);
    for statement in sql.split(';').filter(|statement| !statement.trim().is_empty()) {
        admin.run(statement).await;
    }
    next_token(&bed.connect("create_table=false").await, "a").await;
}

async fn c13_tables_of_another_form_are_refused(flavor: SqlFlavor) {
    let wrong = [
        ("lock", "DROP COLUMN label", "run: CREATE TABLE"),
        ("holder", "DROP COLUMN mode", "run: CREATE TABLE"),
        ("note", "DROP COLUMN content", "run: CREATE TABLE"),
        ("lock", "RENAME TO lost_", "run: CREATE TABLE"),
        ("lock", "ENGINE=MyISAM", "ENGINE=InnoDB"),
        ("holder", "ENGINE=MEMORY", "ENGINE=InnoDB"),
        ("note", "ENGINE=MyISAM", "ENGINE=InnoDB"),
    ];
    for (table, change, advice) in wrong {
        let bed = Bed::shared(flavor);
        bed.connect("").await;
        let change = change.replace("lost_", &format!("lost_{}", bed.prefix));
        bed.admin().await.run(format!("ALTER TABLE {} {change}", bed.table(table))).await;
        let error = refused(&bed.url("")).await;
        assert_eq!(error.kind(), ErrorKind::WrongType, "{change}: {error}");
        assert!(error.to_string().contains(advice), "{change}: {error}");
    }
}

/// Each table that is made wrong, the change, and the statement that the error advises.
const WRONG_TABLES: [(&str, &str, &str); 11] = [
    ("lock", "DROP PRIMARY KEY", "ADD PRIMARY KEY (kind,name)"),
    ("note", "DROP PRIMARY KEY", "ADD PRIMARY KEY (kind,name)"),
    ("holder", "DROP PRIMARY KEY", "ADD PRIMARY KEY (kind,name,owner)"),
    ("holder", "DROP PRIMARY KEY,ADD PRIMARY KEY (kind,name)", "ADD PRIMARY KEY (kind,name,owner)"),
    ("lock", "DROP PRIMARY KEY,ADD PRIMARY KEY (kind,name(10))", "ADD PRIMARY KEY (kind,name)"),
    ("lock", "DROP PRIMARY KEY,ADD PRIMARY KEY (kind,name,owner)", "ADD PRIMARY KEY (kind,name)"),
    ("lock", "MODIFY name VARCHAR(255) NOT NULL", "MODIFY name VARBINARY(255) NOT NULL"),
    (
        "lock",
        "MODIFY name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL",
        "MODIFY name VARBINARY(255) NOT NULL",
    ),
    ("note", "MODIFY name BINARY(255) NOT NULL", "MODIFY name VARBINARY(255) NOT NULL"),
    ("lock", "MODIFY kind VARCHAR(16) NOT NULL", "MODIFY kind VARBINARY(16) NOT NULL"),
    ("holder", "MODIFY owner VARCHAR(64) NOT NULL", "MODIFY owner VARBINARY(64) NOT NULL"),
];

/// Catches a check that looks only at the names of columns. Without its key, a table has several
/// rows for a name, and each of them is granted. Columns that are compared as text make one lock of
/// several names.
async fn c1_c11_tables_in_which_two_names_or_owners_could_be_one_are_refused(flavor: SqlFlavor) {
    let mut accepted = Vec::new();
    for (table, change, advice) in WRONG_TABLES {
        let bed = Bed::shared(flavor);
        bed.connect("").await;
        let mut admin = bed.admin().await;
        admin.run(format!("ALTER TABLE {} {change}", bed.table(table))).await;
        let Err(error) = connect(&bed.url("")).await else {
            accepted.push(format!("{table}: {change}"));
            continue;
        };
        assert_eq!(error.kind(), ErrorKind::WrongType, "{change}: {error}");
        assert!(error.to_string().contains(advice), "{change}: {error}");
        // The statements in the error solve the problem.
        let text = error.to_string();
        let (_, statement) = text.split_once("run: ").unwrap();
        let statement =
            statement.split_once(", caused by").map_or(statement, |(statement, _)| statement);
        admin.run(statement).await;
        next_token(&bed.connect("").await, "a").await;
    }
    assert!(accepted.is_empty(), "accepted: {accepted:#?}");
}

/// Catches a transaction that leaves its session without autocommit. The next grant on that
/// connection is never committed, and another owner is granted the lock, too.
async fn c5_autocommit_is_on_again_after_a_transaction_and_after_a_lost_race(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect("pool_size=1").await;
    let mut admin = bed.admin().await;
    let mut locked = bed.admin().await;
    let mut reader = claim_in(&backend, Kind::RwLock, "a", Mode::Shared);
    let mut holder = claim(&backend, "a");
    let committed = format!(
        "SELECT COUNT(*) FROM {} WHERE kind='mutex' AND expires_us>{NOW}",
        bed.table("lock")
    );
    for race in [false, true] {
        if race {
            locked.run("BEGIN").await;
            locked
                .run(format!("SELECT 1 FROM {} WHERE kind='rwlock' FOR UPDATE", bed.table("lock")))
                .await;
            busy(reader.attempt(Wait::No).await);
            locked.run("COMMIT").await;
        } else {
            granted(reader.attempt(Wait::No).await);
            reader.raise_token(FencingToken::new(1)).await.unwrap();
            given_up(reader.release()).await;
        }
        granted(holder.attempt(Wait::No).await);
        assert_eq!(admin.one::<u64>(&committed).await, 1, "after a lost race: {race}");
        let note = Note::new(1 + u64::from(race), "a".to_owned());
        assert_eq!(holder.write_note(&note).await.unwrap(), Noted::Written);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        assert_eq!(admin.one::<u64>(&committed).await, 0, "after a lost race: {race}");
    }
}

async fn c1_a_prefix_of_the_other_strategy_is_refused(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    bed.connect("").await;
    let mut admin = bed.admin().await;
    for other in ["pessimistic", "pessimistic-strict", "something new"] {
        admin.run(format!("UPDATE {} SET strategy='{other}'", bed.table("meta"))).await;
        let error = refused(&bed.url("")).await;
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        let text = error.to_string();
        assert!(
            text.contains(other) && text.contains("optimistic") && text.contains("table_prefix"),
            "{text}"
        );
    }
    admin.run(format!("UPDATE {} SET strategy='optimistic'", bed.table("meta"))).await;
    bed.connect("").await;
    let error = refused(&bed.url("strategy=pessimistic")).await;
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
}

async fn c13_newer_tables_are_refused_unless_they_say_that_they_are_compatible(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    bed.connect("").await;
    let mut admin = bed.admin().await;
    admin.run(format!("UPDATE {} SET version=2,compatible=2", bed.table("meta"))).await;
    let error = refused(&bed.url("")).await;
    assert_eq!(error.kind(), ErrorKind::NewerFormat, "{error}");
    assert!(error.to_string().contains("a newer lockkit wrote"), "{error}");
    admin.run(format!("UPDATE {} SET version=2,compatible=1", bed.table("meta"))).await;
    next_token(&bed.connect("").await, "a").await;
    let kept: (u32, u32) =
        admin.one(format!("SELECT version,compatible FROM {}", bed.table("meta"))).await;
    assert_eq!(kept, (2, 1));
}

async fn c13_a_full_server_is_unavailable_and_used_again_after_it(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &["--max-connections=12"]);
    let locker = bed.locker("pool_size=3").await;
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    let mut others = Vec::new();
    let mut refusal = None;
    // A connection that ends meanwhile leaves room for another one.
    until("the server is full", async || {
        while let Ok(conn) = Conn::new(Opts::from_url(&bed.server.url()).unwrap()).await {
            others.push(conn);
        }
        refusal = connect(&bed.url("")).await.err();
        refusal.is_some()
    })
    .await;
    let error = refusal.unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("max_connections") && error.is_temporary(), "{error}");
    // The open connection still serves one task after the other. Several tasks at once need more
    // connections.
    guard.renew().await.unwrap();
    let all: Vec<_> = (0..6).map(|number| locker.mutex(&format!("{number}")).unwrap()).collect();
    let answers = futures_util::future::join_all(all.iter().map(|lock| lock.try_lock())).await;
    for error in answers.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    for conn in others {
        conn.disconnect().await.unwrap();
    }
    for lock in &all {
        within(SOON, "a lock", lock.lock()).await.unwrap().release().await.unwrap();
    }
    assert!(guard.is_held());
}

async fn c13_bad_credentials_and_addresses_have_kinds_and_hide_the_password(flavor: SqlFlavor) {
    use ErrorKind as K;
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    let known = bed.user(&mut admin, &["ALL ON lockkit.*"]).await;
    let at = |addr: &str| known.replace(&bed.addr().to_string(), addr);
    let cases = [
        (known.replace(PASSWORD, "s3cr3t-word-not"), K::Authentication),
        (bed.url_as("nobody", PASSWORD, ""), K::Authentication),
        (bed.url_as("root", PASSWORD, ""), K::Authentication),
        (known.replace("/lockkit?", "/not_there?"), K::PermissionDenied),
        (
            bed.with_prefix(&bed.server.admin_url().replace("/lockkit", "/not_there"), ""),
            K::InvalidUrl,
        ),
        (known.replace("/lockkit?", "/?"), K::InvalidUrl),
        (known.replace("/lockkit?", "?"), K::InvalidUrl),
        (at("127.0.0.1:0"), K::InvalidUrl),
        (at("127.0.0.1:1"), K::Unavailable),
        (at("host.invalid:3306"), K::Unavailable),
        (at("127.0.0.1:1,127.0.0.1:2"), K::Unsupported),
        (format!("{known}&pool_size=0"), K::InvalidOption),
        (format!("{known}&pool_size=many"), K::InvalidUrl),
        (format!("{known}&pool_szie=3"), K::UnknownParameter),
        (format!("{known}&strategy=hopeful"), K::InvalidUrl),
        (format!("{known}&strict_lease=true"), K::InvalidOption),
        (known.replace("table_prefix=t", "table_prefix=t`t"), K::InvalidOption),
        (
            known.replace("mysql://", "mysqls://"),
            if cfg!(feature = "tls") { K::Unsupported } else { K::MissingFeature },
        ),
    ];
    for (url, kind) in cases {
        let error = within(SOON, "a refusal", refused(&url)).await;
        let shown = texts(&error);
        if !url.starts_with("mysqls://") || cfg!(not(feature = "tls")) {
            assert_eq!(error.kind(), kind, "{url}: {error}");
        }
        for secret in [PASSWORD, "r@@t/all", "r%40%40t"] {
            assert!(!shown.contains(secret), "{url}: {shown}");
        }
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    // Values that work do not show the password either.
    let config = Config::from_url(lockkit_core::url::StoreUrl::parse(&known).unwrap()).unwrap();
    let backend = connect(&known).await.unwrap();
    let mut claim = claim(&backend, "a");
    granted(claim.attempt(Wait::No).await);
    let shown = format!("{config:?} {config:#?} {backend:?} {claim:?}");
    assert!(!shown.contains(PASSWORD), "{shown}");
    let locker = locker(backend);
    assert!(!format!("{locker:?} {:?}", locker.mutex("a").unwrap()).contains(PASSWORD));
}
