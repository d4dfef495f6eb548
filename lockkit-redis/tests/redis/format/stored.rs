//! Tests that data of lockkit 0.1.0 are read, kept, and still written in the same form.

use std::num::NonZeroU32;

use lockkit_core::{
    ErrorKind, FencingToken, Kind, OwnerId,
    spi::{Admin as _, Backend as _, Mode, Note, Noted, Released, Wait},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{STORED, claim_of};
use crate::support::*;

/// The last token of the dump.
const LAST: u64 = 4_102_444_800_000_007;

fn permits(count: u32, limit: u32) -> Mode {
    let number = |n| NonZeroU32::new(n).unwrap();
    Mode::Permits { count: number(count), limit: number(limit) }
}

/// A kind, the mode and the owner of its holder in the dump, the mode of a newcomer, and the owner
/// of the waiter.
fn held() -> [(Kind, Mode, u128, Mode, u128); 3] {
    [
        (Kind::Mutex, Mode::Exclusive, 0xa1, Mode::Exclusive, 0xa2),
        (Kind::RwLock, Mode::Shared, 0xb1, Mode::Shared, 0xb2),
        (Kind::Semaphore, permits(2, 3), 0xc1, permits(1, 3), 0xc2),
    ]
}

#[tokio::test]
async fn c1_c4_c14_data_of_0_1_0_is_read_its_waiters_are_served_and_tokens_rise() {
    let store = Store::start().await;
    // A waiter is granted the lock for so many milliseconds.
    store.admin.load(&STORED.replace(":3000:", ":60000:")).await;
    let mut ear = TcpStream::connect(("127.0.0.1", store.server.port())).await.unwrap();
    ear.write_all(b"SUBSCRIBE lockkit:wake:c0ffee00c0ffee00\r\n").await.unwrap();
    let mut heard = String::new();
    listen(&mut ear, &mut heard, ":1\r\n").await;
    let mut last = LAST;
    for (kind, mode, holder, newcomer, waiter) in held() {
        let spec = claim_of(kind, newcomer, OwnerId::random());
        let seen = store.redis.inspect(&spec.name).await.unwrap();
        let [first] = &seen.holders[..] else { panic!("{seen:?}") };
        assert_eq!((first.owner, first.mode), (Some(OwnerId::new(holder)), mode));
        assert_eq!(
            (first.token, first.label.as_deref()),
            (Some(FencingToken::new(LAST)), Some("host-1"))
        );
        assert_eq!(seen.waiters, Some(1));
        // Two of the kinds have room beside the holders, but a claim waits.
        let mut claim = store.redis.claim(spec.clone()).unwrap();
        busy(claim.attempt(Wait::No).await);
        let freed = store.redis.force_release(&spec.name, FencingToken::new(LAST)).await;
        assert_eq!(freed.unwrap(), Released::Freed);
        // The message has the form that the waiter's program knows.
        listen(&mut ear, &mut heard, &format!("{waiter:032x} {} ", last + 1)).await;
        let seen = store.redis.inspect(&spec.name).await.unwrap();
        let [first] = &seen.holders[..] else { panic!("{seen:?}") };
        assert_eq!(
            (first.owner, first.token),
            (Some(OwnerId::new(waiter)), Some(FencingToken::new(last + 1)))
        );
        assert_eq!(seen.waiters, Some(0));
        // The waiter's program continues in this way.
        let owner = OwnerId::new(waiter);
        let mode = if kind == Kind::Semaphore { permits(2, 3) } else { Mode::Exclusive };
        let mut claim = store.redis.claim(claim_of(kind, mode, owner)).unwrap();
        assert_eq!(granted(claim.attempt(Wait::No).await).token.get(), last + 1);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        let mut claim = store.redis.claim(spec).unwrap();
        assert_eq!(granted(claim.attempt(Wait::No).await).token.get(), last + 2);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        last += 2;
    }
}

#[tokio::test]
async fn c5_c13_the_note_and_the_limit_that_0_1_0_has_stored_are_kept() {
    let store = Store::start().await;
    store.admin.load(STORED).await;
    assert_eq!(
        store.redis.note(&mutex("orders")).await.unwrap(),
        Note::new(7, "up-to-4711".to_owned())
    );
    // The holder continues under its label.
    let mut spec = claim_of(Kind::Mutex, Mode::Exclusive, OwnerId::new(0xa1));
    spec.label = Some("host-1".into());
    let mut holder = store.redis.claim(spec).unwrap();
    assert_eq!(granted(holder.attempt(Wait::No).await).token.get(), LAST);
    assert_eq!(
        holder.write_note(&Note::new(7, "other".to_owned())).await.unwrap(),
        Noted::Outdated
    );
    assert_eq!(holder.write_note(&Note::new(8, "next".to_owned())).await.unwrap(), Noted::Written);
    let mut claim =
        store.redis.claim(claim_of(Kind::Semaphore, permits(1, 4), OwnerId::random())).unwrap();
    let error = claim.attempt(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
}

/// If you change the stored data, change this test, and use a new format: see docs/operations.md.
#[tokio::test]
async fn c1_stored_data_has_the_format_of_0_1_0() {
    let store = Store::start().await;
    let mut all = Vec::new();
    for (kind, mode, _, _, _) in held() {
        let mut spec = claim_of(kind, mode, OwnerId::random());
        spec.label = Some("host-1".into());
        let mut holder = store.redis.claim(spec).unwrap();
        granted(holder.attempt(Wait::No).await);
        if kind == Kind::Mutex {
            assert_eq!(
                holder.write_note(&Note::new(7, "up-to-4711".to_owned())).await.unwrap(),
                Noted::Written
            );
        }
        let wanted = if kind == Kind::RwLock { Mode::Exclusive } else { mode };
        let mut waiter = store.redis.claim(claim_of(kind, wanted, OwnerId::random())).unwrap();
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        all.extend([holder, waiter]);
    }
    let shapes = |lines: &[String]| lines.iter().map(|line| shape(line)).collect::<Vec<_>>();
    // The waiters of the dump have a claim window of 3 s.
    let known: Vec<_> = STORED.lines().map(|line| line.replace(":3000:", ":10000:")).collect();
    assert_eq!(shapes(&store.admin.dump().await), shapes(&known));
}

/// The form of a line. Times and ids only need to have their usual length.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for word in line.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let (word, end) =
            word.split_at(word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len());
        match word.len() {
            32 if word.bytes().all(|b| b.is_ascii_hexdigit()) => shape.push_str("<id>"),
            16 if word.bytes().all(|b| b.is_ascii_hexdigit()) => shape.push_str("<time or client>"),
            _ => shape.push_str(word),
        }
        shape.push_str(end);
    }
    shape
}

async fn listen(ear: &mut TcpStream, heard: &mut String, wanted: &str) {
    let hears = async {
        while !heard.contains(wanted) {
            let mut part = [0; 512];
            let length = ear.read(&mut part).await.unwrap();
            assert!(length > 0, "{heard}");
            heard.push_str(&String::from_utf8_lossy(&part[..length]));
        }
    };
    timeout(SOON, hears).await.unwrap_or_else(|_| panic!("no {wanted:?}"));
}
