//! Tests files that other versions of lockkit have stored: lockkit reads those of 0.1.0, and leaves
//! those of newer versions alone.

use std::{
    fs::{self, File},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use lockkit_core::{
    Error, ErrorKind, FencingToken, Kind, LockName, LockOptions, Locker, Note, OwnerId,
};
use lockkit_file::{Config, FileStore};
use tempfile::TempDir;

const RECORD: &str = include_str!("format/stored-1.json");
const NOTE: &str = include_str!("format/stored-1.note");
/// The last token of the record.
const LAST: u64 = 4_102_444_800_000_007;
/// A waiter that lets its turn pass delays the others for less than this.
const SOON: Duration = Duration::from_secs(60);

struct Scene {
    root: TempDir,
    locker: Locker,
    record: PathBuf,
}

impl Scene {
    /// A folder in which the mutex `orders` was used.
    async fn new() -> Self {
        let root = TempDir::new().unwrap();
        let options = LockOptions::new().with_ttl(SOON * 4).with_op_timeout(SOON);
        let locker = Locker::new(FileStore::open(Config::new(root.path())).unwrap());
        let locker = locker.with_defaults(options).unwrap();
        locker.mutex("orders").unwrap().lock().await.unwrap().release().await.unwrap();
        let files =
            fs::read_dir(root.path().join("names/mutex")).unwrap().map(|file| file.unwrap().path());
        let record =
            files.filter(|path| path.extension().is_some_and(|end| end == "json")).last().unwrap();
        Self { root, locker, record }
    }

    /// A session of another process, which lives as long as the file is locked.
    fn session(&self, id: &str) -> File {
        let file = File::create(self.root.path().join("sessions").join(id)).unwrap();
        file.lock().unwrap();
        file
    }
}

fn orders() -> LockName {
    LockName::new(Kind::Mutex, "orders").unwrap()
}

fn assert_newer(error: &Error, path: &str) {
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::NewerFormat, "{text}");
    assert!(
        text.contains("a newer lockkit wrote") && text.contains("format 2") && text.contains(path),
        "{text}"
    );
    assert!(!error.is_temporary() && !error.is_outcome_unknown(), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_c4_c14_data_of_0_1_0_is_read_its_waiters_are_respected_and_tokens_rise() {
    let scene = Scene::new().await;
    let sessions = ["000000000000000000000000000000b1", "000000000000000000000000000000b2"];
    let [holder, waiter] = sessions.map(|id| scene.session(id));
    fs::write(&scene.record, RECORD).unwrap();
    fs::write(scene.record.with_extension("note"), NOTE).unwrap();
    let locker = &scene.locker;
    let mutex = scene.locker.mutex("orders").unwrap();
    let seen = locker.inspect(&orders()).await.unwrap();
    assert_eq!(
        (seen.holders[0].owner, seen.holders[0].token),
        (Some(OwnerId::new(0xa1)), Some(FencingToken::new(LAST)))
    );
    assert_eq!((seen.holders[0].label.as_deref(), seen.waiters), (Some("host-1"), Some(1)));
    let note = scene.locker.note(&orders()).await.unwrap();
    assert_eq!((note.revision, &*note.text), (7, "up to 4711"));
    assert!(mutex.try_lock().await.unwrap().is_none());
    // The waiter comes first.
    drop(holder);
    assert!(mutex.try_lock().await.unwrap().is_none());
    drop(waiter);
    let guard = mutex.lock_timeout(SOON).await.expect("a free lock");
    assert_eq!(guard.fencing_token().get(), LAST + 1);
    guard.release().await.unwrap();
}

/// This holds also for a record from before the boot. Then a torn record is taken for a new one,
/// and lockkit would overwrite it.
#[tokio::test(flavor = "multi_thread")]
async fn c1_c13_data_of_a_newer_lockkit_is_refused_and_not_changed() {
    let scene = Scene::new().await;
    let newer = RECORD.replace("\"lockkit\": 1", "\"lockkit\": 2");
    let shorter = "{\n  \"lockkit\": 2,\n  \"more\": []\n}\n";
    for text in [&*newer, shorter] {
        for written in [SystemTime::now(), SystemTime::UNIX_EPOCH + Duration::from_secs(1)] {
            fs::write(&scene.record, text).unwrap();
            File::options().write(true).open(&scene.record).unwrap().set_modified(written).unwrap();
            let mutex = scene.locker.mutex("orders").unwrap();
            let path = scene.record.to_str().unwrap();
            assert_newer(&mutex.try_lock().await.unwrap_err(), path);
            assert_newer(&mutex.lock().await.unwrap_err(), path);
            assert_newer(&scene.locker.inspect(&orders()).await.unwrap_err(), path);
            let freed = scene.locker.force_release(&orders(), FencingToken::new(LAST)).await;
            assert_newer(&freed.unwrap_err(), path);
            assert_eq!(fs::read_to_string(&scene.record).unwrap(), text);
        }
    }
}

/// Such a record is left by a loss of power. The lost part contained the holders, if there were
/// any.
#[tokio::test(flavor = "multi_thread")]
async fn c1_c13_the_rest_of_a_newer_record_from_before_the_boot_is_not_written_over() {
    let scene = Scene::new().await;
    let torn = "{\n  \"lockkit\": 2,\n  \"mo";
    fs::write(&scene.record, torn).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    File::options().write(true).open(&scene.record).unwrap().set_modified(long_ago).unwrap();
    let error = scene.locker.mutex("orders").unwrap().try_lock().await.unwrap_err();
    assert!(!error.is_temporary() && !error.is_outcome_unknown(), "{error}");
    assert_eq!(fs::read_to_string(&scene.record).unwrap(), torn);
}

#[tokio::test(flavor = "multi_thread")]
async fn c5_c13_a_note_of_a_newer_lockkit_is_refused_and_not_changed() {
    let scene = Scene::new().await;
    let path = scene.record.with_extension("note");
    let text = NOTE.replace("\"lockkit\": 1", "\"lockkit\": 2");
    fs::write(&path, &text).unwrap();
    let mutex = scene.locker.mutex("orders").unwrap();
    assert_newer(&scene.locker.note(&orders()).await.unwrap_err(), path.to_str().unwrap());
    let guard = mutex.lock().await.unwrap();
    assert_newer(
        &guard.write_note(&Note::new(8, "mine".to_owned())).await.unwrap_err(),
        path.to_str().unwrap(),
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    guard.release().await.unwrap();
}
