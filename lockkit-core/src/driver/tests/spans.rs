//! The spans that a trace shows.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing_subscriber::fmt::format::FmtSpan;

use super::{World, fakes::Kind, options, store::lock};

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
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
    let world = World::new(Kind::Ttl);
    let default = tracing::subscriber::set_default(subscriber);
    let mutex = world.mutex_with("a", options().with_group("orders"));
    let guard = mutex.lock().await.unwrap();
    guard.renew().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = mutex.lock().await.unwrap();
    world.store.evict_all();
    guard.lost().await;
    drop(default);
    let text = String::from_utf8(lock(&page.0).clone()).unwrap();
    let lock = r#"lock.name="a" lock.kind="mutex""#;
    let rest = r#"backend="fake" group="orders""#;
    for expected in [
        format!(
            "lockkit.acquire{{{lock} lock.mode=Exclusive {rest} token=1 attempts=1 outcome=\"granted\"}}"
        ),
        format!("lockkit.acquire{{{lock} lock.mode=Exclusive {rest} outcome=\"timed out\"}}"),
        format!("lockkit.renew{{{lock} {rest} token=1}}"),
        format!("lockkit.release{{{lock} {rest} token=1}}"),
        format!("lockkit.lost{{{lock} {rest} token=2}}"),
    ] {
        assert!(text.contains(&expected), "{expected} is not in\n{text}");
    }
    drop((guard, mutex));
    world.clean("").await;
}
