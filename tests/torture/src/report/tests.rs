use std::path::Path;

use super::{markdown, timeline};
use crate::{
    check::{Rule, Verdict, Violation, tests::builder::HistoryBuilder},
    history::{Lock, Mode, Outcome, Refusal, Renewal},
};

/// The store frees a lock early while its holder is stopped. Another holder gets the lock, and the
/// first holder writes late.
fn overtaken() -> HistoryBuilder {
    let mut told = HistoryBuilder::new();
    told.renewed(Renewal::Auto).of(Lock::Mutex("a<b> & |c_d|".to_owned()), Mode::Exclusive);
    let first = told.holder(0, 1, 1);
    told.wrote(40, first, 1, 0, true, false).holds(200, first, 1190);
    let second = told.asks(150, 2);
    told.fault(320, 1500, "stop-holder", Some(1), None);
    told.granted(700, second, 2, 1700).wrote(760, second, 2, 1, true, false).released(
        900,
        second,
        Outcome::Freed,
    );
    told.wrote(1510, first, 1, 2, false, true).lost(1520, first).released(
        1525,
        first,
        Outcome::NotHeld,
    );
    told
}

fn violation(told: &HistoryBuilder) -> (Verdict, Violation) {
    let verdict = told.verdict();
    let violation = verdict.violations[0].clone();
    (verdict, violation)
}

#[test]
fn a_page_of_a_good_run_starts_with_the_verdict() {
    let mut told = HistoryBuilder::new();
    let op = told.holder(0, 1, 1);
    told.released(10, op, Outcome::Freed);
    let page = markdown(&told.verdict(), "redis");
    assert!(
        page.starts_with(
            "# redis\n\n**The locks kept every promise** in 1 requests, 1 grants and 0 faults.\n"
        ),
        "{page}"
    );
    assert!(markdown(&HistoryBuilder::new().verdict(), "redis").contains("**Nothing was tested**"));
}

#[test]
fn a_page_shows_violations_with_times_from_its_first_record() {
    let (verdict, _) = violation(&overtaken());
    let page = markdown(&verdict, "redis");
    assert!(page.contains("**Promises were broken**"), "{page}");
    assert!(page.contains("### 1. (b) exclusion (C1, C3)"), "{page}");
    assert!(page.contains("mutex a\\<b\\> & \\|c\\_d\\|: p2.2"), "{page}");
    assert!(
        page.contains("     700.000 ms  p2        p2.2 is granted token 2 until 1700.000 ms\n"),
        "{page}"
    );
    assert!(
        page.contains("     320.000 ms  director  fault 1 begins: stop-holder, the target\n"),
        "{page}"
    );
}

#[test]
fn a_page_has_a_row_of_recoveries_for_each_kind_of_fault() {
    let mut told = HistoryBuilder::new();
    for at in (0..).step_by(5000).take(3) {
        told.fault(at, at + 100, "pause", None, None);
        let op = told.holder(at + 110, 1, at + 1);
        told.released(at + 120, op, Outcome::Freed);
    }
    let page = markdown(&told.is_fine(), "redis");
    assert!(page.contains("| pause | 3 | 11.000 ms | 11.000 ms | 11.000 ms |"), "{page}");
}

#[test]
fn no_error_text_ends_its_code_block() {
    let mut told = HistoryBuilder::new();
    let op = told.asks(0, 1);
    told.refused(1, op, Refusal::Failed("first\n```\n# second".to_owned())).seen(2, 9, &[(op, 1)]);
    let page = markdown(&told.verdict(), "redis");
    assert_eq!(page.matches("```").count(), 2, "{page}");
}

/// Draws the violation. If `LOCKKIT_PICTURES` names a folder, the picture is also saved there.
fn drawn(name: &str, told: &HistoryBuilder) -> String {
    let picture = timeline(&violation(told).1, &told.records);
    if let Some(folder) = std::env::var_os("LOCKKIT_PICTURES") {
        std::fs::write(Path::new(&folder).join(name), &picture).unwrap();
    }
    picture
}

#[test]
fn a_picture_is_complete_and_escaped() {
    let picture = drawn("overtaken.svg", &overtaken());
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>"));
    assert!(picture.contains("a&lt;b&gt; &amp; |c_d|") && !picture.contains("a<b>"));
    assert!(picture.contains("prefers-color-scheme: dark"));
    assert!(picture.contains("class=\"clash\"") && picture.contains("stop-holder: the target"));
    assert_eq!(picture.matches("class=\"refused\"").count(), 2, "the late write, and the legend");
}

#[test]
fn a_picture_shows_unended_spans_and_an_empty_run() {
    let mut told = HistoryBuilder::new();
    told.holder(0, 1, 1);
    told.asks(50, 2);
    told.killed(100, 1).asks(1000, 3);
    told.ends(9000, 2);
    let verdict = told.verdict();
    assert!(verdict.violations.iter().any(|violation| violation.rule == Rule::Takeover));
    drawn("takeover.svg", &told);
    let nothing = Violation {
        rule: Rule::Leaks,
        lock: None,
        what: "\u{1b}x".repeat(900),
        slice: Vec::new(),
        documented: None,
    };
    let picture = timeline(&nothing, &[]);
    assert!(!picture.contains('\u{1b}') && picture.ends_with("</svg>"));
}

#[test]
fn a_picture_of_a_hold_without_a_lease_ends_with_the_history() {
    let mut told = HistoryBuilder::new();
    told.terms.ends_with_links = true;
    let endless = u64::MAX / 1_000_000;
    let first = told.asks(0, 1);
    told.granted(10, first, 1, endless).holds(500, first, endless);
    let second = told.asks(100, 2);
    told.granted(700, second, 2, endless).released(900, second, Outcome::Freed);
    let (_, violation) = violation(&told);
    assert_eq!(violation.rule, Rule::Exclusion);
    let picture = drawn("endless.svg", &told);
    assert!(picture.contains("class=\"clash\"") && picture.contains("900"), "{picture}");
}

#[test]
fn a_picture_shows_an_inspection() {
    let mut told = HistoryBuilder::new();
    let one = told.holder(0, 1, 1);
    let two = told.asks(3, 2);
    told.released(40, one, Outcome::Freed).granted(42, two, 2, 1000).released(
        60,
        two,
        Outcome::Freed,
    );
    told.seen(55, 9, &[(one, 1), (two, 2)]);
    assert!(drawn("look.svg", &told).contains("sees p1.1, p2.2"));
}
