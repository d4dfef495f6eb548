//! Runtimes that lack a feature cause an error, or work all the same, but never cause a panic.

use lockkit_core::{
    ErrorKind,
    spi::{Released, Wait},
};

use crate::support::*;

/// The client library has I/O of its own.
#[test]
fn c13_a_runtime_without_io_will_do() {
    let bed = Bed::shared();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let zk = bed.connect("").await;
        let mut claim = claim(&zk, "a");
        granted(claim.attempt(Wait::Queue).await);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        // The checks of unreachable servers work as well.
        let error = connect("zk://127.0.0.1:1/").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("127.0.0.1:1: Connection refused"), "{error}");
        bed.assert_clean().await;
    });
}

#[test]
fn c13_a_runtime_without_timers_is_refused() {
    let bed = Bed::shared();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(connect(&bed.url(""))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoRuntime, "{error}");
    assert!(error.to_string().contains("enable_time"), "{error}");
}
