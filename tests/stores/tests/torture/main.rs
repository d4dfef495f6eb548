//! Tortures every store that the suite knows, on servers of its own. Real processes do random work
//! under random faults, and a checker reads every step afterwards.
//!
//! As a test, it runs the first tier, a short round on each kind of store. `cargo xtask torture`
//! runs the other tiers. The program starts itself again as the processes that take locks.
//!
//! It also runs slots once: see `once`.

mod once;
mod site;
#[path = "../support/sql_leaks.rs"]
mod sql_leaks;
mod tiers;

use std::{env, path::PathBuf, process::ExitCode};

use clap::Parser;
use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_fixture::role;
use lockkit_torture::child::{Program, child};
use tokio::runtime::Builder;

use crate::tiers::first_tier;

const CHILD: &str = "torture-child";
const TIERS: &str = "tiers";
/// The seed is fixed, so that the faults are always the same, and each kind is among them.
const SEED: u64 = 8;
/// The target folder of the workspace, because cargo runs this program in the folder of its package.
const OUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/torture");

/// Runs the second tier, which takes minutes on every store and topology. With --hours, runs the
/// third tier
#[derive(Debug, Parser)]
struct Cli {
    /// Continues for this many hours, with more names and sometimes with a crowd
    #[arg(long)]
    hours: Option<f64>,
    /// Tests only this store; repeat this option for more
    #[arg(long = "store", value_name = "NAME")]
    stores: Vec<String>,
    /// The seed of all random choices
    #[arg(long)]
    seed: Option<u64>,
    /// Causes only this kind of fault; repeat this option for more
    #[arg(long = "fault", value_name = "KIND")]
    faults: Vec<String>,
    /// The number of stores to test at a time
    #[arg(long, default_value_t = 2)]
    lanes: usize,
    /// The folder for reports, and for histories of rounds with a broken promise
    #[arg(long, value_name = "FOLDER", default_value = OUT)]
    out: PathBuf,
}

fn main() -> Result<ExitCode, Failed> {
    if let Some(words) = role() {
        once::child::run(&words)?;
        return Ok(ExitCode::SUCCESS);
    }
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
    // The trials wait for leases most of the time.
    arguments.test_threads.get_or_insert(3);
    let rounds = first_tier().into_iter().map(|place| {
        Trial::test(format!("{}::keeps_its_promises_under_torture", place.0), move || {
            tiers::first(place, seed)
        })
    });
    // The longest trials begin first.
    let trials = once::trials().into_iter().chain(rounds).chain(site::trials::trials()).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn program() -> Result<Program, Failed> {
    Ok(Program::this_program([CHILD])?)
}
