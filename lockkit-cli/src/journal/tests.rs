use lockkit::spi::MAX_NOTE_BYTES;
use proptest::prelude::*;

use super::*;

const NOW: u64 = 1_700_000_000_000;

fn run(token: u64) -> Run {
    Run::now(token, "./job.sh", None)
}

#[test]
fn no_note_is_an_empty_journal_and_a_foreign_one_is_no_journal() {
    assert_eq!(Record::parse("").unwrap(), Record::default());
    for bad in ["hello", "[]", "{}", "{\"v\":2}", "{\"v\":1,\"runs\":7}"] {
        assert!(Record::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn data_of_a_later_version_survives() {
    let text = r#"{"v":1,"done":{"tick":5,"zones":["UTC"]},"runs":[{"token":1,"host":"a","pid":2,"command":"c","started":3,"cpu":4}],"owner":"ops"}"#;
    let mut record = Record::parse(text).unwrap();
    record.tick_done(6);
    record.end(1, 9, "exit 0");
    let again: serde_json::Value = serde_json::from_str(&record.to_text().unwrap()).unwrap();
    assert_eq!(again["owner"], "ops");
    assert_eq!(again["done"]["zones"][0], "UTC");
    assert_eq!(again["done"]["tick"], 6);
    assert_eq!(again["runs"][0]["cpu"], 4);
    assert_eq!(again["runs"][0]["outcome"], "exit 0");
}

#[test]
fn ticks_never_go_back() {
    let mut record = Record::default();
    assert!(!record.is_tick_done(-5));
    record.tick_done(100);
    record.tick_done(50);
    assert!(record.is_tick_done(100) && record.is_tick_done(99) && !record.is_tick_done(101));
}

#[test]
fn a_key_is_done_until_its_own_time_is_over() {
    let mut record = Record::default();
    record.key_done("v1", NOW, NOW + 10);
    record.key_done("v2", NOW, NOW + 1_000);
    assert!(record.is_key_done("v1", NOW + 9) && !record.is_key_done("v1", NOW + 10));
    // A host that keeps its keys for a shorter time does not forget the keys of other hosts.
    record.key_done("v3", NOW + 500, NOW + 501);
    assert!(record.is_key_done("v2", NOW + 501));
    assert!(!record.is_key_done("v3", NOW + 501));
}

#[test]
fn words_of_a_run_are_cut() {
    let run = Run::now(1, &"é\n\"".repeat(100), None);
    assert!(run.command.len() <= 64 && !run.command.contains(['\n', '"']), "{}", run.command);
}

#[test]
fn the_end_of_a_run_is_written_to_the_run_of_its_token() {
    let mut record = Record::default();
    record.begin(run(1));
    record.begin(run(2));
    record.end(1, NOW, "exit 3");
    assert_eq!(record.runs()[0].outcome.as_deref(), Some("exit 3"));
    assert_eq!(record.runs()[1].ended, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// For keys of any length and any number of runs. A text that fits is within the bound. It has
    /// the newest runs in their order and every done key. A text that does not fit is refused, and
    /// `has_room` foresaw that.
    #[test]
    fn a_text_is_bounded_and_forgets_no_key(
        keys in prop::collection::vec("\\PC{1,120}|[\u{1}-\u{1f}\"\\\\]{1,120}", 0..200),
        runs in 0_u64..80,
        slots in prop::option::of("\\PC{1,255}"),
    ) {
        let mut record = Record::default();
        for token in 0..runs {
            record.begin(Run::now(token, "./job.sh --with a long name, which is cut somewhere around here", slots.as_deref()));
            record.end(token, NOW, "exit 255");
        }
        for key in &keys {
            record.key_done(key, NOW, NOW + 1_000);
        }
        let room = record.has_room();
        match record.to_text() {
            Some(text) => {
                prop_assert!(text.len() <= MAX_NOTE_BYTES);
                let read = Record::parse(&text).unwrap();
                for key in &keys {
                    prop_assert!(read.is_key_done(key, NOW + 999), "{key:?} is forgotten");
                }
                let tokens: Vec<_> = read.runs().iter().map(|run| run.token).collect();
                let first = runs - u64::try_from(tokens.len()).unwrap();
                prop_assert_eq!(&tokens, &(first..runs).collect::<Vec<_>>());
                prop_assert!(tokens.len() <= 32 && (runs == 0 || !tokens.is_empty()));
            }
            None => prop_assert!(!room),
        }
    }
}
