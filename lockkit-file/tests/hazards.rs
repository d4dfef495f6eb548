//! Tests what may happen to the files while they are in use.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lockkit_core::{
    ErrorKind, Kind, LockGuard, LockName, LockOptions, Locker, LossReason, spi::Released,
};
use lockkit_file::{Config, FileStore};
use tempfile::TempDir;
use tokio::time::timeout;

/// Far less than the ttl: without the watcher, a holder would look after a third of the ttl.
const AT_ONCE: Duration = Duration::from_secs(60);

fn locker(folder: &Path) -> Locker {
    on(Config::new(folder))
}

fn on(config: Config) -> Locker {
    let options = LockOptions::new().with_ttl(AT_ONCE * 10).with_op_timeout(AT_ONCE);
    Locker::new(FileStore::open(config).unwrap()).with_defaults(options).unwrap()
}

async fn take(locker: &Locker, name: &str) -> LockGuard {
    locker.mutex(name).unwrap().lock_timeout(AT_ONCE).await.expect("a free lock")
}

async fn loss(guard: &LockGuard) -> LossReason {
    let reason = timeout(AT_ONCE, guard.lost().wait()).await.expect("the holder is told");
    assert!(!guard.is_held());
    reason
}

/// The files of a folder with this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

fn file(folder: &TempDir, ending: &str) -> PathBuf {
    let found = files(&folder.path().join("names/mutex"), ending);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// A record's text with its last line, the sum.
fn sealed(text: &str) -> String {
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{text}\nsum {sum:016x}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn c3_a_holder_learns_that_its_session_was_removed_and_the_next_waiter_gets_it() {
    let folder = TempDir::new().unwrap();
    let ours = locker(folder.path());
    let other = locker(folder.path());
    let guard = take(&ours, "a").await;
    for session in files(&folder.path().join("sessions"), "") {
        fs::remove_file(session).unwrap();
    }
    assert_eq!(loss(&guard).await, LossReason::SessionLost);
    let next = take(&other, "a").await;
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(next.is_held());
    // The past holder's store works with a new session.
    assert!(ours.mutex("b").unwrap().try_lock().await.unwrap().is_some());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c3_a_session_that_was_moved_away_and_back_has_ended() {
    let folder = TempDir::new().unwrap();
    let guard = take(&locker(folder.path()), "a").await;
    let session = files(&folder.path().join("sessions"), "").remove(0);
    let aside = folder.path().join("aside");
    fs::rename(&session, &aside).unwrap();
    assert_eq!(loss(&guard).await, LossReason::SessionLost);
    fs::rename(&aside, &session).unwrap();
    assert!(take(&locker(folder.path()), "a").await.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn c3_a_holder_learns_that_its_record_was_removed() {
    let folder = TempDir::new().unwrap();
    let guard = take(&locker(folder.path()), "a").await;
    fs::remove_file(file(&folder, ".json")).unwrap();
    assert_eq!(loss(&guard).await, LossReason::Evicted);
    assert!(take(&locker(folder.path()), "a").await.fencing_token() > guard.fencing_token());
}

#[tokio::test(flavor = "multi_thread")]
async fn c3_a_holder_learns_that_its_folder_was_removed_or_renamed() {
    for rename in [false, true] {
        let parent = TempDir::new().unwrap();
        let folder = parent.path().join("locks");
        let ours = locker(&folder);
        let guard = take(&ours, "a").await;
        if rename {
            fs::rename(&folder, parent.path().join("aside")).unwrap();
            assert_eq!(loss(&guard).await, LossReason::SessionLost);
        } else {
            // The files disappear one after the other. The holder may look when only its record is
            // missing, and write a file meanwhile.
            while let Err(error) = fs::remove_dir_all(&folder) {
                assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
            }
            assert!(matches!(loss(&guard).await, LossReason::SessionLost | LossReason::Evicted));
        }
        // The folder is made again, and its changes are heard again.
        let held = take(&locker(&folder), "a").await;
        assert!(held.fencing_token() > guard.fencing_token());
        let waiting = tokio::spawn(async move { take(&ours, "a").await });
        let name = LockName::new(Kind::Mutex, "a").unwrap();
        let look = async {
            while locker(&folder).inspect(&name).await.unwrap().waiters != Some(1) {
                tokio::task::yield_now().await;
            }
        };
        timeout(AT_ONCE, look).await.expect("nobody waits");
        held.release().await.unwrap();
        assert!(timeout(AT_ONCE, waiting).await.unwrap().unwrap().is_held());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a_removed_gate_admits_no_process_beside_the_holder() {
    let folder = TempDir::new().unwrap();
    let ours = locker(folder.path());
    let other = locker(folder.path());
    let guard = take(&ours, "a").await;
    fs::remove_file(file(&folder, ".lock")).unwrap();
    assert!(other.mutex("a").unwrap().try_lock().await.unwrap().is_none());
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert!(take(&other, "a").await.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn c13_c14_a_foreign_record_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let ours = locker(folder.path());
    take(&ours, "a").await.release().await.unwrap();
    let record = file(&folder, ".json");
    let name = LockName::new(Kind::Mutex, "a").unwrap();
    let whole = fs::read_to_string(&record).unwrap();
    let of_another = sealed(
        &whole.rsplit_once("\nsum ").unwrap().0.replace("\"name\": \"a\"", "\"name\": \"b\""),
    );
    for (garbage, reason) in
        [("4711\n", "sum"), (&whole[..whole.len() / 2], "sum"), (&of_another, "\"b\"")]
    {
        fs::write(&record, garbage).unwrap();
        let error = ours.mutex("a").unwrap().try_lock().await.expect_err(garbage);
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains(record.to_str().unwrap()), "{text}");
        assert_eq!(ours.inspect(&name).await.unwrap_err().kind(), ErrorKind::WrongType);
        assert_eq!(fs::read_to_string(&record).unwrap(), garbage);
    }
    fs::remove_file(&record).unwrap();
    fs::create_dir(&record).unwrap();
    assert_eq!(ours.mutex("a").unwrap().try_lock().await.unwrap_err().kind(), ErrorKind::WrongType);
    fs::remove_dir(&record).unwrap();
    // A pipe would read as an empty record.
    assert!(Command::new("mkfifo").arg(&record).status().unwrap().success());
    assert_eq!(ours.mutex("a").unwrap().try_lock().await.unwrap_err().kind(), ErrorKind::WrongType);
    fs::remove_file(&record).unwrap();
    let precious = folder.path().join("precious");
    fs::write(&precious, "").unwrap();
    std::os::unix::fs::symlink(&precious, &record).unwrap();
    assert_eq!(ours.mutex("a").unwrap().try_lock().await.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "");
    // Other names still work.
    assert!(take(&ours, "b").await.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_tokens_rise_over_an_empty_record_and_a_torn_one_of_an_earlier_boot() {
    let folder = TempDir::new().unwrap();
    let ours = locker(folder.path());
    let mut last = take(&ours, "a").await.release_with_token().await;
    let record = file(&folder, ".json");
    for rest in ["", "\0\0\0\0", "{\n  \"lockkit\": 1,\n  \"kind\": \"mut"] {
        fs::write(&record, rest).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::options().write(true).open(&record).unwrap().set_modified(long_ago).unwrap();
        let token = take(&ours, "a").await.release_with_token().await;
        assert!(token > last, "{rest:?}: {token} follows {last}");
        last = token;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_c4_a_record_of_an_earlier_boot_holds_nothing_and_its_token_is_passed() {
    let folder = TempDir::new().unwrap();
    let ours = locker(folder.path());
    let before = take(&ours, "a").await;
    let record = file(&folder, ".json");
    let before_token = before.fencing_token();
    let text = fs::read_to_string(&record).unwrap();
    before.release().await.unwrap();
    // This is the record as it was on the disk at a loss of power. Its holder's session is over.
    let session = files(&folder.path().join("sessions"), "")[0]
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let text = text.rsplit_once("\nsum ").unwrap().0.replace(&session, &"0".repeat(32));
    fs::write(&record, sealed(&text)).unwrap();
    assert!(take(&ours, "a").await.fencing_token() > before_token);
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_tokens_rise_over_a_record_that_was_put_back_in_the_same_boot() {
    let folder = TempDir::new().unwrap();
    let ours = locker(folder.path());
    take(&ours, "a").await.release_with_token().await;
    let record = file(&folder, ".json");
    let backup = fs::read(&record).unwrap();
    let mut last = 0;
    for _ in 0..5 {
        last = take(&ours, "a").await.release_with_token().await;
    }
    fs::write(&record, backup).unwrap();
    assert!(take(&ours, "a").await.release_with_token().await > last);
}

#[tokio::test]
async fn c13_an_unwritable_folder_is_an_error_that_names_it() {
    // No user can make a folder there, not even root.
    let error = FileStore::open(Config::new("/sys/lockkit")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("/sys/lockkit"), "{error}");
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = FileStore::open(Config::new(&file)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c11_names_with_the_same_readable_part_are_different_locks() {
    let folder = TempDir::new().unwrap();
    let ours = locker(folder.path());
    let held = [
        take(&ours, "a/b").await,
        take(&ours, "a b").await,
        take(&ours, "a:b").await,
        take(&ours, "A:b").await,
    ];
    assert!(held.iter().all(|guard| guard.is_held()));
    assert_eq!(files(&folder.path().join("names/mutex"), ".json").len(), held.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c14_a_reader_during_a_change_sees_a_whole_record() {
    let folder = TempDir::new().unwrap();
    let name = LockName::new(Kind::Mutex, "a").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let looks = (0..3).map(|_| {
        let ours = locker(folder.path());
        let name = name.clone();
        let stop = Arc::clone(&stop);
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                assert!(ours.inspect(&name).await.expect("a whole record").holders.len() <= 1);
            }
        })
    });
    let looks: Vec<_> = looks.collect();
    let ours = locker(folder.path());
    for round in 0..3_000 {
        // The records have different lengths.
        let label = "x".repeat(round % 200 + 1);
        let options =
            LockOptions::new().with_ttl(AT_ONCE * 10).with_op_timeout(AT_ONCE).with_label(label);
        let mutex = ours.mutex("a").unwrap().with_options(options).unwrap();
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for look in looks {
        look.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c8_waiters_are_served_without_notifications_of_the_system() {
    let folder = TempDir::new().unwrap();
    let polling = || on(Config::new(folder.path()).with_polling());
    let held = take(&polling(), "a").await;
    let name = LockName::new(Kind::Mutex, "a").unwrap();
    let waiting = tokio::spawn({
        let ours = polling();
        async move { take(&ours, "a").await }
    });
    let look = async {
        while polling().inspect(&name).await.unwrap().waiters != Some(1) {
            tokio::task::yield_now().await;
        }
    };
    timeout(AT_ONCE, look).await.expect("nobody waits");
    held.release().await.unwrap();
    let guard = timeout(AT_ONCE, waiting).await.unwrap().unwrap();
    let token = guard.fencing_token();
    assert_eq!(polling().force_release(&name, token).await.unwrap(), Released::Freed);
    assert_eq!(loss(&guard).await, LossReason::Evicted);
}

trait ReleaseWithToken {
    async fn release_with_token(self) -> u64;
}

impl ReleaseWithToken for LockGuard {
    async fn release_with_token(self) -> u64 {
        let token = self.fencing_token().get();
        self.release().await.unwrap();
        token
    }
}
