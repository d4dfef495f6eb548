use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use tempfile::TempDir;

use super::*;

fn paths(root: &TempDir) -> (PathBuf, PathBuf) {
    (root.path().join("record"), root.path().join("draft"))
}

fn identity(path: &Path) -> Identity {
    Identity::of(&fs::metadata(path).unwrap())
}

#[test]
fn a_former_file_is_written_over_and_nothing_of_it_is_left() {
    let root = TempDir::new().unwrap();
    let (record, draft) = paths(&root);
    fs::write(&record, "old").unwrap();
    fs::write(&draft, "what is longer").unwrap();
    let former = identity(&draft);
    Draft::write(draft.clone(), b"short").unwrap().swap(&record).unwrap();
    assert_eq!((identity(&record), fs::read(&record).unwrap()), (former, b"short".to_vec()));
    assert_eq!(fs::read(&draft).unwrap(), b"old");
}

#[test]
fn c14_a_replaced_file_is_left_to_its_reader() {
    let root = TempDir::new().unwrap();
    let (_, draft) = paths(&root);
    fs::write(&draft, "read").unwrap();
    let reader = open(&draft).unwrap().unwrap();
    reader.try_lock_shared().unwrap();
    Draft::write(draft.clone(), b"new!").unwrap();
    assert_eq!(content(&reader, &draft, &reader.metadata().unwrap()).unwrap().bytes, b"read");
    assert_eq!(fs::read(&draft).unwrap(), b"new!");
}

/// `cp --link` makes such a backup.
#[test]
fn a_former_file_with_another_name_is_left_as_it_is() {
    let root = TempDir::new().unwrap();
    let (backup, draft) = paths(&root);
    fs::write(&draft, "kept").unwrap();
    fs::hard_link(&draft, &backup).unwrap();
    Draft::write(draft.clone(), b"new!").unwrap();
    assert_eq!(
        (fs::read(&backup).unwrap(), fs::read(&draft).unwrap()),
        (b"kept".to_vec(), b"new!".to_vec())
    );
}

#[test]
fn a_path_that_is_no_plain_file_is_replaced_and_not_followed() {
    let root = TempDir::new().unwrap();
    let (precious, draft) = paths(&root);
    fs::write(&precious, "kept").unwrap();
    std::os::unix::fs::symlink(&precious, &draft).unwrap();
    Draft::write(draft.clone(), b"new!").unwrap();
    assert_eq!(
        (fs::read(&precious).unwrap(), fs::read(&draft).unwrap()),
        (b"kept".to_vec(), b"new!".to_vec())
    );
    fs::remove_file(&draft).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &draft, 0o600.into()).unwrap();
    Draft::write(draft.clone(), b"new!").unwrap();
    assert_eq!(fs::read(&draft).unwrap(), b"new!");
}

/// A writer that was killed before it swapped leaves a whole draft, which the next writer
/// overwrites.
#[test]
fn c14_no_reader_sees_a_record_that_was_never_in_place() {
    let root = TempDir::new().unwrap();
    let (record, draft) = paths(&root);
    let swap = |text: &[u8]| Draft::write(draft.clone(), text).unwrap().swap(&record).unwrap();
    swap(b"first");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    let text = read_shared(&record).unwrap().bytes;
                    assert!(
                        text == b"first" || text == b"later",
                        "{:?}",
                        String::from_utf8_lossy(&text)
                    );
                }
            });
        }
        for round in 0..20_000 {
            Draft::write(draft.clone(), b"never").unwrap();
            swap(if round % 2 == 0 { b"later" } else { b"first" });
        }
        is_over.store(true, Relaxed);
    });
}

#[test]
fn c14_a_file_that_a_stranger_has_locked_is_read() {
    let root = TempDir::new().unwrap();
    let (record, _) = paths(&root);
    fs::write(&record, "text").unwrap();
    let strangers = File::open(&record).unwrap();
    strangers.lock().unwrap();
    assert_eq!(read_shared(&record).unwrap().bytes, b"text");
}
