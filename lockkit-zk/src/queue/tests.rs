use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

fn queue(kind: Kind, names: &[&str]) -> Queue {
    Queue::new(kind, names.iter().map(|&name| name.to_owned()).collect()).unwrap()
}

fn name(role: Role, id: u32, sequence: i32) -> String {
    format!("{}{sequence:010}", role.stem(&id.to_string()))
}

fn permits(count: u32, limit: u32) -> Role {
    Role::Permits { count: count.try_into().unwrap(), limit: limit.try_into().unwrap() }
}

#[test]
fn names_of_curator_and_of_our_own_are_read() {
    let curator = "_c_6b1f4d8e-9a3c-4c1d-8f3e-2a7b9c0d1e2f-lock-0000000012";
    assert_eq!(parse(curator), Some((Role::Lock, 12)));
    assert_eq!(parse("lock-0000000003"), Some((Role::Lock, 3)));
    assert_eq!(parse("_c_x-__READ__0000000001"), Some((Role::Read, 1)));
    assert_eq!(parse("_c_x-__WRIT__-2147483648"), Some((Role::Write, i32::MIN)));
    assert_eq!(parse("_c_x-permits-2of5-0000000001"), Some((permits(2, 5), 1)));
    for role in [Role::Lock, Role::Read, Role::Write, permits(7, u32::MAX)] {
        for sequence in [0, 7, i32::MAX, i32::MIN, -1] {
            assert_eq!(parse(&name(role, 1, sequence)), Some((role, sequence)));
        }
    }
}

#[test]
fn c13_a_foreign_node_in_the_folder_is_named() {
    for stranger in [
        "held",
        "lock",
        "lock-12",
        "x__lock__0000000001",
        "_c_x-permits-0of5-0000000001",
        "_c_x-__READ__",
    ] {
        assert_eq!(Queue::new(Kind::Mutex, vec![stranger.to_owned()]), Err(stranger.to_owned()));
    }
    // Nodes of later formats are refused, whatever their names end with.
    for (kind, newer) in [
        (Kind::Mutex, "lockkit-2-lock-0000000001"),
        (Kind::RwLock, "lockkit-2-__READ__0000000001"),
        (Kind::Semaphore, "lockkit-2-permits-2of3-0000000001"),
    ] {
        assert_eq!(Queue::new(kind, vec![newer.to_owned()]), Err(newer.to_owned()));
    }
    let reader = "_c_x-__READ__0000000001".to_owned();
    assert_eq!(Queue::new(Kind::Mutex, vec![reader.clone()]), Err(reader));
}

#[test]
fn c12_an_exclusive_waiter_waits_for_the_one_before_it() {
    let queue = queue(
        Kind::Mutex,
        &["_c_z-lock-0000000003", "_c_y-lock-0000000001", "_c_a-lock-0000000002"],
    );
    assert_eq!(queue.turn("_c_y-lock-0000000001"), Turn::Granted);
    assert_eq!(
        queue.turn("_c_a-lock-0000000002"),
        Turn::After(Obstacle::Last("_c_y-lock-0000000001".to_owned()))
    );
    assert_eq!(
        queue.turn("_c_z-lock-0000000003"),
        Turn::After(Obstacle::Next("_c_a-lock-0000000002".to_owned()))
    );
    assert_eq!(queue.turn("_c_b-lock-0000000002"), Turn::Missing);
}

#[test]
fn c12_the_order_survives_the_overflow_of_the_counter() {
    let last = "_c_a-lock--2147483648";
    let first = "_c_z-lock-2147483647";
    for names in [[last, first], [first, last]] {
        let queue = queue(Kind::Mutex, &names);
        assert_eq!(queue.turn(first), Turn::Granted);
        assert_eq!(queue.turn(last), Turn::After(Obstacle::Last(first.to_owned())));
    }
}

#[test]
fn c12_a_reader_waits_for_the_nearest_earlier_writer_and_a_writer_for_the_nearest_node() {
    let r1 = "_c_a-__READ__0000000001";
    let w2 = "_c_b-__WRIT__0000000002";
    let r3 = "_c_c-__READ__0000000003";
    let w4 = "_c_d-__WRIT__0000000004";
    let r5 = "_c_e-__READ__0000000005";
    let queue = queue(Kind::RwLock, &[r5, w4, r3, w2, r1]);
    assert_eq!(queue.turn(r1), Turn::Granted);
    assert_eq!(queue.turn(w2), Turn::After(Obstacle::Next(r1.to_owned())));
    assert_eq!(queue.turn(r3), Turn::After(Obstacle::Last(w2.to_owned())));
    assert_eq!(queue.turn(w4), Turn::After(Obstacle::Next(r3.to_owned())));
    assert_eq!(queue.turn(r5), Turn::After(Obstacle::Next(w4.to_owned())));
    assert_eq!(queue.holders().0.len(), 1);
    assert_eq!(queue.holders().1, 4);
}

#[test]
fn c12_the_first_waiter_for_permits_watches_the_holders_and_the_others_their_predecessor() {
    let names: Vec<_> =
        (1..=4).map(|n| name(permits(2, 5), n, i32::try_from(n).unwrap())).collect();
    let queue = queue(Kind::Semaphore, &names.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(queue.turn(&names[1]), Turn::Granted);
    assert_eq!(queue.turn(&names[2]), Turn::After(Obstacle::Any(names[..2].to_vec())));
    assert_eq!(queue.turn(&names[3]), Turn::After(Obstacle::Next(names[2].clone())));
    assert_eq!(queue.turn_of_next(permits(1, 5)), Turn::After(Obstacle::Next(names[3].clone())));
    assert_eq!(queue.turn_of_next(permits(1, 6)), Turn::Disagrees { limit: 5.try_into().unwrap() });
}

#[test]
fn many_holders_are_watched_by_their_folder() {
    let names: Vec<_> =
        (1..=17).map(|n| name(permits(1, 17), n, i32::try_from(n).unwrap())).collect();
    let queue = queue(Kind::Semaphore, &names.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(queue.turn_of_next(permits(1, 17)), Turn::After(Obstacle::Folder));
}

#[test]
fn a_semaphore_with_weights_that_do_not_fit_in_32_bits_is_no_trap() {
    let names = [name(permits(u32::MAX, u32::MAX), 1, 1), name(permits(u32::MAX, u32::MAX), 2, 2)];
    let queue = queue(Kind::Semaphore, &[&names[0], &names[1]]);
    assert_eq!(queue.turn(&names[1]), Turn::After(Obstacle::Any(vec![names[0].clone()])));
    assert_eq!(queue.holders().1, 1);
}

#[test]
fn c1_a_read_lock_that_java_takes_under_its_write_lock_is_held_beside_it() {
    let write = "_c_z-__WRIT__0000000003";
    let read = "_c_a-__READ__0000000003";
    let waiter = "_c_b-__WRIT__0000000004";
    let behind = "_c_c-__READ__0000000005";
    for names in [[read, write, behind, waiter], [waiter, write, behind, read]] {
        let queue = queue(Kind::RwLock, &names);
        let (holders, waiters) = queue.holders();
        assert_eq!(
            holders.iter().map(|holder| holder.role).collect::<Vec<_>>(),
            [Role::Write, Role::Read]
        );
        assert_eq!(waiters, 2);
        assert_eq!(queue.turn(waiter), Turn::After(Obstacle::Next(read.to_owned())));
        assert_eq!(queue.turn(behind), Turn::After(Obstacle::Next(waiter.to_owned())));
    }
    let queue = queue(Kind::RwLock, &[behind, waiter, read]);
    assert_eq!((queue.holders().0[0].name.as_str(), queue.holders().1), (read, 2));
    assert_eq!(queue.turn(waiter), Turn::After(Obstacle::Next(read.to_owned())));
}

/// Checks that each waiter is woken by its obstacle, and that the granted members are the holders.
/// `becomes` says which leaving writers leave a read lock with their number behind.
fn check(
    kind: Kind,
    roles: Vec<Role>,
    leaving: Vec<usize>,
    becomes: &[bool],
) -> Result<(), TestCaseError> {
    let all: Vec<_> =
        roles.iter().zip(1..).map(|(role, n)| name(*role, u32::try_from(n).unwrap(), n)).collect();
    let mut present: VecDeque<_> = all.iter().cloned().collect();
    for (step, leaver) in leaving.into_iter().enumerate() {
        let before = Queue::new(kind, present.iter().cloned().collect()).unwrap();
        let granted: BTreeSet<_> =
            present.iter().filter(|name| before.turn(name) == Turn::Granted).cloned().collect();
        let holders: BTreeSet<_> =
            before.holders().0.iter().map(|member| member.name.clone()).collect();
        prop_assert_eq!(&granted, &holders);
        prop_assert!(
            present.is_empty() || !holders.is_empty(),
            "nobody holds it and somebody waits"
        );
        if present.is_empty() {
            break;
        }
        let gone = present.remove(leaver % present.len()).unwrap();
        let mut reached = BTreeSet::new();
        // Only a holder can leave a read lock behind.
        if let Some((Role::Write, number)) = parse(&gone)
            && holders.contains(&gone)
            && becomes.get(step) == Some(&true)
        {
            let reader = name(Role::Read, 0, number);
            present.push_front(reader.clone());
            reached.insert(reader);
        }
        let after = Queue::new(kind, present.iter().cloned().collect()).unwrap();
        let newly: BTreeSet<_> =
            after.holders().0.iter().map(|member| member.name.clone()).collect();
        prop_assert!(
            holders.iter().all(|name| *name == gone || newly.contains(name)),
            "a holder lost it"
        );
        let change = Change { kind, before: &before, present: &present, newly: &newly };
        change.wake(gone, &mut reached)?;
        let missed: Vec<_> =
            newly.difference(&holders).filter(|name| !reached.contains(*name)).collect();
        prop_assert!(missed.is_empty(), "granted and not woken: {missed:?}");
    }
    Ok(())
}

/// The queue before a member left it, and what is there afterwards.
struct Change<'a> {
    kind: Kind,
    before: &'a Queue,
    present: &'a VecDeque<String>,
    /// The holders afterwards.
    newly: &'a BTreeSet<String>,
}

impl Change<'_> {
    /// Adds all waiters that the leaver wakes to those that were reached.
    fn wake(&self, gone: String, reached: &mut BTreeSet<String>) -> Result<(), TestCaseError> {
        // The leaver causes a wake-up. Each new holder of permits causes one, too, because it
        // changes its node. The wake-up reaches the members that watch that node.
        let mut woken = VecDeque::from([gone]);
        while let Some(cause) = woken.pop_front() {
            for waiter in self.present {
                let hears = match self.before.turn(waiter) {
                    Turn::After(Obstacle::Last(name)) if name == cause => {
                        prop_assert!(
                            self.newly.contains(waiter),
                            "the last obstacle is gone and it waits on"
                        );
                        true
                    }
                    Turn::After(Obstacle::Next(name)) => name == cause,
                    Turn::After(Obstacle::Any(names)) => names.contains(&cause),
                    Turn::After(Obstacle::Folder) => true,
                    _ => false,
                };
                let says_so = self.kind == Kind::Semaphore && self.newly.contains(waiter);
                if hears && reached.insert(waiter.clone()) && says_so {
                    woken.push_back(waiter.clone());
                }
            }
        }
        Ok(())
    }
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![
        Just(Role::Lock),
        Just(Role::Read),
        Just(Role::Write),
        (1..=u32::MAX, 1..=u32::MAX).prop_map(|(one, two)| permits(one.min(two), one.max(two))),
    ]
}

/// The name of a node, or a text that resembles one.
fn node() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,40}",
        (role(), any::<u32>(), any::<i32>())
            .prop_map(|(role, id, sequence)| name(role, id, sequence)),
        "(_c_[0-9a-f]{2})?-(lock-|__READ__|__WRIT__|permits-[+]?[0-9]{1,2}of[+]?[0-9]{1,2}-)[-+]?0{0,3}[0-9]{7,10}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c12_the_servers_spelling_of_a_stem_is_understood(role in role(), id: u32, sequence: i32) {
        prop_assert_eq!(parse(&name(role, id, sequence)), Some((role, sequence)));
    }

    /// The server writes each number in one way, and lockkit writes its own parts in one way.
    #[test]
    fn c13_no_foreign_node_counts_as_a_queue_entry(node in node()) {
        if let Some((role, sequence)) = parse(&node) {
            let end = format!("{}{sequence:010}", role.stem(""));
            let end = end.trim_start_matches("_c_").trim_start_matches('-');
            prop_assert!(node.ends_with(end), "{node} is no {role:?} {sequence}");
            if let Role::Permits { count, limit } = role {
                prop_assert!(count <= limit, "{node} would wait for ever, and all behind it");
            }
        }
    }

    /// The order is by number, also across an overflow of the server's counter, in whatever order
    /// the names are listed.
    #[test]
    fn c12_the_queue_is_the_same_for_all_clients(
        (first, steps, order) in (any::<i32>(), prop::collection::vec(1..200_000_000i32, 1..10))
            .prop_flat_map(|(first, steps)| {
                let order = Just((0..steps.len()).collect::<Vec<_>>()).prop_shuffle();
                (prop_oneof![Just(i32::MAX - 3), Just(first)], Just(steps), order)
            }),
    ) {
        let mut sequence = first;
        let names: Vec<_> = steps.iter().zip(0u32..).map(|(step, id)| {
            sequence = sequence.wrapping_add(*step);
            // The ids have no order.
            name(Role::Lock, id.wrapping_mul(0x9e37_79b9), sequence)
        }).collect();
        let listed = order.into_iter().map(|at| names[at].clone()).collect();
        let sorted: Vec<_> = Queue::new(Kind::Mutex, listed).unwrap().0.into_iter().map(|member| member.name).collect();
        prop_assert_eq!(sorted, names);
    }

    #[test]
    fn c8_no_waiter_misses_its_turn_at_a_mutex(n in 1..8usize, leaving in prop::collection::vec(0..8usize, 8)) {
        check(Kind::Mutex, vec![Role::Lock; n], leaving, &[])?;
    }

    #[test]
    fn c8_no_waiter_misses_its_turn_at_a_read_write_lock(
        writers in prop::collection::vec(any::<bool>(), 1..9),
        leaving in prop::collection::vec(0..8usize, 9),
        becomes in prop::collection::vec(any::<bool>(), 9),
    ) {
        let roles = writers.iter().map(|&writer| if writer { Role::Write } else { Role::Read }).collect();
        check(Kind::RwLock, roles, leaving, &becomes)?;
    }

    #[test]
    fn c8_no_waiter_misses_its_turn_at_a_semaphore(
        limit in 1..6u32,
        counts in prop::collection::vec(1..6u32, 1..12),
        leaving in prop::collection::vec(0..12usize, 12),
    ) {
        let roles = counts.iter().map(|&count| permits(count.min(limit), limit)).collect();
        check(Kind::Semaphore, roles, leaving, &[])?;
    }
}
