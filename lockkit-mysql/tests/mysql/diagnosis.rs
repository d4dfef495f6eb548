//! What a server's settings are worth.

use lockkit_core::spi::{Admin as _, Grade};
use lockkit_fixture::SqlFlavor;

use crate::support::*;

on_both!(c14_a_server_that_flushes_late_is_told,);

async fn c14_a_server_that_flushes_late_is_told(flavor: SqlFlavor) {
    for (argument, strategy, wanted) in
        [("1", "optimistic", Grade::Good), ("2", "pessimistic", Grade::Weak)]
    {
        let bed = Bed::own(flavor, &[&format!("--innodb-flush-log-at-trx-commit={argument}")]);
        let backend = bed.connect(&format!("strategy={strategy}")).await;
        let findings = backend.diagnose().await.unwrap();
        let grade = |what| {
            findings.iter().find(|finding| finding.what == what).map(|finding| finding.grade)
        };
        assert_eq!(grade("innodb_flush_log_at_trx_commit"), Some(wanted), "{findings:?}");
        assert!(
            grade("version").is_some() && grade("max_connections") == Some(Grade::Good),
            "{findings:?}"
        );
        assert!(matches!(grade("replication"), Some(Grade::Note | Grade::Unknown)), "{findings:?}");
    }
}
