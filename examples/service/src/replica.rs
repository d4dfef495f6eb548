//! What a replica does under a lock: every one takes orders, and the leader ships them.

use std::{
    error::Error,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use lockkit::{Election, FencingToken, Hold, Locker, Result};
use tokio::time::sleep;

use crate::shop::Shop;

/// Whatever a lock's store or the shop's database says.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// One of the processes that make the service.
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) locker: Locker,
    pub(crate) election: Election,
    pub(crate) shop: Shop,
    /// Its latest term.
    term: Mutex<Option<Hold>>,
}

impl Replica {
    pub(crate) fn new(name: String, locker: Locker, shop: Shop) -> Result<Self> {
        let election = locker.election("shop/shipping")?;
        Ok(Self { name, locker, election, shop, term: Mutex::default() })
    }

    /// Exact, by the local clock.
    pub(crate) fn is_leader(&self) -> bool {
        self.term.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(Hold::is_held)
    }

    /// Gives an order the next number. Dropped with a client that hangs up, it leaves neither an
    /// order nor a lock.
    pub(crate) async fn take_order(&self) -> Result<(u64, FencingToken), Failure> {
        // With too many orders at once the wait ends in an error.
        let guard = self.locker.mutex("shop/orders")?.lock_timeout(Duration::from_secs(10)).await?;
        let number = self.shop.last_order()? + 1;
        let token = guard.fencing_token();
        guard.run(sleep(Duration::from_millis(5))).await?; // the customer pays
        let placed = self.shop.place(number, token)?;
        // The order stands, whatever becomes of the lock: that is given back in the background.
        drop(guard);
        if placed { Ok((number, token)) } else { Err("the order took too long, try again".into()) }
    }

    /// Leads whenever it is its turn, until something can't be mended.
    pub(crate) async fn lead(&self) -> Result<(), Failure> {
        self.election.lead(&self.name, |hold| self.ship(hold)).await??;
        Ok(())
    }

    /// Dropped where it stands when the leadership is lost.
    async fn ship(&self, hold: Hold) -> rusqlite::Result<()> {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner) = Some(hold.clone());
        println!("leads in term {}", hold.fencing_token());
        loop {
            let Some(order) = self.shop.next_to_ship()? else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            sleep(Duration::from_millis(20)).await; // the parcel is packed
            // A leader that was paused after its last look is refused here.
            let shipped = self.shop.ship(order, hold.fencing_token())?;
            println!("order {order} is shipped: {shipped}");
        }
    }
}
