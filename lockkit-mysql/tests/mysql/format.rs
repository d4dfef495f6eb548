//! Tests with the tables of other versions. Those of 0.1.0 are read and written, and those of newer
//! versions are left alone.

use std::num::NonZeroU32;

use lockkit_core::{
    ErrorKind, FencingToken, Kind,
    spi::{Admin as _, Backend as _, Mode, Note, Noted, Released, Wait},
};
use lockkit_fixture::SqlFlavor;
use lockkit_mysql::mysql_async::Row;

use crate::support::*;

on_both!(
    c1_c4_c14_data_of_0_1_0_is_read_and_respected_and_tokens_rise,
    c1_stored_data_has_the_format_of_0_1_0,
    c13_nothing_is_added_to_data_of_a_newer_lockkit,
    c13_no_table_is_created_if_the_maker_of_the_others_is_unknown,
);

/// Tables and rows as 0.1.0 makes them, except that the times are past 2100.
const STORED: &str = include_str!("format/stored-1.sql");
const TABLES: [&str; 4] = ["meta", "note", "lock", "holder"];
/// The last token of the rows.
const LAST: u64 = 4_102_444_800_000_007;

fn two_of_three() -> Mode {
    let number = |n| NonZeroU32::new(n).unwrap();
    Mode::Permits { count: number(2), limit: number(3) }
}

/// A kind, the mode in which its lock is held, its owner, and the mode that a newcomer wants.
fn held() -> [(Kind, Mode, u128, Mode); 3] {
    [
        (Kind::Mutex, Mode::Exclusive, 0xa1, Mode::Exclusive),
        (Kind::RwLock, Mode::Shared, 0xb1, Mode::Exclusive),
        (Kind::Semaphore, two_of_three(), 0xc1, two_of_three()),
    ]
}

impl Bed {
    async fn load(&self, admin: &mut Admin) {
        for statement in STORED.split(";\n").filter(|statement| !statement.trim().is_empty()) {
            admin.run(statement.replace("`lockkit_", &format!("lockkit.`{}_", self.prefix))).await;
        }
    }

    /// The columns of a table, and its rows.
    async fn dump(&self, admin: &mut Admin, table: &str) -> Vec<String> {
        let columns = format!(
            "SELECT COLUMN_NAME,COLUMN_TYPE,IS_NULLABLE,COALESCE(COLUMN_DEFAULT,''),COLUMN_KEY FROM \
             information_schema.COLUMNS WHERE TABLE_SCHEMA='lockkit' AND TABLE_NAME='{}_{table}' ORDER BY ORDINAL_POSITION",
            self.prefix
        );
        let key = if table == "meta" { "id" } else { "kind,name" };
        let content = format!("SELECT * FROM lockkit.{} ORDER BY {key}", self.table(table));
        let mut lines = Vec::new();
        for question in [columns, content] {
            for row in admin.all::<Row>(&question).await {
                let values = row.unwrap().into_iter().map(|value| value.as_sql(true));
                lines.push(format!("{table}: {}", values.collect::<Vec<_>>().join(" ")));
            }
        }
        lines
    }
}

async fn c1_c4_c14_data_of_0_1_0_is_read_and_respected_and_tokens_rise(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    bed.load(&mut admin).await;
    let backend = bed.connect(QUIET).await;
    assert_eq!(
        backend.note(&mutex("orders")).await.unwrap(),
        Note::new(7, "up-to-4711".to_owned())
    );
    for (kind, mode, owner, wanted) in held() {
        let mut newcomer = claim_in(&backend, kind, "orders", wanted);
        busy(newcomer.attempt(Wait::Queue).await);
        let name = lockkit_core::LockName::new(kind, "orders").unwrap();
        let seen = backend.inspect(&name).await.unwrap();
        let [holder] = &seen.holders[..] else { panic!("{seen:?}") };
        assert_eq!((holder.owner, holder.mode), (Some(lockkit_core::OwnerId::new(owner)), mode));
        assert_eq!(
            (holder.token, holder.label.as_deref()),
            (Some(FencingToken::new(LAST)), Some("host-1"))
        );
        let freed = backend.force_release(&name, FencingToken::new(LAST)).await.unwrap();
        assert_eq!(freed, Released::Freed);
        assert_eq!(granted(newcomer.attempt(Wait::No).await).token.get(), LAST + 1);
        assert_eq!(newcomer.release().await.unwrap(), Released::Freed);
    }
}

/// If you change what is stored, you have to change this test, and then need a new format: see
/// docs/operations.md.
async fn c1_stored_data_has_the_format_of_0_1_0(flavor: SqlFlavor) {
    let old = Bed::shared(flavor);
    let new = Bed::shared(flavor);
    let mut admin = old.admin().await;
    old.load(&mut admin).await;
    let backend = new.connect(QUIET).await;
    let mut all = Vec::new();
    for (kind, mode, _, _) in held() {
        let mut spec = spec("orders");
        (spec.name, spec.mode) = (lockkit_core::LockName::new(kind, "orders").unwrap(), mode);
        spec.label = Some("host-1".into());
        let mut holder = backend.claim(spec).unwrap();
        granted(holder.attempt(Wait::No).await);
        if kind == Kind::Mutex {
            let note = Note::new(7, "up-to-4711".to_owned());
            assert_eq!(holder.write_note(&note).await.unwrap(), Noted::Written);
        }
        all.push(holder);
    }
    for table in TABLES {
        let known = old.dump(&mut admin, table).await;
        let now = new.dump(&mut admin, table).await;
        assert!(known.len() > 4, "{known:?}");
        assert_eq!(shapes(&now), shapes(&known));
    }
}

/// Catches tables of this format that are made beside those of a newer one, such as a table that
/// the newer format does without.
async fn c13_nothing_is_added_to_data_of_a_newer_lockkit(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    bed.load(&mut admin).await;
    admin.run(format!("UPDATE lockkit.{} SET version=2,compatible=2", bed.table("meta"))).await;
    admin.run(format!("DROP TABLE lockkit.{}", bed.table("note"))).await;
    let mut before = Vec::new();
    for table in ["meta", "lock", "holder"] {
        before.push(bed.dump(&mut admin, table).await);
    }
    for query in ["", "strategy=pessimistic", "create_table=false"] {
        let error = refused(&bed.url(query)).await;
        assert_eq!(error.kind(), ErrorKind::NewerFormat, "{error}");
        assert!(error.to_string().contains("a newer lockkit wrote"), "{error}");
    }
    let made = format!(
        "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='lockkit' AND TABLE_NAME LIKE '{}%'",
        bed.prefix
    );
    assert_eq!(admin.one::<u64>(made).await, 3);
    for (table, before) in ["meta", "lock", "holder"].into_iter().zip(before) {
        assert_eq!(bed.dump(&mut admin, table).await, before);
    }
}

/// The row is there, but can't be read.
async fn c13_no_table_is_created_if_the_maker_of_the_others_is_unknown(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    let columns =
        "1 AS id,'optimistic' AS strategy,2 AS version,(SELECT 1 UNION SELECT 2) AS compatible";
    admin.run(format!("CREATE VIEW lockkit.{} AS SELECT {columns}", bed.table("meta"))).await;
    let error = refused(&bed.url("")).await;
    let made = format!(
        "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='lockkit' AND TABLE_NAME LIKE '{}%'",
        bed.prefix
    );
    assert_eq!(admin.one::<u64>(made).await, 1, "{error}");
}

/// Replaces times and ids, because only their lengths count.
fn shapes(lines: &[String]) -> Vec<String> {
    let shape = |line: &String| {
        let words = line.split(' ').map(|word| match word.trim_matches('\'').len() {
            32 => "<id>",
            16 if word.trim_matches('\'').bytes().all(|b| b.is_ascii_digit()) => "<time>",
            _ => word,
        });
        words.collect::<Vec<_>>().join(" ")
    };
    lines.iter().map(shape).collect()
}
