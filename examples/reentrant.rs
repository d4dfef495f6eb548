//! Each function locks the data that it changes, and the functions call each other. With an owner,
//! the inner functions take the lock again.
//!
//! `cargo run --example reentrant` runs on the embedded memory store, or on the store of its
//! argument, a URL.

use std::env;

use lockkit::{FencingToken, Locker, Owner, Result};

/// An order and the owner that works on it. Functions and tasks get the owner by value or as a
/// clone.
struct Order {
    owner: Owner,
    items: Vec<(&'static str, FencingToken)>,
}

impl Order {
    /// Takes the lock itself, because callers may also call it directly.
    async fn add(&mut self, item: &'static str) -> Result<()> {
        let guard = self.owner.mutex("order/42")?.lock().await?;
        self.items.push((item, guard.fencing_token()));
        guard.release().await
    }

    /// Adds both items. No other owner sees only one of them.
    async fn add_pair(&mut self, a: &'static str, b: &'static str) -> Result<()> {
        let guard = self.owner.mutex("order/42")?.lock().await?;
        for item in [a, b] {
            self.add(item).await?; // immediate, without a request to the store
            assert!(guard.is_held());
        }
        println!("added the pair under token {}", guard.fencing_token());
        guard.release().await
    }
}

/// Shows that the lock excludes another owner, also in this process.
async fn others_are_excluded(locker: &Locker, owner: &Owner) -> Result<()> {
    let guard = owner.mutex("order/42")?.lock().await?;
    let other = locker.owner().mutex("order/42")?;
    let plain = locker.mutex("order/42")?;
    assert!(other.try_lock().await?.is_none() && plain.try_lock().await?.is_none());
    let helper = owner.clone();
    // A task that got a clone of the owner shares the hold.
    let help = tokio::spawn(async move {
        let again = helper.mutex("order/42")?.lock().await?;
        Ok(again.fencing_token())
    });
    let token = help.await.expect("the helper does not panic")?;
    assert_eq!(token, guard.fencing_token());
    println!("the helper shares token {token}, and other owners wait");
    drop(guard);
    plain.lock().await?.release().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    let mut order = Order { owner: locker.owner(), items: Vec::new() };
    order.add("tea").await?;
    order.add_pair("cup", "saucer").await?;
    println!("the order on {}: {:?}", locker.descriptor().name, order.items);
    assert_eq!(order.items[1].1, order.items[2].1, "one hold for the pair");
    assert!(order.items[0].1 < order.items[1].1, "and another for the tea");
    others_are_excluded(&locker, &order.owner).await?;
    locker.shutdown().await
}
