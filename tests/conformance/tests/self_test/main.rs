//! Tests the suite with deliberately wrong stores: the case for each flaw must catch it. The right
//! store passes the same cases.

mod mutant;
mod slow;
#[path = "../support/mod.rs"]
mod support;

use std::{collections::BTreeSet, process::ExitCode, sync::Arc, time::Duration};

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit_conformance::{
    Store,
    mutant::Flaw,
    override_slack, run_case,
    stores::{MemoryStore, QuorumStore},
};
use lockkit_quorum::Need;

use self::{
    mutant::MutantStore,
    slow::{SlowStore, Slowness},
    support::{
        blocking::{BlockingFlaw, blocking},
        min_ttl::min_ttl,
        session::{SessionFlaw, SessionStore},
    },
};

/// The delay of each request and each reply, which is longer than a request of a 60 ms lease may
/// take.
const A_LONG_WAY: Duration = Duration::from_millis(25);
/// A pause as of a disk that is busy with other work.
const A_STALL: Duration = Duration::from_secs(2);

/// Each flaw, and the cases that must fail on it.
const CAUGHT: &[(Flaw, &[&str])] = &[
    (
        Flaw::AttemptByAnotherOwner,
        &["c5_reply_lost_same_token", "c5_a_storm_of_faults_breaks_nothing"],
    ),
    (Flaw::BlocksWhileAway, &["c8_a_bound_is_kept_while_the_store_is_out_of_reach"]),
    (Flaw::BroadcastOnRelease, &["c8_one_release_does_not_wake_all"]),
    (Flaw::ConstantToken, &["c4_tokens_rise_over_releases", "c1_a_storm_of_tasks_never_overlaps"]),
    (Flaw::DeadlineFromReply, &["c3_the_deadline_counts_from_before_the_request"]),
    (
        Flaw::DeleteWithoutCompare,
        &["c2_a_past_owners_release_changes_nothing", "c7_a_release_is_idempotent"],
    ),
    (Flaw::ExtendThatShortens, &["c2_a_renewal_never_shortens"]),
    (Flaw::ForceReleaseWithoutCompare, &["c14_force_release_of_another_token_changes_nothing"]),
    (Flaw::FoldedNames, &["c11_names_that_look_alike_are_different_locks"]),
    (Flaw::FrozenClock, &["c14_the_store_reports_its_time"]),
    (Flaw::FullRefusesRenewals, &["c10_a_full_store_ends_no_hold"]),
    (Flaw::LeakedFile, &["c1_a_held_lock_is_refused_to_others"]),
    (Flaw::LeakedTask, &["c1_a_held_lock_is_refused_to_others"]),
    (
        Flaw::LimitOffByOne,
        &["c1_permits_add_up_to_the_limit", "c1_a_storm_on_permits_never_exceeds_the_limit"],
    ),
    (
        Flaw::LostRenewalIgnored,
        &["c10_a_lost_renewal_is_believed", "c2_a_past_owners_renewal_is_refused"],
    ),
    (Flaw::MuteStore, &["c8_a_push_beats_the_poll"]),
    (Flaw::NamesOfEachKind, &["c14_names_in_use_are_listed_by_prefix"]),
    (Flaw::NoLease, &["c9_a_dead_holder_frees_within_its_lease"]),
    (Flaw::NoQueue, &["c12_waiters_are_granted_in_order"]),
    (Flaw::NoRecheckAfterWait, &["c8_a_spurious_wake_up_grants_nothing"]),
    (Flaw::NeverRenewed, &["c10_a_live_holder_keeps_it_for_many_leases"]),
    (Flaw::NoteIsRenewal, &["c10_notes_back_to_back_do_not_starve_renewal"]),
    (Flaw::NoteIsReplaced, &["c5_an_older_note_never_replaces_a_newer_one"]),
    (
        Flaw::NoteOfAnybody,
        &[
            "c2_only_the_present_holder_writes_the_note",
            "c2_a_holder_whose_lock_was_freed_writes_no_note",
            "c2_a_run_whose_lock_was_freed_finishes_no_slot",
        ],
    ),
    (Flaw::OneRuntime, &["c7_a_release_that_its_runtime_did_not_finish_is_done"]),
    (Flaw::QueueEntryStays, &["c8_a_wait_that_timed_out_is_out_of_the_queue"]),
    (Flaw::ReadersApart, &["c1_readers_share_and_exclude_the_writer"]),
    (Flaw::ReleaseAlwaysFreed, &["c7_a_release_reports_freed_or_not_held"]),
    (Flaw::ReleasedIsNotHeld, &["c7_a_release_reports_freed_or_not_held"]),
    (Flaw::RenewalOfNothing, &["c10_a_live_holder_keeps_it_for_many_leases"]),
    (Flaw::RenewalRecreates, &["c2_a_renewal_never_recreates"]),
    (Flaw::RenewalTellsWhatIsLeft, &["c3_a_clock_that_goes_back_promises_no_more_than_was_asked"]),
    (
        Flaw::RenewsOnce,
        &[
            "c10_a_live_holder_keeps_it_for_many_leases",
            "c10_a_hold_with_a_max_is_renewed_until_then",
            "c10_a_leaked_lock_stays_without_its_locker",
            "c3_a_hold_ends_at_its_max_and_is_freed",
        ],
    ),
    (Flaw::ReplyLostIsFailed, &["c7_a_release_whose_reply_is_lost_is_freed"]),
    (Flaw::ResumeCompetes, &["c2_a_stale_ticket_takes_nothing"]),
    (
        Flaw::ResumeKeepsTheOwner,
        &["c2_a_ticket_works_once", "c2_the_former_owner_can_do_nothing_after_a_resume"],
    ),
    (Flaw::ResumeRaisesTheToken, &["c2_a_ticket_moves_the_hold_with_its_token"]),
    (Flaw::RetryReportsWholeLease, &["c5_a_retry_reports_a_lease_that_the_store_has"]),
    (Flaw::SlowRenewal, &["c10_a_live_holder_keeps_it_for_many_leases"]),
    (Flaw::SlowRenewalIgnored, &["c10_slow_round_trips_end_no_hold"]),
    (Flaw::TokenSharedByPermits, &["c4_no_two_permits_share_a_token"]),
    (Flaw::UnreleasedOnTrouble, &["c7_a_release_is_idempotent"]),
];

/// Each flaw of a store with sessions, and the cases that must fail on it.
const CAUGHT_ON_SESSIONS: &[(SessionFlaw, &[&str])] = &[
    (
        SessionFlaw::Endless,
        &[
            "c9_a_dead_holder_frees_within_its_lease",
            "c9_a_dead_permit_frees_within_its_lease",
            "c9_a_dead_reader_frees_within_its_lease",
            "c9_a_dead_waiter_does_not_block_the_queue",
            "c14_an_ended_lease_is_not_shown",
        ],
    ),
    (SessionFlaw::LateIsNoProof, &["c10_slow_round_trips_end_no_hold"]),
    (SessionFlaw::ProvenByNothing, &["c3_the_store_keeps_what_it_confirmed"]),
];

/// A flaw of stores with or without sessions. With sessions, a renewal gets the session's lease as
/// its answer, even if the claim has ended.
const CAUGHT_ON_SESSIONS_TOO: (Flaw, [&str; 2]) = (
    Flaw::LostRenewalIgnored,
    ["c2_a_past_owners_renewal_is_refused", "c10_a_lost_renewal_is_believed"],
);

/// Cases with leases of some milliseconds, which must pass on a right but slow store.
const PASS_ON_SLOW_STORES: &[&str] = &[
    "c1_overstayed_leases_never_overlap",
    "c10_nothing_is_renewed_after_its_release",
    "c6_a_crowd_that_is_cancelled_leaves_nothing",
];

/// Each flaw of a store of several parts, and the cases that must fail on it.
const CAUGHT_ON_PARTS: &[(Flaw, &[&str])] = &[
    (
        Flaw::LooksAtOnePart,
        &[
            "c14_no_other_token_is_shown_while_a_part_is_late_or_silent",
            "c14_election_a_leader_has_one_term_whichever_part_is_silent",
        ],
    ),
    (Flaw::NeverRaised, &["c4_tokens_rise_whichever_part_joins_late"]),
    (Flaw::UnclearIsFree, &["c14_a_held_lock_is_never_called_free_while_a_part_is_silent"]),
];

const BLOCKING_CASE: &str = "c6_a_cancelled_waiter_leaves_the_store_at_once";
const CAUGHT_WHILE_BLOCKING: &[BlockingFlaw] =
    &[BlockingFlaw::IgnoresCaller, BlockingFlaw::LeavesItsPlace];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for (flaw, cases) in CAUGHT {
        for case in *cases {
            let store = MutantStore { right: MemoryStore::new(), flaw: *flaw };
            trials.push(Trial::test(format!("{flaw:?}::is_caught_by::{case}"), || {
                is_caught(store, case)
            }));
        }
    }
    for (flaw, cases) in CAUGHT_ON_SESSIONS {
        for case in *cases {
            let name = format!("session::{flaw:?}::is_caught_by::{case}");
            trials.push(Trial::test(name, || is_caught(SessionStore(Some(*flaw)), case)));
        }
    }
    let (flaw, cases) = CAUGHT_ON_SESSIONS_TOO;
    for case in cases {
        let store = MutantStore { right: SessionStore(None), flaw };
        let name = format!("session::{flaw:?}::is_caught_by::{case}");
        trials.push(Trial::test(name, || is_caught(store, case)));
    }
    for (flaw, cases) in CAUGHT_ON_PARTS {
        for case in *cases {
            let right = QuorumStore::new(3, Need::Majority);
            let wrong = right.clone().with_flaw(*flaw);
            let name = format!("parts::{flaw:?}::is_caught_by::{case}");
            trials.push(Trial::test(name, || is_caught(wrong, case)));
            trials.push(Trial::test(format!("parts::the_right_store::passes::{case}"), || {
                passes(right, case)
            }));
        }
    }
    for flaw in CAUGHT_WHILE_BLOCKING {
        let name = format!("blocking::{flaw:?}::is_caught_by::{BLOCKING_CASE}");
        trials.push(Trial::test(name, || is_caught(blocking(Some(*flaw)), BLOCKING_CASE)));
    }
    let case = "c13_bad_options_are_refused";
    let name = format!("min_ttl::TakesAnyTtl::is_caught_by::{case}");
    trials.push(Trial::test(name, || is_caught(min_ttl(false), case)));
    let cases: BTreeSet<_> = CAUGHT.iter().flat_map(|(_, cases)| *cases).collect();
    for case in cases {
        let name = format!("the_right_store::passes::{case}");
        trials.push(Trial::test(name, || passes(MemoryStore::new(), case)));
    }
    for slowness in [Slowness::Always(A_LONG_WAY), Slowness::NowAndThen(A_STALL)] {
        for case in PASS_ON_SLOW_STORES {
            let name = format!("slow::{slowness:?}::passes::{case}");
            trials.push(Trial::test(name, move || passes(SlowStore(slowness), case)));
        }
    }
    trials.push(Trial::test("each_flaw_has_its_case", each_flaw_has_its_case));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Fails if a flaw has no case.
fn each_flaw_has_its_case() -> Result<(), Failed> {
    let caught: BTreeSet<_> = CAUGHT.iter().chain(CAUGHT_ON_PARTS).map(|(flaw, _)| flaw).collect();
    let forgotten: Vec<_> = Flaw::ALL.iter().filter(|flaw| !caught.contains(flaw)).collect();
    if forgotten.is_empty() { Ok(()) } else { Err(format!("no case for {forgotten:?}").into()) }
}

fn passes(store: impl Store, case: &str) -> Result<(), Failed> {
    override_slack(None);
    let store: Arc<dyn Store> = Arc::new(store);
    Ok(run_case(&store, case)?)
}

fn is_caught(store: impl Store, case: &str) -> Result<(), Failed> {
    override_slack(Some(Duration::from_millis(600)));
    let store: Arc<dyn Store> = Arc::new(store);
    match run_case(&store, case) {
        Ok(()) => Err(format!("{case} passes on {store:?}").into()),
        Err(failure) => {
            println!(
                "{store:?} is caught by {case}: {}",
                failure.lines().next().unwrap_or_default()
            );
            Ok(())
        }
    }
}
