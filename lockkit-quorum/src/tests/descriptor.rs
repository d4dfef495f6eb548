//! The descriptor that members make together, and the members that are refused.

use std::sync::Arc;

use lockkit_core::{
    Clock, ErrorKind, Memory,
    fake::Fault,
    spi::{
        Admin as _, Backend, Capabilities, Descriptor, Exceptions, LeaseScope, Mode, RenewalPacing,
        Severity,
    },
};

use super::members::{fakes, member, ms, of, quorum, spec, try_of, without_raise};
use crate::{Need, Quorum, member::lacking};

fn refusal(members: Vec<Arc<dyn Backend>>) -> String {
    let error = Quorum::new(members).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    error.to_string()
}

#[test]
fn c13_members_that_make_no_quorum_are_refused_by_name() {
    let memory: Arc<dyn Backend> = Arc::new(Memory::new());
    assert!(refusal(Vec::new()).contains("at least one member"));
    assert!(
        refusal(vec![Arc::clone(&memory), Arc::clone(&memory)])
            .contains("member 2 (memory) occurs twice")
    );
    let inner: Arc<dyn Backend> = Arc::new(Quorum::new(vec![Arc::clone(&memory)]).unwrap());
    assert!(refusal(vec![memory, inner]).contains("member 2 (quorum) is a quorum itself"));
    let unraised = [member(), without_raise(member()), member()];
    let error = try_of(&unraised, Need::Majority).unwrap_err().to_string();
    assert!(error.contains("member 2 (fake) does not support raising the token"), "{error}");
    try_of(&unraised, Need::All).unwrap();
}

#[test]
fn the_members_descriptors_are_put_together() {
    let change = |change: fn(Descriptor) -> Descriptor| member().described(change);
    let members = [
        change(|it| Descriptor {
            min_ttl: ms(3_000),
            exceptions: Exceptions { async_failover: true, ..Exceptions::NONE },
            ..it
        }),
        change(|it| Descriptor {
            takeover_delay: ms(700),
            longest_lease: ms(1_800),
            exceptions: Exceptions { no_lease: true, ..Exceptions::NONE },
            ..it
        }),
        change(|it| Descriptor {
            renewal_pacing: RenewalPacing { longest: ms(4_000), together: true },
            ..it
        }),
    ];
    let majority = quorum(&members).descriptor().clone();
    assert_eq!(
        (majority.name, majority.min_ttl, majority.takeover_delay),
        ("quorum", ms(3_000), ms(950))
    );
    assert_eq!(majority.longest_lease, ms(1_800));
    assert_eq!(
        (majority.renewal_pacing.longest, majority.renewal_pacing.together),
        (ms(4_000), false)
    );
    assert_eq!(majority.exceptions, Exceptions { async_failover: true, ..Exceptions::NONE });
    let capabilities = majority.capabilities;
    assert!(
        capabilities.exclusive && capabilities.names && capabilities.labels && capabilities.extend
    );
    assert!(capabilities.tickets);
    let unraised = change(|it| Descriptor {
        capabilities: Capabilities { raise_token: false, ..it.capabilities },
        ..it
    });
    assert!(!of(&[member(), unraised], Need::All).descriptor().capabilities.tickets);
    assert!(
        !(capabilities.shared || capabilities.permits || capabilities.fair || capabilities.push)
    );
    assert!(!(capabilities.transfer || capabilities.raise_token || capabilities.waiter_count));
    assert!(of(&members, Need::All).descriptor().exceptions.no_lease);
}

/// The member lacks something that the quorum's own descriptor was made of.
#[test]
fn c13_a_late_member_may_lack_nothing_that_the_quorum_claims() {
    let expected = member().described(|it| Descriptor {
        renewal_pacing: RenewalPacing { longest: ms(4_000), together: false },
        min_ttl: ms(9),
        ..it
    });
    let expected = expected.descriptor().clone();
    assert_eq!(lacking(&expected, &expected), None);
    let without = |forget: fn(&mut Capabilities)| {
        let mut capabilities = expected.capabilities;
        forget(&mut capabilities);
        Descriptor { capabilities, ..expected.clone() }
    };
    let breaks = |exceptions| Descriptor { exceptions, ..expected.clone() };
    let none = Exceptions::NONE;
    let lesser = [
        (without(|can| can.exclusive = false), "no exclusive locks"),
        (without(|can| can.raise_token = false), "no raising of tokens"),
        (without(|can| can.extend = false), "no leases of another length"),
        (without(|can| can.labels = false), "no labels"),
        (without(|can| can.names = false), "no lists of names"),
        (without(|can| can.tickets = false), "no tickets"),
        (breaks(Exceptions { async_failover: true, ..none }), "an asynchronous failover"),
        (
            breaks(Exceptions { connection_bound: true, ..none }),
            "locks that end with their connections",
        ),
        (
            breaks(Exceptions { server_clock_step: true, ..none }),
            "leases that end at a step of its clock",
        ),
        (breaks(Exceptions { no_lease: true, ..none }), "no leases"),
        (
            Descriptor { lease_scope: LeaseScope::Session, ..expected.clone() },
            "leases of another scope",
        ),
        (Descriptor { min_ttl: ms(10), ..expected.clone() }, "a longer shortest ttl"),
        (
            Descriptor { takeover_delay: ms(1), ..expected.clone() },
            "a longer delay after the end of a lease",
        ),
        (Descriptor { longest_lease: ms(99), ..expected.clone() }, "shorter leases"),
        (
            Descriptor {
                renewal_pacing: RenewalPacing { longest: ms(3_999), together: false },
                ..expected.clone()
            },
            "renewals that must come more often",
        ),
    ];
    for (member, what) in lesser {
        assert_eq!(lacking(&expected, &member), Some(what));
        if member.lease_scope == expected.lease_scope {
            assert_eq!(lacking(&member, &expected), None, "{what}: to have more is no fault");
        }
    }
    let more = without(|can| (can.shared, can.notes, can.fair) = (false, false, false));
    assert_eq!(lacking(&expected, &more), None, "a quorum does not use it");
}

#[test]
fn c13_other_modes_are_refused() {
    let mut spec = spec("x");
    spec.mode = Mode::Shared;
    assert_eq!(quorum(&fakes(3)).claim(spec).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn c13_an_error_of_a_member_names_it() {
    let mut spec = spec("x");
    spec.clock = Clock::Boot;
    let error = quorum(&fakes(3)).claim(spec).unwrap_err();
    assert!(error.to_string().contains("member 1 (fake): "), "{error}");
}

#[tokio::test]
async fn c14_each_member_is_diagnosed_and_one_that_is_down_is_no_error() {
    let members = fakes(3);
    members[1].all(Fault::DOWN);
    let diagnostics = quorum(&members).diagnose().await.unwrap();
    let marks: Vec<_> =
        diagnostics.iter().map(|diagnostic| (&*diagnostic.what, diagnostic.severity)).collect();
    let weak = |what| (what, Severity::Weak);
    let wanted = [
        weak("disk of member 1 (fake)"),
        ("state of member 2 (fake)", Severity::Unknown),
        weak("disk of member 3 (fake)"),
    ];
    assert_eq!(marks, wanted);
    assert!(diagnostics[1].advice.contains("as ordered"), "{diagnostics:?}");
}
