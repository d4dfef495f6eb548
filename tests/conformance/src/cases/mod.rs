//! The cases, by promise.

mod c10_renewal;
mod c11_names;
mod c12_fairness;
mod c13_errors;
mod c14_inspection;
mod c1_exclusion;
mod c2_owner;
mod c3_lease;
mod c4_fencing;
mod c5_ambiguity;
mod c6_cancellation;
mod c7_release;
mod c8_waiting;
mod c9_crash;
mod election;
mod election_watch;
mod gate;
mod hold;
mod multi;
mod note;
mod once;
mod operator;
mod parts;
mod permits;
mod read_write;
mod reentrant;
mod request;
mod shares;
mod ticket;
mod token;
mod transfer;

use crate::case::Case;

/// All cases, in the order of the promises.
pub fn all() -> impl Iterator<Item = Case> {
    [
        c1_exclusion::CASES,
        c2_owner::CASES,
        c3_lease::CASES,
        c4_fencing::CASES,
        c5_ambiguity::CASES,
        c6_cancellation::CASES,
        c7_release::CASES,
        c8_waiting::CASES,
        c9_crash::CASES,
        c10_renewal::CASES,
        c11_names::CASES,
        c12_fairness::CASES,
        c13_errors::CASES,
        c14_inspection::CASES,
        read_write::CASES,
        permits::CASES,
        election::CASES,
        election_watch::CASES,
        token::CASES,
        gate::CASES,
        transfer::CASES,
        operator::CASES,
        parts::CASES,
        hold::CASES,
        multi::CASES,
        note::CASES,
        once::CASES,
        reentrant::CASES,
        request::CASES,
        ticket::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn each_case_has_a_name_of_its_own_with_its_promise_in_it() {
        let mut seen = BTreeSet::new();
        for case in super::all() {
            let number =
                case.name.strip_prefix('c').and_then(|rest| rest.split('_').next()?.parse().ok());
            assert!(number.is_some_and(|number: u8| (1..=14).contains(&number)), "{}", case.name);
            assert!(seen.insert(case.name), "{} is there twice", case.name);
        }
    }
}
