//! Tests of what a batch concludes from the answers, and of the order of batches.

use lockkit_core::{Kind, LockName};
use mysql_async::{Column, Row, Value, consts::ColumnType};
use mysql_common::row::new_row;

use super::*;

const NUMBER: u64 = 7;
const FREED: Outcome = Outcome::Answered(Some(true));
/// No test waits for this time to pass.
const SOON: Duration = Duration::from_secs(60);

fn hold(name: &str) -> Hold {
    let name = LockName::new(Kind::Mutex, name).unwrap();
    let owner = format!("owner of {}", name.as_str());
    Hold { name, owner, tokens: (1, 1) }
}

/// The answer to the question about the rows, by the names and the ends that it has.
fn found(ends: &[(&str, u64)]) -> Found<u64> {
    let row = |(name, end): &(&str, u64)| {
        let hold = hold(name);
        let values: Vec<Value> =
            vec!["mutex".into(), hold.name.as_str().into(), hold.owner.into(), (*end).into()];
        let columns: Vec<_> =
            values.iter().map(|_| Column::new(ColumnType::MYSQL_TYPE_VAR_STRING)).collect();
        new_row(values, columns.into())
    };
    let rows: Vec<Row> = ends.iter().map(row).collect();
    Found::read(rows.iter())
}

fn outcomes_of(freed: u64, ends: &[(&str, u64)]) -> Vec<Outcome> {
    outcomes(&["a", "b", "c"].map(hold), freed, NUMBER, &found(ends))
}

/// Catches a batch that takes an end in the past for its own work, and a count of the wrong rows.
#[test]
fn c7_only_a_row_with_the_number_of_the_batch_was_freed_by_it() {
    use Outcome::NotFreed;
    for other in [0, NUMBER - 1, NUMBER + 1, 1_700_000_000_000_000] {
        let ends = [("a", NUMBER), ("b", other), ("c", NUMBER)];
        assert_eq!(outcomes_of(2, &ends), [FREED, NotFreed, FREED], "{other}");
    }
    // All rows that were freed are seen, so the others were not.
    assert_eq!(outcomes_of(2, &[("a", NUMBER), ("c", NUMBER)]), [FREED, NotFreed, FREED]);
}

/// Catches a batch that reports a loss for a row that it has freed and that has a new owner by now.
/// Also catches one that reports as freed all rows that it does not find.
#[test]
fn c7_where_a_freed_row_is_not_seen_the_rest_is_in_doubt() {
    use Outcome::InDoubt;
    assert_eq!(outcomes_of(2, &[("a", NUMBER)]), [FREED, InDoubt, InDoubt]);
    assert_eq!(outcomes_of(2, &[("a", NUMBER), ("b", 0)]), [FREED, InDoubt, InDoubt]);
    assert_eq!(outcomes_of(1, &[]), [InDoubt; 3]);
}

/// Catches two batches at once, and a batch without an end that delays all later ones.
#[tokio::test]
async fn c8_a_batch_waits_for_the_one_before_but_not_for_a_late_one() {
    let releases = Releases::default();
    let first = releases.turn(SOON).await;
    assert!(first.is_some());
    let waiting = time::timeout(LATE, releases.turn(SOON)).await;
    assert!(waiting.is_err(), "two batches are under way");
    drop(first);
    let late = time::timeout(SOON / 2, releases.turn(SOON)).await.unwrap();
    assert!(late.is_some());
    let second = releases.turn(Duration::from_millis(1)).await;
    assert!(second.is_some(), "it does not wait any longer");
    drop(second);
    let third = time::timeout(SOON / 2, releases.turn(SOON)).await.unwrap();
    assert!(third.is_some(), "the late one delays no other");
    drop(late);
}
