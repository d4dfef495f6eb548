//! Counts the commands that a call costs the server.

use redis::Commands as _;

use crate::support::{Claim, NEVER, Store};

impl Store {
    /// How many commands the server has run, including those inside scripts.
    fn commands(&mut self) -> u64 {
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query(&mut self.connection).unwrap();
        let calls = stats.lines().filter_map(|line| line.split_once("calls="));
        calls.map(|(_, rest)| rest.split(',').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    fn cost(&mut self, of: impl FnOnce(&mut Self)) -> u64 {
        let _: () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut self.connection).unwrap();
        of(self);
        // The reset and the script itself do not count.
        self.commands() - 2
    }
}

#[test]
fn the_number_of_holders_and_waiters_does_not_count() {
    let mut store = Store::new(1_000_000);
    let pair = |store: &mut Store, number: u64| {
        let claim = Claim::new(number, 1).impatient();
        let acquire = store.cost(|store| assert_ne!(store.acquire(&claim).token(), 0));
        let extend = store.cost(|store| assert_eq!(store.extend(&claim, 10_000), 10_000));
        (acquire, extend, store.cost(|store| assert_eq!(store.release(&claim), 1)))
    };
    let alone = pair(&mut store, 1);
    store.acquire(&Claim::new(1, 1)).token();
    let beside_one = pair(&mut store, 2);
    for number in 2..1000 {
        store.acquire(&Claim::new(number, 1)).token();
    }
    let among_many = pair(&mut store, 1000);
    assert!(
        among_many.0 <= beside_one.0
            && among_many.1 <= beside_one.1
            && among_many.2 <= beside_one.2,
        "{beside_one:?} {among_many:?}"
    );
    store.acquire_with(&Claim::new(1001, 999_001), 10_000, NEVER, 1_000_000).token();
    for number in 2000..3000 {
        assert!(store.acquire(&Claim::new(number, 1)).is_busy());
    }
    let claim = Claim::new(3000, 1).impatient();
    let busy = store.cost(|store| assert!(store.acquire(&claim).is_busy()));
    assert!(busy <= beside_one.0, "{busy}");
    let handed_over = store.cost(|store| assert_eq!(store.release(&Claim::new(2, 1)), 1));
    println!(
        "acquire, extend, release alone: {alone:?}; beside one: {beside_one:?}; among many: {among_many:?}; busy {busy}; next {handed_over}"
    );
    assert!(handed_over <= beside_one.0 + beside_one.2 + 6, "{handed_over}");
    let live: u64 = store.connection.zcard("live").unwrap();
    assert_eq!(live, 999);
}
