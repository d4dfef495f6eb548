//! Tests a read/write lock: a writer wants all permits, a reader one.

use crate::support::{Answer, Claim, EVERYTHING, LEASE, LIVENESS, NEVER, Store, WINDOW};

#[test]
fn c1_readers_share_and_a_writer_excludes_all() {
    let mut store = Store::new(EVERYTHING);
    let a = Claim::reader(1);
    let b = Claim::reader(2);
    let w = Claim::writer(3).impatient();
    let first = store.acquire(&a).token();
    let second = store.acquire(&b).token();
    assert!(second > first, "two readers, two tokens");
    assert!(store.acquire(&w).is_busy());
    store.release(&a);
    assert!(store.acquire(&w).is_busy());
    store.release(&b);
    let token = store.acquire(&w).token();
    assert!(token > second);
    assert!(store.acquire(&a.clone().impatient()).is_busy());
    store.release(&w);
    assert!(store.acquire(&a).token() > token);
    store.release(&a);
    store.assert_idle();
}

#[test]
fn c12_a_waiting_writer_is_not_starved_by_readers() {
    let mut store = Store::new(EVERYTHING);
    let (a, b, w) = (Claim::reader(1), Claim::reader(2).of("a"), Claim::writer(3).of("a"));
    store.acquire(&a).token();
    assert!(store.acquire(&w).is_busy());
    assert!(store.acquire(&b).is_busy());
    store.release(&a);
    let told = store.told();
    assert_eq!(told.len(), 1, "the writer alone: {told:?}");
    assert!(told[0].starts_with(w.id()));
    assert!(store.acquire(&b).is_busy());
    store.release(&w);
    assert_eq!(store.told_ids(), [b.id()]);
    store.acquire(&b).token();
}

#[test]
fn c12_the_intent_of_a_dead_writer_lasts_no_longer_than_its_liveness() {
    let mut store = Store::new(EVERYTHING);
    let a = Claim::reader(1);
    let b = Claim::reader(2).impatient();
    let w = Claim::writer(3);
    store.acquire(&a).token();
    assert!(store.acquire(&w).is_busy());
    store.advance(LIVENESS);
    assert!(store.acquire(&b).is_busy());
    store.advance(1);
    store.acquire(&b).token();
}

#[test]
fn c8_all_readers_behind_the_last_writer_are_served_when_it_leaves_and_no_earlier() {
    let mut store = Store::new(EVERYTHING);
    let writers = [1, 2].map(|number| Claim::writer(number).of("a"));
    let readers = [3, 4, 5].map(|number| Claim::reader(number).of("a"));
    store.acquire(&writers[0]).token();
    for claim in [&writers[1]].into_iter().chain(&readers) {
        assert!(store.acquire(claim).is_busy());
    }
    store.release(&writers[0]);
    let told = store.told();
    assert!(told.len() == 1 && told[0].starts_with(writers[1].id()), "{told:?}");
    store.release(&writers[1]);
    assert_eq!(store.told_ids(), readers.each_ref().map(Claim::id));
    assert_eq!(store.keys(), ["counter", "grants", "holders"], "served, they are forgotten");
    for reader in &readers {
        store.acquire(reader).token();
    }
}

#[test]
fn c8_a_writer_that_gives_up_lets_the_readers_in() {
    let mut store = Store::new(EVERYTHING);
    let (a, b, w) = (Claim::reader(1), Claim::reader(2).of("a"), Claim::writer(3));
    store.acquire(&a).token();
    assert!(store.acquire(&w).is_busy());
    assert!(store.acquire(&b).is_busy());
    assert_eq!(store.release(&w), 0);
    assert_eq!(store.told_ids(), [b.id()]);
}

#[test]
fn c6_a_reader_that_gives_up_leaves_nothing() {
    let mut store = Store::new(EVERYTHING);
    let w = Claim::writer(1);
    let b = Claim::reader(2).of("a");
    store.acquire(&w).token();
    assert!(store.acquire(&b).is_busy());
    assert_eq!(store.inspect().waiters, 1);
    assert_eq!(store.release(&b), 0);
    assert_eq!(store.inspect().waiters, 0);
    store.release(&w);
    assert_eq!(store.told(), [""; 0]);
    store.assert_idle();
}

#[test]
fn c8_a_refresh_wakes_readers_behind_a_dead_writer() {
    let mut store = Store::new(EVERYTHING);
    let w = Claim::writer(1);
    let a = Claim::reader(2).of("a");
    let b = Claim::reader(3).of("nobody");
    store.acquire_with(&w, WINDOW, NEVER, EVERYTHING).token();
    let lapse = i64::try_from(WINDOW).unwrap();
    assert_eq!(store.acquire(&a), Answer::Busy { lapse });
    assert_eq!(store.acquire(&b), Answer::Busy { lapse });
    store.advance(WINDOW - 1);
    assert_eq!(store.refresh(&[&b]), (1, vec![true]));
    store.advance(1);
    assert_eq!(store.refresh(&[&b]), (lapse, vec![false]), "served: it hears of it by this answer");
    assert_eq!(store.told_ids(), [a.id()]);
    store.acquire(&b).token();
    let deadlines: Vec<_> = store.inspect().holders.iter().map(|holder| holder.deadline).collect();
    assert_eq!(deadlines, [store.now + WINDOW * 1000, store.now + LEASE * 1000]);
}

#[test]
fn c8_a_writer_without_a_connection_does_not_keep_readers_out() {
    let mut store = Store::new(EVERYTHING);
    let a = Claim::writer(1);
    let b = Claim::reader(2);
    let w = Claim::writer(3).of("nobody");
    store.acquire(&a).token();
    assert!(store.acquire(&w).is_busy());
    store.release(&a);
    store.acquire(&b).token();
    store.advance(1);
    assert_eq!(store.refresh(&[&w]).1, [true], "it keeps its place");
}

#[test]
fn c8_a_killed_writer_in_the_queue_does_not_keep_readers_from_sharing() {
    let mut store = Store::new(EVERYTHING);
    let a = Claim::reader(1);
    let b = Claim::reader(2);
    let w = Claim::writer(3).of("nobody");
    store.acquire(&a).token();
    assert!(store.acquire(&w).is_busy());
    store.acquire(&b).token();
    assert_eq!(store.inspect().used, 2);
}

#[test]
fn c12_readers_and_writers_are_served_in_order() {
    let mut store = Store::new(EVERYTHING);
    let holder = Claim::writer(1);
    let line = [
        Claim::reader(2),
        Claim::reader(3),
        Claim::writer(4),
        Claim::reader(5),
        Claim::writer(6),
        Claim::writer(7),
        Claim::reader(8),
    ]
    .map(|claim| claim.of("a"));
    store.acquire(&holder).token();
    for claim in &line {
        store.advance_micros(1);
        assert!(store.acquire(claim).is_busy());
    }
    store.release(&holder);
    let served = [&line[..2], &line[2..3], &line[3..4], &line[4..5], &line[5..6], &line[6..]];
    for claims in served {
        assert_eq!(store.told_ids(), claims.iter().map(Claim::id).collect::<Vec<_>>());
        for claim in claims {
            assert_eq!(store.release(claim), 1);
        }
    }
    store.assert_idle();
}
