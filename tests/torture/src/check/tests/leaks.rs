use super::builder::{HistoryBuilder, mutex};
use crate::{
    check::Rule,
    history::{DIRECTOR, Event},
};

#[test]
fn c6_leaks_are_reported() {
    let mut told = HistoryBuilder::new();
    told.write(0, DIRECTOR, Event::Leaks { what: "the key torture:x".to_owned() });
    assert_eq!(told.breaks(Rule::Leaks).what, "left in the store: the key torture:x");
    for (tasks, files) in [(1, 0), (0, 1)] {
        let mut told = HistoryBuilder::new();
        told.write(0, 1, Event::Ends { tasks, files }).breaks(Rule::Leaks);
    }
}

#[test]
fn c6_the_last_inspection_shows_no_holder() {
    let look = |waiters| Event::Seen { lock: mutex(), answered: 1, holders: Vec::new(), waiters };
    let mut told = HistoryBuilder::new();
    told.ends(0, 1)
        .write(0, DIRECTOR, look(None))
        .write(0, DIRECTOR, look(Some(0)))
        .write(0, 9, look(Some(3)))
        .is_fine();
    told.write(0, DIRECTOR, look(Some(1))).breaks(Rule::Leaks);
    let mut told = HistoryBuilder::new();
    let op = told.asks(0, 1);
    told.killed(10, 1).seen(9000, DIRECTOR, &[(op, 1)]).breaks(Rule::Leaks);
}
