//! C1 and C3 when an ensemble breaks: followers are cut off and frozen, leaders killed and paused,
//! holders stalled. The tests run one at a time, because they check time bounds.

mod deposed;
mod follower;
mod leader;
mod note;
mod quorum;
mod servers;
mod stalled;
mod support;
mod tap;
mod vigil;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use lockkit_fixture::NamespacedEnsemble;
use tokio::runtime::Runtime;

fn main() -> Result<(), Failed> {
    let trials = vec![
        cutting("c3_a_follower_cut_from_its_leader_ends_the_lease_in_time", follower::cut),
        cutting("c1_c3_a_reconnect_to_a_deposed_leader_extends_no_lease", deposed::reconnect),
        cutting("c14_a_follower_that_lags_tells_no_old_note", note::old),
        trial(
            "c3_a_stalled_client_whose_follower_freezes_knows_before_the_leader_frees",
            stalled::stalled,
        ),
        trial("c3_locks_survive_leaders_that_are_killed", leader::killed),
        trial(
            "c1_c3_nobody_holds_twice_when_a_leader_is_paused_past_its_successor",
            leader::paused,
        ),
        trial("c3_heartbeats_by_write_prove_the_quorum", quorum::frozen_followers),
        trial("c3_dead_and_silent_servers_cost_no_lock", servers::dead_and_silent),
    ];
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit();
}

/// A test that cuts servers off, where that is possible. Elsewhere the test itself reports that it
/// was ignored. With an ignore flag, a run that includes the ignored tests would count it as
/// passed.
fn cutting<F: Future<Output = Result<(), Failed>>>(
    name: &str,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match NamespacedEnsemble::is_possible() {
        Ok(()) => run(test()).map(|()| Completion::Completed),
        Err(reason) => Ok(Completion::ignored_with(format!("not applicable: {reason}"))),
    })
}

fn trial<F: Future<Output = Result<(), Failed>>>(
    name: &str,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || run(test()))
}

fn run(test: impl Future<Output = Result<(), Failed>>) -> Result<(), Failed> {
    Runtime::new()?.block_on(test)
}
