//! Tests of releases that fail midway.

use std::time::Duration;

use lockkit_core::{
    Kind, LockName,
    spi::{Attempt, Released, Wait},
};
use lockkit_fixture::{SqlFlavor, mysql_is_there};
use mysql_async::prelude::Queryable as _;

use super::{OP_TIMEOUT, World, key, spec};
use crate::strategy::Locking as _;

const LONG: Duration = Duration::from_secs(60);

on_each! {
    c7_a_failure_after_the_commit_undoes_no_release,
    c7_a_connection_that_breaks_behind_the_commit_undoes_no_release,
    c7_a_release_that_the_server_has_refused_is_unknown_even_if_its_connection_goes_at_once,
    c1_a_late_end_of_a_lease_ends_no_lease_of_a_later_grant,
}

/// Catches a release that was committed, and is reported as refused.
async fn c7_a_failure_after_the_commit_undoes_no_release(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    for (script, is_done) in [
        ("START TRANSACTION;SELECT 1;COMMIT;SELECT nothing", true),
        ("START TRANSACTION;SELECT 1;ROLLBACK;SELECT nothing", true),
        ("START TRANSACTION;SELECT nothing;COMMIT;SELECT 1", false),
        ("START TRANSACTION;SELECT 1;SELECT nothing", false),
    ] {
        let mut connection = world.store().pool.get(OP_TIMEOUT).await.unwrap();
        let answer = connection.script_to_end(script).await;
        assert_eq!(answer.is_ok_and(|steps| steps.len() == 3), is_done, "{script}");
        assert!(!connection.is_clean(), "what has failed is not used again: {script}");
    }
    // If the server says why, it is known which statement failed. Each XA transaction has a name of
    // its own, because the server may not have ended that of the connection before.
    for (script, is_before_end) in [
        ("SELECT nothing;COMMIT", true),
        ("SELECT 1;DO 1;SELECT nothing;COMMIT", true),
        ("XA START 'a';COMMIT", false),
        ("XA START 'b';SELECT 1;COMMIT;SELECT 1", false),
        ("SELECT 1;SELECT nothing", false),
    ] {
        let mut connection = world.store().pool.get(OP_TIMEOUT).await.unwrap();
        let failure = connection.script_to_end(script).await.unwrap_err();
        assert_eq!(failure.is_before_end, is_before_end, "{script}");
    }
}

async fn c7_a_connection_that_breaks_behind_the_commit_undoes_no_release(flavor: SqlFlavor) {
    let world = World::start(flavor).await;
    for (script, is_done) in
        [("DO 1;COMMIT;DO SLEEP(60)", true), ("DO 1;SELECT 1;DO SLEEP(60);COMMIT;DO 1", false)]
    {
        let mut connection = world.store().pool.get(OP_TIMEOUT).await.unwrap();
        let thread = connection.server().thread;
        let asked = tokio::spawn(async move { connection.script_to_end(script).await });
        let sleeps = format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID={thread} AND STATE='User sleep'"
        );
        let mut admin = world.admin().await;
        while admin.query_first::<u64, _>(&sleeps).await.unwrap() != Some(1) {
            tokio::task::yield_now().await;
        }
        world.kill(thread).await;
        assert_eq!(asked.await.unwrap().is_ok(), is_done, "{script}");
    }
}

/// Catches a server that is asked whether it still knows a connection on which it has just
/// answered. It does not know the connection, because we have closed it.
async fn c7_a_release_that_the_server_has_refused_is_unknown_even_if_its_connection_goes_at_once(
    flavor: SqlFlavor,
) {
    let world = World::start_with(flavor, "&strict_lease=true").await;
    let pool = &world.store().pool;
    // The end of the lease waits for the row of the token, and is refused there.
    for (refusal, is_known) in [("KILL QUERY", false), ("KILL CONNECTION", true)] {
        let mut spec = spec();
        (spec.name, spec.op_timeout, spec.ttl) =
            (LockName::new(Kind::Mutex, refusal).unwrap(), LONG, LONG);
        let mut claim = world.backend.claim(spec).unwrap();
        assert!(matches!(claim.attempt(Wait::Block(LONG)).await.unwrap(), Attempt::Granted(_)));
        let mut admin = world.admin().await;
        let thread = format!("SELECT thread FROM lockkit_fence WHERE name='{refusal}'");
        let thread: u64 = admin.query_first(thread).await.unwrap().unwrap();
        admin.query_drop("BEGIN").await.unwrap();
        admin.query_drop("SELECT * FROM lockkit_fence FOR UPDATE").await.unwrap();
        // Until the connection is gone, no side connection is free to ask about it.
        let mut sides = Vec::new();
        while let Ok(side) = pool.get_side(Duration::from_millis(100)).await {
            sides.push(side);
        }
        let release = tokio::spawn(async move {
            let first = claim.release().await;
            (claim, first)
        });
        world.until_waits(Some(thread)).await;
        world.admin().await.query_drop(format!("{refusal} {thread}")).await.unwrap();
        world.until_gone(thread).await;
        drop(sides);
        let (mut claim, first) = release.await.unwrap();
        match first {
            Ok(released) => {
                panic!("{refusal}: {released:?}, and the lease of the next one has not been ended")
            }
            // The release could not end the lease, because the admin has locked its row.
            Err(error) => assert_eq!(error.is_outcome_unknown(), !is_known, "{refusal}: {error}"),
        }
        admin.query_drop("ROLLBACK").await.unwrap();
        // An earlier request may have freed the lock.
        assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    }
}

/// The same owner has got the lock again when the request arrives. A late request that extends the
/// lease comes last.
async fn c1_a_late_end_of_a_lease_ends_no_lease_of_a_later_grant(flavor: SqlFlavor) {
    let world = World::start_with(flavor, "&strict_lease=true").await;
    let store = world.store();
    let key = key();
    let mut first = world.locked(&key).await.hold;
    store.bump(&key, &mut first, OP_TIMEOUT).await.unwrap();
    let server = first.server().clone();
    world.kill(server.thread).await;
    let mut second = world.locked(&key).await.hold;
    store.bump(&key, &mut second, OP_TIMEOUT).await.unwrap();
    let mut admin = world.admin().await;
    for (server, is_open) in [(server, true), (second.server().clone(), false)] {
        store.settle(&key, None, &server, OP_TIMEOUT).await.unwrap();
        let open_us: Option<u64> =
            admin.query_first("SELECT open_us FROM lockkit_fence").await.unwrap();
        assert_eq!(open_us.map(|open_us| open_us > 0), Some(is_open));
    }
    admin.query_drop(key.keep_open(&store.sql, LONG)).await.unwrap();
    let open: Option<u64> =
        admin.query_first("SELECT open_us FROM lockkit_fence WHERE open_us>0").await.unwrap();
    assert_eq!(open, None, "the lease that was ended is open again");
}
