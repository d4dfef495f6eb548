use std::{fs, io::Write as _};

use lockkit_core::{
    Kind, LockName,
    spi::Released,
    spi::{Attempt, Wait},
};
use tempfile::TempDir;

use super::*;
use crate::record::{Asker, Share};

struct Scene {
    root: Arc<TempDir>,
    store: Store,
    paths: LockPaths,
    owner: OwnerId,
}

impl Scene {
    /// A name that was used before.
    async fn new() -> Self {
        let root = Arc::new(TempDir::new().unwrap());
        let folder = Folder::new(root.path().to_owned());
        let paths = folder.paths(&LockName::new(Kind::Mutex, "a").unwrap());
        let scene = Self {
            root,
            store: Store::new(folder, GateCache::new()),
            paths,
            owner: OwnerId::random(),
        };
        scene.take().await;
        scene.free().await;
        scene
    }

    fn enter(&self) -> Gate {
        Gate::enter_now(&self.store.folder, &self.store.gates, &self.paths).unwrap().unwrap()
    }

    /// The token; `None` if another owner holds the lock.
    async fn take(&self) -> Option<u64> {
        let session = self.store.session().unwrap().id;
        let asker = Asker { owner: self.owner, session, share: Share::Exclusive, label: None };
        let take = |record: &mut Record, now: &_| record.attempt(&asker, Wait::No, now);
        match self.store.change(&self.paths, None, Duration::ZERO, take, |_| {}).await.unwrap() {
            Attempt::Granted(grant) => Some(grant.token.get()),
            Attempt::Busy { .. } => None,
        }
    }

    async fn free(&self) {
        let free = |record: &mut Record, _: &_| Ok(record.release(&[self.owner]));
        // The tests look at the record instead.
        let _ = self.store.change(&self.paths, None, Duration::ZERO, free, |_| {}).await.unwrap();
    }

    fn assert_held(&self) {
        let session = self.store.session().unwrap().id;
        assert!(
            self.store.read(&self.paths).unwrap().is_held_by(self.owner, session),
            "it was written over"
        );
    }
}

#[tokio::test]
async fn c1_a_process_stopped_while_it_writes_in_a_removed_gate_overwrites_nothing() {
    let scene = Scene::new().await;
    let gate = scene.enter();
    let mut stopped = Draft::write(scene.paths.draft(gate.number()), b"").unwrap();
    fs::remove_file(&scene.paths.gate).unwrap();
    scene.take().await;
    stopped.file.write_all(b"what it wanted to write").unwrap();
    scene.assert_held();
    assert_eq!(gate.check().unwrap_err().kind(), lockkit_core::ErrorKind::Unavailable);
    scene.assert_held();
}

#[tokio::test]
async fn c1_a_process_stopped_before_its_swap_in_a_removed_gate_puts_nothing_in_place() {
    let scene = Scene::new().await;
    let gate = scene.enter();
    let draft = Draft::write(scene.paths.draft(gate.number()), b"what it wanted to write").unwrap();
    gate.check().unwrap();
    fs::remove_file(&scene.paths.gate).unwrap();
    scene.take().await;
    assert!(draft.swap(&scene.paths.record).unwrap_err().is_outcome_unknown());
    scene.assert_held();
}

#[tokio::test]
async fn c13_a_write_that_finds_its_gate_removed_changes_nothing_and_leaves_nothing() {
    let scene = Scene::new().await;
    scene.take().await;
    let gate = scene.enter();
    fs::remove_file(&scene.paths.gate).unwrap();
    let mut record = Record::new(&scene.paths.name);
    put(&gate, &scene.paths, &mut record).unwrap_err();
    scene.assert_held();
    assert!(!scene.paths.draft(gate.number()).exists());
}

/// Acts as another process on the same folder.
fn another(scene: &Scene) -> Scene {
    let store = Store::new(scene.store.folder.clone(), GateCache::new());
    let root = Arc::clone(&scene.root);
    Scene { root, store, paths: scene.paths.clone(), owner: OwnerId::random() }
}

#[tokio::test]
async fn c1_c4_processes_that_keep_the_record_open_see_writes_of_others() {
    let scene = Scene::new().await;
    let scenes = [another(&scene), another(&scene), scene];
    let mut last = 0;
    // These are all orders of three, so that the last file of each is a former one, or was removed.
    for turn in 0..200 {
        let holder = &scenes[[0, 1, 2, 0, 0, 1, 1, 0, 2, 2, 1][turn % 11]];
        let token = holder.take().await.expect("it is free");
        assert!(token > last, "C4: token {token} follows {last}");
        last = token;
        for other in scenes.iter().filter(|other| other.owner != holder.owner) {
            assert_eq!(other.take().await, None, "C1: two hold it in turn {turn}");
        }
        holder.free().await;
    }
}

/// The record is overwritten in place, with as many bytes.
#[tokio::test]
async fn c4_a_record_that_was_put_back_in_place_is_read() {
    let scene = Scene::new().await;
    let mut record = scene.store.read(&scene.paths).unwrap();
    let far = 9_000_000_000_000_000;
    let asker = Asker {
        owner: OwnerId::random(),
        session: scene.store.session().unwrap().id,
        share: Share::Exclusive,
        label: None,
    };
    record.attempt(&asker, Wait::No, &Now { up: 1, wall: far }).unwrap();
    assert_eq!(record.release(&[asker.owner]), Released::Freed);
    let bytes = record.to_bytes().unwrap();
    let before = Stamp::at(&scene.paths.record).unwrap();
    assert_eq!(bytes.len(), fs::read(&scene.paths.record).unwrap().len());
    // The clock of a file system may tick only every few milliseconds.
    while Stamp::at(&scene.paths.record).unwrap() == before {
        fs::write(&scene.paths.record, &bytes).unwrap();
    }
    assert!(scene.take().await > Some(far));
}

#[tokio::test]
async fn c1_a_folder_that_was_removed_and_made_again_is_looked_at_again() {
    let scene = Scene::new().await;
    fs::remove_dir_all(scene.root.path()).unwrap();
    let other = another(&scene);
    other.take().await.expect("it is free");
    assert_eq!(scene.take().await, None);
}

#[tokio::test]
async fn open_files_are_bounded_and_closed_with_the_store() {
    let scene = Scene::new().await;
    for number in 0..200 {
        let name = LockName::new(Kind::Mutex, &format!("name-{number}")).unwrap();
        let paths = scene.store.folder.paths(&name);
        scene.store.change(&paths, None, Duration::ZERO, |_, _| Ok(()), |()| {}).await.unwrap();
        assert!(scene.store.gates.len() <= 64);
    }
    assert_eq!(scene.store.gates.len(), 64);
    scene.store.close();
    assert_eq!(scene.store.gates.len(), 0);
}

#[tokio::test]
async fn gates_are_not_cached_if_changes_may_arrive_late() {
    let scene = Scene::new().await;
    let store = Store::new(scene.store.folder.clone(), GateCache::disabled());
    let remote = Scene { store, ..another(&scene) };
    remote.take().await.expect("it is free");
    assert_eq!(remote.store.gates.len(), 0);
}

/// The watcher reads no record for which this is true. So it must be false for each change that the
/// claims of this process have not heard of.
#[tokio::test]
async fn c8_a_record_is_the_last_of_ours_until_another_process_or_a_task_changes_it() {
    let scene = Scene::new().await;
    let is_ours = || scene.store.gates.is_last_of_ours(&scene.paths);
    assert!(is_ours());
    let gate = scene.enter();
    assert!(!is_ours(), "a task is about to change it");
    drop(gate);
    scene.take().await;
    scene.free().await;
    let other = another(&scene);
    other.take().await;
    assert!(!is_ours(), "another process has changed it");
    other.free().await;
    assert!(!is_ours(), "another process has changed it twice");
    fs::remove_file(&scene.paths.record).unwrap();
    assert!(!is_ours(), "it was removed");
}
