//! Tests of what a batch concludes from the answers, and of the order of batches.

use std::{error::Error as _, net::TcpListener};

use futures_util::FutureExt as _;
use lockkit_core::{Kind, LockName, url::StoreUrl};
use mysql_async::{Column, Row, Value, consts::ColumnType};
use mysql_common::row::new_row;

use super::*;
use crate::{config::Config, pool::Pool};

const FREED: Outcome = Outcome::Answered(Some(true));
/// No test waits for this time to pass.
const SOON: Duration = Duration::from_secs(60);
const SORT: Sort = Sort { runtime: None, op_timeout: SOON };

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
    outcomes(&["a", "b", "c"].map(hold), freed, &found(ends))
}

/// The store of a client of whatever listens there.
fn store_at(listener: &TcpListener) -> Arc<Store> {
    let addr = listener.local_addr().unwrap();
    let url = format!("mysql://user@{addr}/database?pool_size=1&connect_timeout=20s");
    let config = Config::from_url(StoreUrl::parse(&url).unwrap()).unwrap();
    Arc::new(Store::new(Arc::new(Pool::new(config))))
}

/// Catches a batch that takes an end in the past for its own work, and a count of the wrong rows.
#[test]
fn c7_only_a_row_with_the_end_of_a_batch_was_freed_by_it() {
    use Outcome::NotFreed;
    for other in [0, FREED_TOGETHER + 1, 1_700_000_000_000_000] {
        let ends = [("a", FREED_TOGETHER), ("b", other), ("c", FREED_TOGETHER)];
        assert_eq!(outcomes_of(2, &ends), [FREED, NotFreed, FREED], "{other}");
    }
    // All rows that were freed are seen, so the others were not.
    let ends = [("a", FREED_TOGETHER), ("c", FREED_TOGETHER)];
    assert_eq!(outcomes_of(2, &ends), [FREED, NotFreed, FREED]);
    assert_eq!(outcomes_of(0, &[]), [NotFreed; 3]);
}

/// Catches a batch that reports a loss for a row that it has freed and that has a new owner by now.
/// Also catches one that reports as freed all rows that it does not find.
#[test]
fn c7_where_a_freed_row_is_not_seen_the_rest_is_in_doubt() {
    use Outcome::InDoubt;
    assert_eq!(outcomes_of(2, &[("a", FREED_TOGETHER)]), [FREED, InDoubt, InDoubt]);
    assert_eq!(outcomes_of(2, &[("a", FREED_TOGETHER), ("b", 0)]), [FREED, InDoubt, InDoubt]);
    assert_eq!(outcomes_of(1, &[]), [InDoubt; 3]);
}

/// Catches two batches at once, and a batch without an end that delays all later ones. Also catches
/// a batch that takes the turn of another one that is not late.
#[tokio::test]
async fn c8_a_batch_waits_for_the_one_before_but_not_for_a_late_one() {
    const NO_TIME: Duration = Duration::from_millis(1);
    let releases = Releases::default();
    let first = releases.turn(SORT, SOON).now_or_never().flatten();
    assert!(first.is_some());
    assert!(releases.turn(SORT, SOON).now_or_never().is_none(), "two batches are under way");
    let other = Sort { op_timeout: SOON * 2, ..SORT };
    assert!(releases.turn(other, SOON).now_or_never().flatten().is_some(), "of another sort");
    // Both wait for the first batch. Only one of them replaces it.
    let late = tokio::join!(releases.turn(SORT, NO_TIME), releases.turn(SORT, NO_TIME));
    assert_ne!(late.0.is_some(), late.1.is_some());
    drop(first);
    assert!(releases.turn(SORT, SOON).now_or_never().is_none(), "two batches are under way");
    drop(late);
    assert!(releases.turn(SORT, SOON).now_or_never().flatten().is_some());
}

/// Catches a batch that keeps the turn or its connection after all its calls were dropped.
#[tokio::test]
async fn c6_a_batch_that_is_dropped_gives_its_turn_back() {
    // Nothing answers there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = store_at(&listener);
    let sort = Sort { runtime: Some(Handle::current().id()), op_timeout: SOON };
    let mut batch = store.release_together(hold("a"), SOON).boxed();
    assert!(batch.as_mut().now_or_never().is_none());
    assert!(store.releases.turn(sort, SOON).now_or_never().is_none(), "it has the turn");
    assert!(store.is_busy());
    drop(batch);
    assert!(store.releases.turn(sort, SOON).now_or_never().flatten().is_some());
    assert!(!store.is_busy());
}

/// Catches a batch whose members each open a connection again, and an error without its source.
/// Also catches a batch that was not sent and has an unknown outcome.
#[tokio::test]
async fn c5_c13_a_batch_without_a_server_fails_for_certain() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = store_at(&listener);
    drop(listener);
    let batch = ["a", "b"].map(|name| store.release_together(hold(name), SOON));
    for answer in futures_util::future::join_all(batch).await {
        let error = answer.unwrap_err();
        assert!(error.is_temporary() && !error.is_outcome_unknown(), "{error}");
        assert!(error.source().is_some(), "{error}");
    }
}
