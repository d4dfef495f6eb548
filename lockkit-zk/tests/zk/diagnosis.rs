//! What the shape of an ensemble is worth.

use lockkit_core::spi::{Admin as _, Grade};

use crate::support::*;

#[tokio::test]
async fn c14_one_server_whose_bounds_changed_the_timeout_is_told() {
    let bed = Bed::shared();
    for (query, timeout) in
        [("session_timeout=5s", Grade::Good), ("session_timeout=20m", Grade::Note)]
    {
        let findings = bed.connect(query).await.diagnose().await.unwrap();
        let marks: Vec<_> =
            findings.iter().map(|finding| (&*finding.what, finding.grade)).collect();
        let wanted = [
            ("ensemble", Grade::Note),
            ("session timeout", timeout),
            ("heartbeat", Grade::Good),
            ("acl", Grade::Note),
        ];
        assert_eq!(marks, wanted, "{query}: {findings:?}");
    }
}
