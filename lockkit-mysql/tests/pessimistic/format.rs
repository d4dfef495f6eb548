//! Tests that this version reads and writes what 0.1.0 has stored.

use lockkit_core::spi::{Backend as _, Released, Wait};

use crate::support::*;

on_both! {
    c1_c4_data_of_0_1_0_is_read_tokens_rise_and_it_gets_the_present_format,
}

const STORED: &str = include_str!("format/stored-1.sql");
const TABLES: [&str; 4] = ["meta", "note", "row", "fence"];
/// The last token of the rows.
const LAST: u64 = 4_102_444_800_000_007;

impl Store {
    /// The form of each column of a table.
    async fn form(&self, table: &str) -> String {
        let question = format!(
            "SELECT GROUP_CONCAT(CONCAT_WS(' ',COLUMN_NAME,COLUMN_TYPE,IS_NULLABLE,COLUMN_DEFAULT,COLUMN_KEY) \
             ORDER BY ORDINAL_POSITION) FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA='lockkit' AND TABLE_NAME='lockkit_{table}'"
        );
        self.admin.ask(&question).await
    }

    /// The stored values of a name.
    async fn entered(&self) -> (String, String) {
        let question = "SELECT strategy,CONCAT_WS(' ',version,compatible,(SELECT COUNT(*) FROM lockkit_row \
                        WHERE kind='mutex' AND name='orders'),LENGTH(owner),LENGTH(fence),LENGTH(acquired_us),label) \
                        FROM lockkit_meta JOIN lockkit_fence WHERE kind='mutex' AND name='orders'";
        self.admin.ask(question).await
    }
}

/// If you change what is stored, you have to change this test, and then need a new format: see
/// docs/operations.md.
async fn c1_c4_data_of_0_1_0_is_read_tokens_rise_and_it_gets_the_present_format(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut spec = spec_for("orders", TTL);
    spec.label = Some("host-1".into());
    let mut claim = store.mysql.claim(spec).unwrap();
    granted(claim.attempt(Wait::No).await);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    let mut today = vec![store.entered().await.0, store.entered().await.1];
    for table in TABLES {
        today.push(store.form(table).await);
        store.admin.run(&format!("DROP TABLE lockkit_{table}")).await;
    }
    for statement in STORED.split(";\n").filter(|statement| !statement.trim().is_empty()) {
        store.admin.run(statement).await;
    }
    let mut stored = vec![store.entered().await.0, store.entered().await.1];
    for table in TABLES {
        stored.push(store.form(table).await);
    }
    assert_eq!(today, stored);
    let mysql = store.another().await;
    assert!(mysql.inspect(&mutex("orders")).await.unwrap().holders.is_empty());
    let mut claim = mysql.claim(spec_for("orders", TTL)).unwrap();
    assert_eq!(granted(claim.attempt(Wait::No).await).token.get(), LAST + 1);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}
