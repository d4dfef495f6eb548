//! The report on the shape of an ensemble.

use lockkit_core::spi::{Admin as _, Severity};

use crate::support::*;

#[tokio::test]
async fn c14_one_server_whose_bounds_changed_the_timeout_is_reported() {
    let bed = Bed::shared();
    for (query, timeout) in [
        ("session_timeout=1m&connect_timeout=13s", Severity::Good),
        ("session_timeout=20m&connect_timeout=60s", Severity::Note),
    ] {
        let diagnostics = bed.connect(query).await.diagnose().await.unwrap();
        let marks: Vec<_> =
            diagnostics.iter().map(|diagnostic| (&*diagnostic.what, diagnostic.severity)).collect();
        let wanted = [
            ("ensemble", Severity::Note),
            ("session timeout", timeout),
            ("heartbeat", Severity::Good),
            ("acl", Severity::Note),
        ];
        assert_eq!(marks, wanted, "{query}: {diagnostics:?}");
    }
}
