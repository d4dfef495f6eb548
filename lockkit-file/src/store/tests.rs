use std::{fs, io::Write as _};

use lockkit_core::{Kind, LockName, spi::Wait};
use tempfile::TempDir;

use super::*;
use crate::record::{Asker, Share};

struct Scene {
    _root: TempDir,
    store: Store,
    place: Place,
    owner: OwnerId,
}

impl Scene {
    /// A name that was used before.
    async fn new() -> Self {
        let root = TempDir::new().unwrap();
        let folder = Folder::new(root.path().to_owned());
        let place = folder.place(&LockName::new(Kind::Mutex, "a").unwrap());
        let scene = Self { _root: root, store: Store::new(folder), place, owner: OwnerId::random() };
        scene.take().await;
        let free = |record: &mut Record, _: &_| Ok(record.release(&[scene.owner]));
        scene.store.change(&scene.place, None, Duration::ZERO, free, |_| {}).await.unwrap();
        scene
    }

    fn enter(&self) -> Gate {
        Gate::enter_now(&self.store.folder, &self.place).unwrap().unwrap()
    }

    async fn take(&self) {
        let session = self.store.session().unwrap().id;
        let asker = Asker { owner: self.owner, session, share: Share::Exclusive, label: None };
        let take = |record: &mut Record, now: &_| record.attempt(&asker, Wait::No, now);
        self.store.change(&self.place, None, Duration::ZERO, take, |_| {}).await.unwrap();
    }

    fn assert_held(&self) {
        let session = self.store.session().unwrap().id;
        assert!(self.store.read(&self.place).unwrap().is_held_by(self.owner, session), "it was written over");
    }
}

#[tokio::test]
async fn c1_who_was_stopped_while_it_wrote_in_a_gate_that_was_removed_writes_nothing_over() {
    let scene = Scene::new().await;
    let gate = scene.enter();
    let mut stopped = Draft::write(scene.place.draft(gate.number), b"").unwrap();
    fs::remove_file(&scene.place.gate).unwrap();
    scene.take().await;
    stopped.file.write_all(b"what it wanted to write").unwrap();
    scene.assert_held();
    assert_eq!(gate.check().unwrap_err().kind(), lockkit_core::ErrorKind::Unavailable);
    scene.assert_held();
}

#[tokio::test]
async fn c1_who_was_stopped_before_its_swap_in_a_gate_that_was_removed_puts_nothing_in_place() {
    let scene = Scene::new().await;
    let gate = scene.enter();
    let draft = Draft::write(scene.place.draft(gate.number), b"what it wanted to write").unwrap();
    gate.check().unwrap();
    fs::remove_file(&scene.place.gate).unwrap();
    scene.take().await;
    assert!(draft.swap(&scene.place.record).unwrap_err().is_outcome_unknown());
    scene.assert_held();
}

#[tokio::test]
async fn c13_a_write_that_finds_its_gate_removed_changes_nothing_and_leaves_nothing() {
    let scene = Scene::new().await;
    scene.take().await;
    let gate = scene.enter();
    fs::remove_file(&scene.place.gate).unwrap();
    let mut record = Record::new(&scene.place.name);
    put(&gate, &scene.place, &mut record).unwrap_err();
    scene.assert_held();
    assert!(!scene.place.draft(gate.number).exists());
}
