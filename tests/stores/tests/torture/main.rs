//! Torture of every store that the suite knows, on servers of its own: random work in real
//! processes, random faults, and a checker that reads every step afterwards.
//!
//! Run as a test, it is the first tier, a short round on each kind of store. `cargo xtask torture`
//! runs the others. The program starts itself again as the processes that take locks.

mod site;
#[path = "../support/sql_leaks.rs"]
mod sql_leaks;
mod tiers;

use std::{env, path::PathBuf, process::ExitCode};

use clap::Parser;
use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_torture::child::{Program, child};
use tokio::runtime::Builder;

use crate::tiers::first_tier;

const CHILD: &str = "torture-child";
const TIERS: &str = "tiers";
/// The same faults each time, so that each kind is among them.
const SEED: u64 = 8;

/// The second tier, minutes on every store and topology; or with --hours the third.
#[derive(Debug, Parser)]
struct Cli {
    /// Goes on, with more names and sometimes with a crowd, until so much time has passed
    #[arg(long)]
    hours: Option<f64>,
    /// Only this one; repeat it for more
    #[arg(long = "store", value_name = "NAME")]
    stores: Vec<String>,
    /// All that is left to chance follows from it
    #[arg(long)]
    seed: Option<u64>,
    /// Only this kind of fault; repeat it for more
    #[arg(long = "fault", value_name = "KIND")]
    faults: Vec<String>,
    /// So many stores at a time
    #[arg(long, default_value_t = 2)]
    lanes: usize,
    /// Where reports go, and histories of rounds with a broken promise
    #[arg(long, value_name = "FOLDER", default_value = "target/torture")]
    out: PathBuf,
}

fn main() -> Result<ExitCode, Failed> {
    match env::args().nth(1).as_deref() {
        Some(CHILD) => {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(child(async |url: &str| lockkit::connect(url).await))?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(TIERS) => return tiers::run(&Cli::parse_from(env::args().skip(1))),
        _ => {}
    }
    let seed = env::var("LOCKKIT_TORTURE_SEED").map_or(Ok(SEED), |text| text.parse())?;
    let mut arguments = Arguments::from_args();
    // They wait for leases more than they work.
    arguments.test_threads.get_or_insert(2);
    let rounds = first_tier().into_iter().map(|place| {
        Trial::test(format!("{}::keeps_its_promises_under_torture", place.0), move || {
            tiers::first(place, seed)
        })
    });
    let trials = rounds.chain(site::trials::trials()).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn program() -> Result<Program, Failed> {
    Ok(Program::this_program([CHILD])?)
}
