//! A read lock that Java takes under its write lock. Curator 5.5 and later give the read lock's
//! node the number of the write lock's node. So the read lock's node is ahead of all present
//! waiters.

use lockkit_core::{
    Kind, LockName,
    spi::{Backend as _, Holder, Mode, Released, Wait},
};
use lockkit_zk::{
    ZooKeeper,
    zookeeper_client::{Acls, CreateMode},
};

use crate::support::*;

/// Both nodes of a Java thread that holds the write lock and then takes the read lock.
struct Java {
    admin: Admin,
    folder: String,
    write: String,
    read: String,
}

impl Java {
    async fn write(bed: &Bed, zk: &ZooKeeper) -> Self {
        let admin = bed.admin().await;
        let folder = bed.folder(Kind::RwLock, "a");
        // This makes the folder.
        let mut first = rw(zk, "a", Mode::Shared);
        granted(first.attempt(Wait::Queue).await);
        assert_eq!(first.release().await.unwrap(), Released::Freed);
        let node = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let prefix = format!("{folder}/_c_00112233-4455-6677-8899-aabbccddeeff-__WRIT__");
        let (_, sequence) = admin.0.create(&prefix, b"192.168.1.7", &node).await.unwrap();
        let read = format!("{folder}/_c_ffeeddcc-bbaa-9988-7766-554433221100-__READ__{sequence}");
        Self { admin, write: format!("{prefix}{sequence}"), read, folder }
    }

    async fn read(&self) {
        let node = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        self.admin.0.create(&self.read, b"192.168.1.7", &node).await.unwrap();
    }
}

fn name() -> LockName {
    LockName::new(Kind::RwLock, "a").unwrap()
}

/// The modes of the holders, and the number of waiters.
async fn seen(zk: &ZooKeeper) -> (Vec<Mode>, Option<u64>) {
    let seen = zk.inspect(&name()).await.unwrap();
    (seen.holders.iter().map(|holder: &Holder| holder.mode).collect(), seen.waiters)
}

/// Catches a writer that takes the end of the only node ahead of it for its turn. Such a writer
/// holds the lock beside the reader.
#[tokio::test]
async fn c1_a_writer_waits_for_a_reader_that_took_over_the_place_of_a_writer() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let java = Java::write(&bed, &zk).await;
    let mut writer = rw(&zk, "a", Mode::Exclusive);
    assert!(busy(writer.attempt(Wait::Queue).await).0);

    java.read().await;
    assert_eq!(seen(&zk).await, (vec![Mode::Exclusive, Mode::Shared], Some(1)));
    java.admin.delete(&java.write).await;
    woken(&mut writer).await;
    assert!(busy(writer.attempt(Wait::Queue).await).0);
    assert_eq!(seen(&zk).await, (vec![Mode::Shared], Some(1)));
    // A reader that comes later waits behind the writer.
    assert!(!busy(rw(&zk, "a", Mode::Shared).attempt(Wait::No).await).0);

    java.admin.delete(&java.read).await;
    lock(&mut writer).await;
    assert_eq!(seen(&zk).await, (vec![Mode::Exclusive], Some(0)));
    assert_eq!(writer.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

/// A thread may also release its read lock first. It then still holds the write lock.
#[tokio::test]
async fn c1_a_reader_that_ends_before_its_write_lock_admits_no_other_client() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let java = Java::write(&bed, &zk).await;
    java.read().await;
    let mut writer = rw(&zk, "a", Mode::Exclusive);
    let mut reader = rw(&zk, "a", Mode::Shared);
    assert!(!busy(reader.attempt(Wait::No).await).0, "Java writes");
    assert!(busy(writer.attempt(Wait::Queue).await).0);
    java.admin.delete(&java.read).await;
    woken(&mut writer).await;
    assert!(busy(writer.attempt(Wait::Queue).await).0);
    assert_eq!(seen(&zk).await, (vec![Mode::Exclusive], Some(1)));
    java.admin.delete(&java.write).await;
    lock(&mut writer).await;
    assert_eq!(writer.release().await.unwrap(), Released::Freed);
    assert_eq!(java.admin.children(&java.folder).await, Vec::<String>::new());
    bed.assert_clean().await;
}

/// The reader that took a writer's place excludes no other reader.
#[tokio::test]
async fn c1_readers_that_wait_come_in_beside_a_reader_that_was_a_writer() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let java = Java::write(&bed, &zk).await;
    let mut reader = rw(&zk, "a", Mode::Shared);
    assert!(busy(reader.attempt(Wait::Queue).await).0);
    java.read().await;
    java.admin.delete(&java.write).await;
    lock(&mut reader).await;
    assert_eq!(seen(&zk).await, (vec![Mode::Shared, Mode::Shared], Some(0)));
    java.admin.delete(&java.read).await;
    assert_eq!(reader.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}
