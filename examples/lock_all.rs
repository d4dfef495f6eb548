//! Transfers between accounts. Each transfer takes the locks of both accounts, without a deadlock.
//!
//! `cargo run --example lock_all` runs on the embedded memory store, or on the store of its
//! argument.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use lockkit::{FencingToken, LockOptions, Locker, Result};
use tokio::task::JoinSet;

/// Compares tokens, as a row with a token column would.
#[derive(Default)]
struct Account {
    balance: AtomicI64,
    largest: AtomicU64,
}

impl Account {
    fn add(&self, amount: i64, token: FencingToken) -> bool {
        let fresh = self.largest.fetch_max(token.get(), SeqCst) <= token.get();
        if fresh {
            // The read and the write are two steps, so amounts would get lost without the lock.
            let balance = self.balance.load(SeqCst);
            std::thread::yield_now();
            self.balance.store(balance + amount, SeqCst);
        }
        fresh
    }
}

async fn transfer(locker: &Locker, accounts: &[Account; 4], from: usize, to: usize) -> Result<()> {
    let from_name = format!("account/{from}");
    let to_name = format!("account/{to}");
    let options = LockOptions::new().with_wait(Duration::from_secs(30));
    // The names may be in any order, because lockkit takes the locks in the order of their names.
    let both = locker.mutex_set([&from_name, &to_name])?.with_options(options)?.lock().await?;
    let token = |name: &str| both.fencing_token(name).expect("it is one of the two names");
    let moved = both
        .run(async {
            tokio::time::sleep(Duration::from_millis(1)).await; // the checks of the transfer
            accounts[from].add(-10, token(&from_name)) && accounts[to].add(10, token(&to_name))
        })
        .await?;
    assert!(moved, "a stale token although the lock was held");
    both.release().await // an error names the locks that were lost during the transfer
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    let accounts: Arc<[Account; 4]> = Arc::default();
    let mut tasks = JoinSet::new();
    for task in 0..12 {
        let locker = locker.clone();
        let accounts = Arc::clone(&accounts);
        let from = task % 4;
        let to = (task + 1 + task / 4) % 4;
        tasks.spawn(async move { transfer(&locker, &accounts, from, to).await });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.expect("no transfer panics")?;
    }
    let balances = accounts.each_ref().map(|account| account.balance.load(SeqCst));
    println!(
        "after 12 transfers on {}, the balances are unchanged: {balances:?}",
        locker.descriptor().name
    );
    assert_eq!(balances, [0; 4], "each account sent as much as it received");
    locker.shutdown().await
}
