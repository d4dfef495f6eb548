//! Tests of the diagnosis of a server's settings.

use lockkit_core::spi::{Admin as _, Severity};
use lockkit_fixture::SqlFlavor;

use crate::support::*;

on_both!(c14_a_server_that_flushes_late_is_reported,);

async fn c14_a_server_that_flushes_late_is_reported(flavor: SqlFlavor) {
    for (argument, strategy, wanted) in
        [("1", "optimistic", Severity::Good), ("2", "pessimistic", Severity::Weak)]
    {
        let bed = Bed::own(flavor, &[&format!("--innodb-flush-log-at-trx-commit={argument}")]);
        let backend = bed.connect(&format!("strategy={strategy}")).await;
        let diagnostics = backend.diagnose().await.unwrap();
        let severity = |what| {
            diagnostics
                .iter()
                .find(|diagnostic| diagnostic.what == what)
                .map(|diagnostic| diagnostic.severity)
        };
        assert_eq!(severity("innodb_flush_log_at_trx_commit"), Some(wanted), "{diagnostics:?}");
        assert!(
            severity("version").is_some() && severity("max_connections") == Some(Severity::Good),
            "{diagnostics:?}"
        );
        assert!(
            matches!(severity("replication"), Some(Severity::Note | Severity::Unknown)),
            "{diagnostics:?}"
        );
    }
}
