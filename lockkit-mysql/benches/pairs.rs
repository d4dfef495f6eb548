//! Compares locks in MariaDB and MySQL with the same work through the bare driver, in turn. Some
//! servers leave a commit to the kernel (`innodb_flush_log_at_trx_commit=2`, "relaxed"). Others
//! write it to the disk first ("durable").
//!
//! `cargo bench -p lockkit-mysql --bench pairs -- mariadb relaxed own-names` runs a part of it. The
//! words are `mariadb` or `mysql`, `relaxed` or `durable`, and `own-names`, `one-name`, `classic`,
//! `row-locks`, `transfer`, `fairness`, `scale` or `forms`. `--quick` takes few rounds: enough to
//! see that it runs.

mod support {
    pub(crate) mod bare;
    pub(crate) mod classic;
    pub(crate) mod contender;
    pub(crate) mod fairness;
    pub(crate) mod figures;
    pub(crate) mod forms;
    pub(crate) mod one_name;
    pub(crate) mod own_names;
    pub(crate) mod row_locks;
    pub(crate) mod scale;
    pub(crate) mod sql;
    pub(crate) mod stage;
    pub(crate) mod transfer;
}

use lockkit_fixture::{SqlFlavor, SqlServer, mysql_is_there};
use support::{
    classic, fairness, forms, one_name, own_names, row_locks, scale, stage::Stage, transfer,
};

const PARTS: [&str; 8] =
    ["own-names", "one-name", "classic", "row-locks", "transfer", "fairness", "scale", "forms"];
const SERVERS: [(&str, SqlFlavor); 2] =
    [("mariadb", SqlFlavor::MariaDb), ("mysql", SqlFlavor::MySql)];
const DURABILITIES: [(&str, &str); 2] = [("relaxed", "2"), ("durable", "1")];

/// Whether a part is to be run: the arguments name it, or they name no part of its kind.
fn is_wanted(part: &str, kind: &[&str]) -> bool {
    let named: Vec<_> =
        std::env::args().skip(1).filter(|word| kind.contains(&word.as_str())).collect();
    named.is_empty() || named.iter().any(|word| word == part)
}

async fn all(stage: &Stage) {
    println!("\n== {}", stage.describe().await);
    if is_wanted("own-names", &PARTS) {
        own_names::compare(stage).await;
    }
    if is_wanted("one-name", &PARTS) {
        one_name::compare(stage).await;
    }
    if is_wanted("classic", &PARTS) {
        classic::compare(stage).await;
    }
    if is_wanted("row-locks", &PARTS) {
        row_locks::compare(stage).await;
    }
    if is_wanted("transfer", &PARTS) {
        transfer::compare(stage).await;
    }
    if is_wanted("fairness", &PARTS) {
        fairness::measure(stage).await;
    }
    if is_wanted("scale", &PARTS) {
        scale::measure(stage).await;
    }
    // This measures the processor, not the disk.
    if is_wanted("forms", &PARTS) && !stage.is_durable {
        forms::compare(stage).await;
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (durability, flush) in DURABILITIES {
        for (name, flavor) in SERVERS {
            let kinds = (DURABILITIES.map(|kind| kind.0), SERVERS.map(|kind| kind.0));
            if !is_wanted(durability, &kinds.0) || !is_wanted(name, &kinds.1) {
                continue;
            }
            if flavor == SqlFlavor::MySql
                && let Err(reason) = mysql_is_there()
            {
                println!("\n== mysql is not measured: {reason}");
                continue;
            }
            let flush = format!("--innodb-flush-log-at-trx-commit={flush}");
            let stage = Stage::new(
                durability == "durable",
                SqlServer::start_with(flavor, [flush]).unwrap(),
            );
            runtime.block_on(all(&stage));
        }
    }
}
