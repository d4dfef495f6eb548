//! Tests locks among real processes: some die, some are stopped, others come next.
//!
//! The test binary starts itself again as a client process.

mod child;
mod crash;
mod parent;
mod queue;
mod stopped;

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_fixture::role;

type Case = fn() -> Result<(), Failed>;

fn main() -> Result<(), Failed> {
    if let Some(role) = role() {
        return child::run(&role);
    }
    let arguments = Arguments::from_args();
    let trials: [(&str, Case); 9] = [
        ("c9_a_killed_holder_hands_over_at_once", crash::holder),
        ("c9_a_killed_waiter_at_the_head_is_passed_over", crash::waiter),
        ("c9_a_child_that_was_executed_does_not_keep_the_lock", crash::executed_child),
        ("c1_c4_processes_killed_at_random_never_hold_together", crash::storm),
        ("c12_waiters_of_six_processes_are_served_in_order", queue::in_order),
        ("c9_a_stopped_holder_holds_and_goes_on", stopped::holder),
        ("c9_a_stopped_waiter_loses_its_turn", stopped::waiter),
        ("c13_who_is_stopped_inside_the_gate_is_named", stopped::inside_the_gate),
        ("c3_who_is_stopped_while_its_session_is_removed_is_told", stopped::without_a_session),
    ];
    let trials = trials.into_iter().map(|(name, case)| Trial::test(name, case)).collect();
    libtest_mimic::run(&arguments, trials).exit();
}
