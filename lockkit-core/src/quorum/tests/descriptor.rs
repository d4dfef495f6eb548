//! What members make together, and who is refused.

use std::sync::Arc;

use super::fakes::{Act, Fake, fakes, ms, of, quorum, spec, try_of};
use crate::{
    ErrorKind, Memory, Need, Quorum,
    spi::{Backend, Descriptor, Exceptions, Grade, Mode},
};

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
        refusal(vec![Arc::clone(&memory), Arc::clone(&memory)]).contains("member 2 (memory) is there twice")
    );
    let inner: Arc<dyn Backend> = Arc::new(Quorum::new(vec![Arc::clone(&memory)]).unwrap());
    assert!(refusal(vec![memory, inner]).contains("member 2 (quorum) is a quorum itself"));
    let unraised = [Fake::new(), Fake::new().without_raise(), Fake::new()];
    let error = try_of(&unraised, Need::Majority).unwrap_err().to_string();
    assert!(error.contains("member 2 (fake) can't raise the token"), "{error}");
    try_of(&unraised, Need::All).unwrap();
}

#[test]
fn the_members_descriptors_are_put_together() {
    let change = |change: fn(Descriptor) -> Descriptor| Fake::new().described(change);
    let members = [
        change(|it| it.with_min_ttl(ms(3_000)).with_exceptions(Exceptions::none().with_async_failover())),
        change(|it| it.with_takeover_delay(ms(700)).with_exceptions(Exceptions::none().with_no_lease())),
        change(|it| it.with_cadence(ms(4_000), true)),
    ];
    let majority = quorum(&members).descriptor().clone();
    assert_eq!((majority.name, majority.min_ttl, majority.takeover_delay), ("quorum", ms(3_000), ms(950)));
    assert_eq!((majority.cadence.longest, majority.cadence.together), (ms(4_000), false));
    assert_eq!(majority.exceptions, Exceptions::none().with_async_failover());
    let capabilities = majority.capabilities;
    assert!(capabilities.exclusive && capabilities.names && capabilities.labels && capabilities.extend);
    assert!(!(capabilities.shared || capabilities.permits || capabilities.fair || capabilities.push));
    assert!(!(capabilities.reissue || capabilities.raise_fence || capabilities.waiter_count));
    assert!(of(&members, Need::All).descriptor().exceptions.no_lease);
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
    spec.clock = crate::Clock::Boot;
    let error = quorum(&fakes(3)).claim(spec).unwrap_err();
    assert!(error.to_string().contains("member 1 (fake): "), "{error}");
}

#[tokio::test]
async fn c14_each_member_is_diagnosed_and_one_that_is_down_is_no_error() {
    let members = fakes(3);
    members[1].all(Act::Down);
    let findings = quorum(&members).diagnose().await.unwrap();
    let marks: Vec<_> = findings.iter().map(|finding| (&*finding.what, finding.grade)).collect();
    let weak = |what| (what, Grade::Weak);
    let wanted = [
        weak("disk of member 1 (fake)"),
        ("state of member 2 (fake)", Grade::Unknown),
        weak("disk of member 3 (fake)"),
    ];
    assert_eq!(marks, wanted);
    assert!(findings[1].advice.contains("connection refused"), "{findings:?}");
}
