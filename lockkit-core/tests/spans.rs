//! Tests the spans that a trace shows. This test is alone in its process, because tasks without a
//! subscriber would hide spans from it.

use std::{
    io,
    sync::{Arc, Mutex},
};

use lockkit_core::{LockOptions, Locker, spi::Released};
use tracing_subscriber::fmt::format::FmtSpan;

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_step_is_a_span_with_the_same_fields() {
    let page = Page::default();
    let writer = page.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .finish();
    let default = tracing::subscriber::set_default(subscriber);
    let locker = Locker::memory();
    let mutex =
        locker.mutex("a").unwrap().with_options(LockOptions::new().with_group("orders")).unwrap();
    let guard = mutex.lock().await.unwrap();
    let first = guard.fencing_token();
    guard.renew().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = mutex.lock().await.unwrap();
    let second = guard.fencing_token();
    assert_eq!(mutex.force_release(second).await.unwrap(), Released::Freed);
    guard.lost().await;
    drop((guard, default));
    let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
    let lock = r#"lock.name="a" lock.kind="mutex""#;
    let rest = r#"backend="memory" group="orders""#;
    for expected in [
        format!(
            "lockkit.acquire{{{lock} lock.mode=Exclusive {rest} token={first} attempts=1 outcome=\"granted\"}}"
        ),
        format!("lockkit.acquire{{{lock} lock.mode=Exclusive {rest} outcome=\"timed out\"}}"),
        format!("lockkit.renew{{{lock} {rest} token={first}}}"),
        format!("lockkit.release{{{lock} {rest} token={first}}}"),
        format!("lockkit.lost{{{lock} {rest} token={second}}}"),
    ] {
        assert!(text.contains(&expected), "{expected} is not in\n{text}");
    }
}
