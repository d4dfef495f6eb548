//! Tests of `quorum://` URLs.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use async_trait::async_trait;
use lockkit_core::{
    Connector, Error, ErrorKind, LockOptions, Registry, Renewal, Result,
    fake::{Fake, Fault},
    spi::{Backend, Descriptor},
    url::StoreUrl,
};

use super::members::{ms, on_boot_clock, without_raise};

/// Connects to `fake://up`, to `fake://down` once it is up, and to `fake://lesser`, which cannot
/// raise a token.
#[derive(Clone, Default)]
struct Fakes {
    up: Arc<AtomicBool>,
    lesser: Arc<AtomicBool>,
    /// The store shows no labels.
    mute: Arc<AtomicBool>,
    /// The store takes a while to connect.
    slow: Arc<AtomicBool>,
    made: Arc<Mutex<Vec<Fake>>>,
}

#[async_trait]
impl Connector for Fakes {
    fn schemes(&self) -> &'static [&'static str] {
        &["fake"]
    }

    async fn connect(&self, url: StoreUrl, _: &Registry) -> Result<Arc<dyn Backend>> {
        let host = url.hosts()[0].name.clone();
        if host == "denied" {
            return Err(Error::new(ErrorKind::Authentication, "wrong password"));
        }
        let down = host.starts_with("down");
        if down && !self.up.load(SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "nobody is there"));
        }
        if down && self.slow.load(SeqCst) {
            tokio::time::sleep(ms(20)).await;
        }
        let fake = on_boot_clock();
        self.made.lock().unwrap().push(fake.clone());
        if down && self.mute.load(SeqCst) {
            let mut capabilities = fake.descriptor().capabilities;
            capabilities.labels = false;
            return Ok(Arc::new(fake.described(|it| Descriptor { capabilities, ..it })));
        }
        Ok(if host == "lesser" || (down && self.lesser.load(SeqCst)) {
            Arc::new(without_raise(fake))
        } else {
            Arc::new(fake)
        })
    }
}

fn registry() -> (Registry, Fakes) {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    // The quorum finds its members in whatever order the schemes are registered.
    let fakes = Fakes::default();
    registry.register(fakes.clone());
    (registry, fakes)
}

#[tokio::test]
async fn a_quorum_is_made_from_its_url() {
    let url = "quorum://?member=memory%3A%2F%2F&member=memory://&member=memory://&ttl=5s";
    let (registry, _) = registry();
    let locker = registry.connect(url).await.unwrap();
    assert_eq!(locker.descriptor().name, "quorum");
    assert_eq!(locker.defaults().ttl(), std::time::Duration::from_secs(5));
    let guard = locker.mutex("x").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
    registry.connect("quorum://?need=all&member=memory://&member=memory://").await.unwrap();
}

/// Each bad URL, with the kind of its error and a part of its text.
const BAD_URLS: &[(&str, ErrorKind, &str)] = &[
    ("quorum://", ErrorKind::InvalidUrl, "names no members"),
    ("quorum://u:hunter2@h/?member=memory://", ErrorKind::InvalidUrl, "a user, a host or a path"),
    ("quorum://?member=memory://&need=some", ErrorKind::InvalidUrl, "majority or all"),
    ("quorum://?member=memory://&needs=all", ErrorKind::UnknownParameter, "did you mean need?"),
    ("quorum://?member=memory://&member=hunter2", ErrorKind::InvalidUrl, "member 2: the store URL"),
    ("quorum://?member=fake://u:hunter%2F2@h:x", ErrorKind::InvalidUrl, "member 1: the store URL"),
    (
        "quorum://?member=quorum%3A%2F%2F%3Fmember%3Dmemory",
        ErrorKind::InvalidUrl,
        "member 1: the store URL can't",
    ),
    (
        "quorum://?member=fake://up%3Fttl%3D3s",
        ErrorKind::InvalidUrl,
        "the parameter ttl applies to the whole",
    ),
    (
        "quorum://?member=fake://up%3Ftoken_base%3D3",
        ErrorKind::InvalidOption,
        "the token_base of member 1 (fake://up) applies to the whole quorum",
    ),
    (
        "quorum://?need=all&member=fake://up%3Ftoken_base%3D3",
        ErrorKind::InvalidOption,
        "member 1 (fake://up) has a token_base, but the quorum raises its tokens",
    ),
    (
        "quorum://?need=all&member=fake://up%3Ftoken_base%3Dx",
        ErrorKind::InvalidUrl,
        "token_base must be a whole number",
    ),
    (
        "quorum://?need=all&member=fake://up&member=fake://lesser%3Ftoken_base%3D3",
        ErrorKind::InvalidOption,
        "member 2 (fake://lesser) has a token_base, so it must be the first member",
    ),
    (
        "quorum://?need=all&member=fake://lesser/%3Ftoken_base%3D3&member=fake://lesser/",
        ErrorKind::InvalidUrl,
        "member 2 (fake://lesser/) occurs twice",
    ),
    ("quorum://?member=fake://up%3Fgroup%3Dg", ErrorKind::InvalidUrl, "the parameter group"),
    ("quorum://?member=fake://up%3Fmax_hold%3D1m", ErrorKind::InvalidUrl, "the parameter max_hold"),
    (
        "quorum://?member=fake://up%3Fprocess_gate%3Dfalse",
        ErrorKind::InvalidUrl,
        "the parameter process_gate",
    ),
    (
        "quorum://?member=nobody://",
        ErrorKind::UnknownScheme,
        "member 1: no backend is registered for nobody://",
    ),
    (
        "quorum://?member=fake://up&member=fake://up",
        ErrorKind::InvalidUrl,
        "member 2 (fake://up) occurs twice",
    ),
    (
        "quorum://?member=fake://up&member=fake://:hunter2@denied&member=fake://up2",
        ErrorKind::Authentication,
        "member 2 (fake://denied): wrong password",
    ),
    (
        "quorum://?member=fake://up&member=fake://:hunter2@down&member=fake://:hunter2@down2",
        ErrorKind::Unavailable,
        "member 2 (fake://down): nobody is there",
    ),
    (
        "quorum://?need=all&member=fake://up&member=fake://:hunter2@down",
        ErrorKind::Unavailable,
        "member 2 (fake://down): nobody is there",
    ),
    (
        "quorum://?member=memory://&member=memory://&member=fake://:hunter2@down",
        ErrorKind::Unavailable,
        "member 3 (fake://down): nobody is there",
    ),
];

#[tokio::test]
async fn c13_the_error_for_a_bad_url_names_the_fault_and_no_secret() {
    let (registry, _) = registry();
    for &(url, kind, text) in BAD_URLS {
        let error = registry.connect(url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(text), "{url}: {error}");
        assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
    }
}

#[tokio::test]
async fn c13_a_member_that_is_down_at_the_start_comes_later() {
    let (registry, fakes) = registry();
    let url = "quorum://?member=fake://up&member=fake://:hunter2@down&member=fake://up2";
    let locker = registry.connect(url).await.unwrap();
    assert!(!format!("{locker:?}").contains("hunter"), "{locker:?}");
    let options = LockOptions::new().with_op_timeout(ms(500));
    let mutex = locker.mutex("x").unwrap().with_options(options).unwrap();
    let guard = mutex.lock().await.unwrap();
    guard.release().await.unwrap();
    fakes.made.lock().unwrap()[1].all(Fault::DOWN);
    let error = mutex.try_lock().await.unwrap_err().to_string();
    assert!(error.contains("member 2 (fake://down): nobody is there"), "{error}");
    fakes.up.store(true, SeqCst);
    let guard = mutex.lock().await.unwrap();
    fakes.made.lock().unwrap()[1].all(Fault::Pass);
    assert_eq!(fakes.made.lock().unwrap().len(), 3);
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
}

#[tokio::test]
async fn c13_a_late_member_that_can_do_less_is_refused() {
    for (mute, lacking) in [(false, "no raising of tokens"), (true, "no labels")] {
        let (registry, fakes) = registry();
        let url = "quorum://?member=fake://up&member=fake://down&member=fake://up2";
        let locker = registry.connect(url).await.unwrap();
        fakes.up.store(true, SeqCst);
        if mute { &fakes.mute } else { &fakes.lesser }.store(true, SeqCst);
        fakes.made.lock().unwrap()[0].all(Fault::DOWN);
        let error = locker.mutex("x").unwrap().try_lock().await.unwrap_err().to_string();
        let wanted =
            format!("fake://down differs from the other members of its scheme: it has {lacking}");
        assert!(error.contains(&wanted), "{error}");
        fakes.made.lock().unwrap()[0].all(Fault::Pass);
        let start = std::time::Instant::now();
        for _ in 0..100 {
            drop(locker.mutex("x").unwrap().lock().await.unwrap());
        }
        let made = fakes.made.lock().unwrap().len();
        let pauses = start.elapsed().as_millis() / 500;
        // Two connections to the members that are up, one before the pauses, and one each half
        // second.
        assert!(made <= 4 + usize::try_from(pauses).unwrap(), "{} connections to it", made - 2);
        locker.shutdown().await.unwrap();
    }
}

/// A connection that is being made belongs to no single caller. The caller that began it may
/// already have its lock, and may ask nothing more.
#[tokio::test]
async fn c8_a_late_member_is_connected_to_by_whoever_waits() {
    let (registry, fakes) = registry();
    let url = "quorum://?member=fake://up&member=fake://down&member=fake://up2";
    let locker = registry.connect(url).await.unwrap();
    let options = LockOptions::new().with_op_timeout(ms(500)).with_renewal(Renewal::Manual);
    let mutex = |name: &str| locker.mutex(name).unwrap().with_options(options.clone()).unwrap();
    fakes.slow.store(true, SeqCst);
    fakes.up.store(true, SeqCst);
    let first = mutex("x").lock().await.unwrap();
    fakes.made.lock().unwrap()[1].all(Fault::DOWN);
    let second = mutex("y").lock_timeout(ms(20_000)).await.expect("two of three are there");
    assert!(first.is_held());
    fakes.made.lock().unwrap()[1].all(Fault::Pass);
    drop((first, second));
    locker.shutdown().await.unwrap();
}

/// The first caller has its lock from the other members, and its runtime does nothing more.
#[test]
fn c8_a_late_member_that_another_runtime_connects_to_holds_nobody_up() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let live = runtime();
    let idle = runtime();
    let (registry, fakes) = registry();
    let url = "quorum://?member=fake://up&member=fake://down&member=fake://up2";
    let locker = live.block_on(registry.connect(url)).unwrap();
    let options = LockOptions::new().with_op_timeout(ms(500)).with_renewal(Renewal::Manual);
    let mutex = |name: &str| locker.mutex(name).unwrap().with_options(options.clone()).unwrap();
    fakes.slow.store(true, SeqCst);
    fakes.up.store(true, SeqCst);
    let first = mutex("x");
    let first = idle.block_on(first.lock()).unwrap();
    fakes.made.lock().unwrap()[1].all(Fault::DOWN);
    let second = mutex("y");
    let second = live.block_on(second.lock_timeout(ms(20_000))).expect("two of three are there");
    fakes.made.lock().unwrap()[1].all(Fault::Pass);
    live.block_on(second.release()).unwrap();
    idle.block_on(first.release()).unwrap();
    drop(idle);
    live.block_on(locker.shutdown()).unwrap();
}
