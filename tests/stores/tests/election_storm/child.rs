//! The processes of a storm, and what they write down.

use std::{future::pending, time::Duration};

use libtest_mimic::Failed;
use lockkit::{Election, ErrorKind, Leadership, LockOptions};
use lockkit_torture::clock::now;
use rand::RngExt as _;
use tokio::{runtime::Builder, time::sleep};

pub(crate) const ELECTION: &str = "storm";
const BETWEEN_CHECKS: Duration = Duration::from_millis(10);

pub(crate) fn run(role: &str, url: &str, id: &str, ttl: Duration) -> Result<(), Failed> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locker = lockkit::connect(url).await?;
        let options = LockOptions::new().with_ttl(ttl);
        let election = locker.election(ELECTION)?.with_options(options)?;
        match role {
            "observer" => observe(&election).await,
            _ if id.starts_with(['0', '2', '4']) => by_hand(&election, id).await,
            _ => by_the_helper(&election, id).await,
        }
    })
}

async fn observe(election: &Election) -> Result<(), Failed> {
    let mut watch = election.watch();
    loop {
        match watch.changed().await? {
            Some(leader) => println!("saw {} {}", now(), leader.term),
            None => println!("nobody {}", now()),
        }
    }
}

async fn by_hand(election: &Election, id: &str) -> Result<(), Failed> {
    loop {
        let leadership = election.campaign(id).await?;
        if lead(&leadership).await {
            match leadership.resign().await {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

async fn by_the_helper(election: &Election, id: &str) -> Result<(), Failed> {
    loop {
        let work = async |leadership: &Leadership| {
            let _dropped = Dropped;
            if !lead(leadership).await {
                // The helper takes it from here.
                pending::<()>().await;
            }
        };
        election.lead(id, work).await?;
    }
}

/// Work of a leader that is dropped, or done.
struct Dropped;

impl Drop for Dropped {
    fn drop(&mut self) {
        println!("dropped {}", now());
    }
}

/// Writes down for how long it leads. False if that ended before it wanted to.
async fn lead(leadership: &Leadership) -> bool {
    let term = leadership.term();
    let stay = Duration::from_millis(match rand::rng().random_range(0..4) {
        0 => rand::rng().random_range(0..100),
        1 => rand::rng().random_range(300..1_000),
        _ => 3_000,
    });
    let until = now() + u64::try_from(stay.as_nanos()).unwrap();
    let mut word = "gained";
    loop {
        // Before it asks: what is true then, was true now.
        let at = now();
        let remaining = leadership.remaining();
        if remaining.is_zero() {
            println!("lost {at} {term}");
            return false;
        }
        println!("{word} {at} {term} {}", at + u64::try_from(remaining.as_nanos()).unwrap());
        word = "leads";
        if at >= until {
            println!("resigns {} {term}", now());
            return true;
        }
        sleep(BETWEEN_CHECKS).await;
    }
}
