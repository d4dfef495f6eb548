//! Tests the whole program against stores with deliberate flaws: real processes on a real Redis,
//! each behind a flaw.
//!
//! The simulation tests the flaws that need a rare coincidence, or that Redis corrects by itself:
//! see `self_test.rs`. There a seed repeats them. The test binary starts itself again as the
//! processes that take locks.

use std::{env, process::ExitCode, sync::Arc, time::Duration};

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit::{
    Locker,
    redis::{Config, Redis},
    spi::Backend,
    url::StoreUrl,
};
use lockkit_conformance::mutant::{Flaw, Mutation};
use lockkit_fixture::RedisServer;
use lockkit_torture::{
    check::Rule,
    child::{Program, child},
    ear::Ear,
    run::{Arena, Outcome, Round},
    site::Elsewhere,
    workload::Workload,
};
use tokio::runtime::{Builder, Runtime};

const CHILD: &str = "be-a-mutant";
/// A flaw appears in one round. A busy machine may need another round.
const ROUNDS: u64 = 4;

/// The rules for the flaw. At least one rule must find it.
const CAUGHT: [(Flaw, &[Rule]); 4] = [
    (Flaw::ConstantToken, &[Rule::Tokens]),
    (Flaw::DeleteWithoutCompare, &[Rule::Exclusion, Rule::Register]),
    (Flaw::NoRecheckAfterWait, &[Rule::Exclusion]),
    (Flaw::TokenSharedByPermits, &[Rule::Tokens]),
];

fn main() -> ExitCode {
    let mut words = env::args().skip(1);
    if words.next().as_deref() == Some(CHILD) {
        let flaw = words.next().and_then(|word| word.parse().ok());
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return match runtime.block_on(child(async |url: &str| connect(url, flaw).await)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut arguments = Arguments::from_args();
    // The tests spend most of their time on waits for leases.
    arguments.test_threads.get_or_insert(3);
    let mut trials: Vec<_> = CAUGHT
        .into_iter()
        .map(|(flaw, rules)| {
            Trial::test(format!("{flaw:?}_is_caught"), move || is_caught(flaw, rules))
        })
        .collect();
    let deaf = [("deaf", Ear::Deaf), ("late", Ear::Late(Duration::from_millis(2_500)))];
    trials.extend(deaf.map(|(name, ear)| {
        Trial::test(format!("a_{name}_holder_is_caught"), move || {
            caught(name, ear, &[CHILD.to_owned()], &[Rule::Loss])
        })
    }));
    trials.push(Trial::test("a_store_without_a_flaw_passes", is_clean));
    libtest_mimic::run(&arguments, trials).exit_code()
}

async fn connect(url: &str, flaw: Option<Flaw>) -> lockkit::Result<Locker> {
    let redis: Arc<dyn Backend> =
        Arc::new(Redis::connect(Config::from_url(StoreUrl::parse(url)?)?).await?);
    let backend = match flaw {
        Some(flaw) => Mutation::new(flaw).wrap(redis),
        None => redis,
    };
    Ok(Locker::builder(backend).build())
}

/// Plays one round on a server of its own.
fn play(words: &[String], ear: Ear, seed: u64) -> Result<Outcome, Failed> {
    let redis = RedisServer::start()?;
    let folder = tempfile::tempdir()?;
    let mut workload = Workload::new(3, 5);
    workload.ttls = vec![Duration::from_millis(300), Duration::from_millis(600)];
    workload.ear = ear;
    let round = Round {
        seed,
        span: Duration::from_secs(5),
        calm: Duration::from_secs(1),
        workload,
        only: Vec::new(),
        pause: Duration::from_millis(400),
        slack: Duration::from_secs(2),
        folder: folder.path().join("round"),
    };
    let arena = Arena::new(Box::new(Elsewhere::new(redis.url())), Program::this_program(words)?);
    Ok(Runtime::new()?.block_on(arena.play(&round, |_| {}))?)
}

fn is_caught(flaw: Flaw, rules: &[Rule]) -> Result<(), Failed> {
    let flaw = format!("{flaw:?}");
    caught(&flaw, Ear::Sound, &[CHILD.to_owned(), flaw.clone()], rules)
}

fn caught(what: &str, ear: Ear, words: &[String], rules: &[Rule]) -> Result<(), Failed> {
    let mut told = Vec::new();
    for seed in 0..ROUNDS {
        let outcome = play(words, ear, seed)?;
        if let Some(found) =
            outcome.verdict.violations.iter().find(|found| rules.contains(&found.rule))
        {
            println!("{what}: seed {seed}, {}: {}", found.rule, found.what);
            return Ok(());
        }
        told.extend(outcome.verdict.violations.into_iter().map(|found| found.what));
    }
    Err(format!("{what} was not caught by {rules:?} in {ROUNDS} rounds; the findings: {told:?}")
        .into())
}

fn is_clean() -> Result<(), Failed> {
    let outcome = play(&[CHILD.to_owned()], Ear::Sound, 0)?;
    let found = outcome.verdict.violations;
    let grants = outcome.verdict.figures.grants;
    if found.is_empty() && grants > 50 {
        return Ok(());
    }
    Err(format!("{grants} grants, {found:?}").into())
}
