use std::num::NonZeroU32;

use lockkit_core::{
    FencingToken, Kind, OwnerId,
    spi::{Admin as _, Backend as _, Mode, Note, Noted, Released, Wait},
};

use super::{UNFAIR, claim_of};
use crate::support::*;

/// The nodes as 0.1.0 leaves them: each lock is held, and has a waiter.
const QUEUES: &str = include_str!("stored-1.txt");
const SINGLE: &str = include_str!("stored-1-unfair.txt");
const OWNER: u128 = 0xa1;
const WAITER: u128 = 0xa2;

fn two_of_three() -> Mode {
    let number = |n| NonZeroU32::new(n).unwrap();
    Mode::Permits { count: number(2), limit: number(3) }
}

/// A kind, the mode of its holder, and the mode of the waiter behind it.
fn modes() -> [(Kind, Mode, Mode); 3] {
    [
        (Kind::Mutex, Mode::Exclusive, Mode::Exclusive),
        (Kind::RwLock, Mode::Shared, Mode::Exclusive),
        (Kind::Semaphore, two_of_three(), two_of_three()),
    ]
}

#[tokio::test]
async fn c1_c4_c14_data_of_0_1_0_is_read_its_waiters_are_respected_and_tokens_rise() {
    let bed = Bed::shared();
    let admin = bed.admin().await;
    bed.load(&admin, QUEUES).await;
    let zk = bed.connect("").await;
    assert_eq!(zk.note(&mutex("orders")).await.unwrap(), Note::new(7, "up-to-4711".to_owned()));
    for (kind, held, wanted) in modes() {
        let folder = bed.folder(kind, "orders");
        let nodes: Vec<_> = admin
            .children(&folder)
            .await
            .into_iter()
            .map(|node| format!("{folder}/{node}"))
            .collect();
        // Of the two nodes, the holder's was made first.
        let first = admin.created(&nodes[0]).await;
        let second = admin.created(&nodes[1]).await;
        let (token, node, last) =
            if first < second { (first, 1, second) } else { (second, 0, first) };
        let mut newcomer = zk.claim(claim_of(kind, held, OwnerId::random())).unwrap();
        assert!(busy(newcomer.attempt(Wait::Queue).await).0);
        let seen = zk.inspect(&claim_of(kind, held, OwnerId::random()).name).await.unwrap();
        let [holder] = &seen.holders[..] else { panic!("{seen:?}") };
        assert_eq!((holder.owner, holder.mode), (Some(OwnerId::new(OWNER)), held));
        assert_eq!(
            (holder.token, holder.label.as_deref()),
            (Some(FencingToken::new(token)), Some("host-1"))
        );
        assert_eq!(seen.waiters, Some(2));
        let name = claim_of(kind, held, OwnerId::random()).name;
        assert_eq!(
            zk.force_release(&name, FencingToken::new(token)).await.unwrap(),
            Released::Freed
        );
        // The earlier waiter has it now.
        assert!(busy(newcomer.attempt(Wait::Queue).await).0);
        let seen = zk.inspect(&name).await.unwrap();
        assert_eq!(
            (seen.holders[0].owner, seen.holders[0].mode),
            (Some(OwnerId::new(WAITER)), wanted)
        );
        admin.delete(&nodes[node]).await;
        assert!(lock(&mut newcomer).await.token.get() > last);
        assert_eq!(newcomer.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn c1_c14_data_of_0_1_0_without_queues_is_read_and_respected() {
    let bed = Bed::shared();
    let admin = bed.admin().await;
    bed.load(&admin, SINGLE).await;
    let zk = bed.connect(UNFAIR).await;
    let mut newcomer = claim(&zk, "orders");
    assert!(!busy(newcomer.attempt(Wait::Queue).await).0);
    let seen = zk.inspect(&mutex("orders")).await.unwrap();
    let [holder] = &seen.holders[..] else { panic!("{seen:?}") };
    assert_eq!(
        (holder.owner, holder.label.as_deref()),
        (Some(OwnerId::new(OWNER)), Some("host-1"))
    );
    let token = holder.token.unwrap();
    assert_eq!(zk.force_release(&mutex("orders"), token).await.unwrap(), Released::Freed);
    assert!(lock(&mut newcomer).await.token > token);
    assert_eq!(newcomer.release().await.unwrap(), Released::Freed);
}

/// If you change a stored form, change this test, and define a new format: see docs/operations.md.
#[tokio::test]
async fn c1_stored_data_has_the_format_of_0_1_0() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let admin = bed.admin().await;
    let mut all = Vec::new();
    for (kind, held, wanted) in modes() {
        let mut spec = claim_of(kind, held, OwnerId::random());
        spec.label = Some("host-1".into());
        let mut holder = zk.claim(spec).unwrap();
        granted(holder.attempt(Wait::Queue).await);
        if kind == Kind::Mutex {
            assert_eq!(
                holder.write_note(&Note::new(7, "up-to-4711".to_owned())).await.unwrap(),
                Noted::Written
            );
        }
        let mut waiter = zk.claim(claim_of(kind, wanted, OwnerId::random())).unwrap();
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        all.extend([holder, waiter]);
    }
    assert_eq!(shapes(&bed.dump(&admin).await), shapes(&lines(QUEUES)));

    let bed = Bed { prefix: format!("{}u", bed.prefix), ..bed };
    let zk = bed.connect(UNFAIR).await;
    let mut spec = claim_of(Kind::Mutex, Mode::Exclusive, OwnerId::random());
    spec.label = Some("host-1".into());
    let mut holder = zk.claim(spec).unwrap();
    granted(holder.attempt(Wait::Queue).await);
    assert_eq!(shapes(&bed.dump(&admin).await), shapes(&lines(SINGLE)));
}

fn lines(dump: &str) -> Vec<String> {
    dump.lines().map(str::to_owned).collect()
}

/// Replaces ids, which differ in value but not in length.
fn shapes(lines: &[String]) -> Vec<String> {
    let is_end = |c: char| !c.is_ascii_hexdigit();
    let shape = |line: &String| {
        let mut shape = String::new();
        for word in line.split_inclusive(is_end) {
            let text = word.trim_end_matches(is_end);
            shape += if text.len() == 32 { "<id>" } else { text };
            shape += &word[text.len()..];
        }
        shape
    };
    let mut shapes: Vec<_> = lines.iter().map(shape).collect();
    shapes.sort();
    shapes
}
