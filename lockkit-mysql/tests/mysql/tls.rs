//! Tests of encrypted connections, and of servers that can't prove who they are.

use std::sync::Arc;

use lockkit_core::{ErrorKind, spi::Backend as _};
use lockkit_fixture::{SqlFlavor, SqlServer};

use crate::support::*;

on_both!(
    tls_carries_a_user_who_must_have_it,
    c13_an_untrusted_certificate_is_refused,
    c13_files_that_are_not_there_are_named,
);

fn bed(flavor: SqlFlavor) -> Bed {
    Bed::on(Arc::new(SqlServer::start_with_tls(flavor).unwrap()))
}

fn tls(url: &str) -> String {
    url.replace("mysql://", "mysqls://")
}

/// Catches a scheme that is read and does nothing.
async fn tls_carries_a_user_who_must_have_it(flavor: SqlFlavor) {
    let bed = bed(flavor);
    let mut admin = bed.admin().await;
    admin.run("CREATE USER 'tls'@'%' IDENTIFIED BY 'hunter2' REQUIRE SSL").await;
    admin.run("GRANT ALL ON lockkit.* TO 'tls'@'%'").await;
    let plain = refused(&bed.url_as("tls", "hunter2", "")).await;
    assert_eq!(plain.kind(), ErrorKind::Authentication, "{plain}");
    let ca = format!("ca={}", bed.server.tls_ca().display());
    let backend = connect(&tls(&bed.url_as("tls", "hunter2", &ca))).await.unwrap();
    next_token(&backend, "a").await;
    backend.close().await.unwrap();
}

async fn c13_an_untrusted_certificate_is_refused(flavor: SqlFlavor) {
    let error = refused(&tls(&bed(flavor).url(""))).await;
    assert!(error.to_string().contains("check the parameter ca"), "{error}");
    assert!(!error.to_string().contains('\n'), "{error}");
}

async fn c13_files_that_are_not_there_are_named(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    for (query, kind, text) in [
        ("ca=/no/such/file.pem", ErrorKind::InvalidOption, "/no/such/file.pem"),
        ("cert=/no/such/file.pem", ErrorKind::InvalidUrl, "belong together"),
    ] {
        let error = refused(&tls(&bed.url(query))).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    // This server does not speak TLS.
    if flavor == SqlFlavor::MariaDb {
        let error = refused(&tls(&bed.url(""))).await;
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}
