//! Does the work of a replica under locks. Each replica takes orders, and the leader ships them.

use std::{
    error::Error,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use lockkit::{Election, FencingToken, Hold, Locker, Result};
use tokio::time::sleep;

use crate::shop::Shop;

/// Any error of a lock's store or of the shop's database.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// One of the processes of the service.
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) locker: Locker,
    pub(crate) election: Election,
    pub(crate) shop: Shop,
    /// The latest term of the replica.
    term: Mutex<Option<Hold>>,
}

impl Replica {
    pub(crate) fn new(name: String, locker: Locker, shop: Shop) -> Result<Self> {
        let election = locker.election("shop/shipping")?;
        Ok(Self { name, locker, election, shop, term: Mutex::default() })
    }

    /// Whether this replica leads. The answer is exact, by the local clock.
    pub(crate) fn is_leader(&self) -> bool {
        self.term.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(Hold::is_held)
    }

    /// Gives an order the next number. If the client disconnects, the server drops this call, which
    /// leaves neither an order nor a lock.
    pub(crate) async fn take_order(&self) -> Result<(u64, FencingToken), Failure> {
        // With too many orders at once, this wait ends in an error.
        let guard = self.locker.mutex("shop/orders")?.lock_timeout(Duration::from_secs(10)).await?;
        let number = self.shop.last_order()? + 1;
        let token = guard.fencing_token();
        guard.run(sleep(Duration::from_millis(5))).await?; // the customer pays
        let placed = self.shop.place(number, token)?;
        // The order is placed, even if the lock is lost. The background task releases the lock.
        drop(guard);
        if placed { Ok((number, token)) } else { Err("the order took too long; try again".into()) }
    }

    /// Leads whenever the store elects this replica, until a permanent error.
    pub(crate) async fn lead(&self) -> Result<(), Failure> {
        self.election.lead(&self.name, |hold| self.ship(hold)).await??;
        Ok(())
    }

    /// Ships orders. If the replica loses the leadership, lockkit drops this future at once.
    async fn ship(&self, hold: Hold) -> rusqlite::Result<()> {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner) = Some(hold.clone());
        println!("leads in term {}", hold.fencing_token());
        loop {
            let Some(order) = self.shop.next_to_ship()? else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            sleep(Duration::from_millis(20)).await; // packs the parcel
            // The database refuses a leader that paused after its last check.
            let shipped = self.shop.ship(order, hold.fencing_token())?;
            println!("order {order} is shipped: {shipped}");
        }
    }
}
