//! Tests the queue among real processes: processes that die, and the cost of many waiters.
//!
//! The test binary starts itself again as a client process.

mod child;
mod crash;
mod parent;
mod scale;

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_fixture::role;

type Case = fn() -> Result<(), Failed>;

fn main() -> Result<(), Failed> {
    if let Some(role) = role() {
        return child::run(&role);
    }
    let arguments = Arguments::from_args();
    let trials: [(&str, Case); 7] = [
        ("c9_a_killed_waiter_at_the_head_delays_for_a_claim_window_at_most", crash::killed),
        ("c9_a_stopped_waiter_at_the_head_delays_for_a_claim_window", crash::stopped),
        ("c9_waiters_of_a_killed_process_are_not_waited_for_one_by_one", crash::many_killed),
        ("c8_readers_pass_a_queued_writer_that_was_killed", crash::killed_writer),
        ("c8_light_waiters_pass_a_heavy_one_that_was_killed", crash::killed_heavy),
        ("c6_10_000_names_held_by_one_process_leave_nothing", scale::names),
        ("c6_1_000_waiters_on_one_name_are_served_or_leave", scale::crowd),
    ];
    let trials = trials.into_iter().map(|(name, case)| Trial::test(name, case)).collect();
    libtest_mimic::run(&arguments, trials).exit();
}
