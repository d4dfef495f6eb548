//! Tests of releases in batches whose outcome, or whose earlier request, is not known.

use std::{pin::pin, time::Duration};

use futures_util::{FutureExt as _, future::join_all};
use lockkit_core::{
    Error,
    spi::{Backend as _, QueuePolicy, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::SqlFlavor;

use crate::releases::{
    Busy, batches, held, live, locking, release_all, start_log, with_one_connection,
};
use crate::support::*;

on_both!(
    c5_c7_after_a_batch_that_was_not_answered_each_release_finds_its_own_outcome,
    c5_c6_a_claim_with_an_unanswered_request_joins_no_batch,
    c2_a_batch_does_not_free_what_its_claim_has_got_again,
);

/// Catches a release that reports a loss for a lock that the batch has freed, and one that reports
/// a success for a lost lock. Catches one that knows the outcome although the row has a new owner.
async fn c5_c7_after_a_batch_that_was_not_answered_each_release_finds_its_own_outcome(
    flavor: SqlFlavor,
) {
    let bed = Bed::steady(flavor);
    let mut admin = bed.admin().await;
    let there = bed.connect(QUIET).await;
    bed.wait_for_rows(&mut admin).await;
    let (backend, proxy) = bed.behind_proxy(&format!("pool_size=1&{QUIET}")).await;
    let mut claims = Vec::new();
    for name in ["freed", "lapsed", "taken"] {
        let mut spec = spec(name);
        // The client gives up the batch after three quarters of this time.
        spec.op_timeout = Duration::from_secs(12);
        let mut claim = backend.claim(spec).unwrap();
        granted(claim.attempt(Wait::No).await);
        claims.push(claim);
    }
    let lapsed = format!("UPDATE {} SET expires_us={NOW}-1 WHERE name='lapsed'", bed.table("lock"));
    admin.run(lapsed).await;
    let busy = Busy::keep(&bed, &backend, 1).await;
    let answers = {
        let mut releases = pin!(join_all(claims.iter_mut().map(|claim| claim.release())));
        assert!(releases.as_mut().now_or_never().is_none());
        proxy.set(|toxics| toxics.up.hold = true);
        busy.end().await;
        proxy.set(|toxics| (toxics.up.hold, toxics.down.hold) = (false, true));
        // A lone release would free one of the two only, because its answer is held back.
        unanswered(releases.as_mut(), async || admin.one::<u64>(live(&bed)).await == 0).await;
        held(&there, &["taken"]).await;
        // The client gives up the batch, and then a request of each claim.
        within(SOON, "the releases", releases).await
    };
    proxy.heal();
    for (number, (answer, claim)) in answers.into_iter().zip(&mut claims).enumerate() {
        assert!(answer.as_ref().is_err_and(Error::is_outcome_unknown), "{answer:?}");
        let released = persistently(async || claim.release().await).await;
        let expected = if number == 0 { Released::Freed } else { Released::NotHeld };
        assert_eq!(released, expected, "{number}");
    }
}

/// Catches a batch with a claim whose earlier request may still be applied. The batch would not free
/// the lock that this request takes later, or that of a successor.
async fn c5_c6_a_claim_with_an_unanswered_request_joins_no_batch(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let mut watcher = bed.admin().await;
    let backend = with_one_connection(&bed, &mut admin).await;
    let there = bed.connect(QUIET).await;
    let names = ["attempt", "transfer", "a", "b"];
    let mut claims = held(&backend, &names).await;
    for (name, claim) in names.into_iter().zip(&mut claims).take(2) {
        // The connection inserts a row.
        next_token(&backend, &format!("before {name}")).await;
        admin.run("START TRANSACTION").await;
        admin.run(locking(&bed, name)).await;
        let is_sent = async || watcher.one::<u64>(bed.waiting()).await == 1;
        if name == "attempt" {
            unanswered(claim.attempt(Wait::No), is_sent).await;
        } else {
            let next = spec(name);
            unanswered(claim.transfer(&next, QueuePolicy::TransferFirst), is_sent).await;
        }
        // The client ends the statement that it has given up.
        until("it is over", async || watcher.one::<u64>(bed.waiting()).await == 0).await;
        admin.run("ROLLBACK").await;
    }
    let busy = Busy::keep(&bed, &backend, 1).await;
    start_log(&mut admin).await;
    for answer in release_all(busy, &mut claims).await {
        assert_eq!(answer.unwrap(), Released::Freed);
    }
    assert_eq!(batches(&mut admin).await, [2]);
    assert_eq!(admin.one::<u64>(live(&bed)).await, 0);
    for name in names {
        next_token(&there, name).await;
    }
}

/// A quorum asks again after a release that it has given up, and the batch is sent after that.
async fn c2_a_batch_does_not_free_what_its_claim_has_got_again(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let backend = bed.connect(&format!("pool_size=2&{QUIET}")).await;
    bed.wait_for_rows(&mut admin).await;
    // Each connection inserts a row.
    tokio::join!(next_token(&backend, "one"), next_token(&backend, "two"));
    let mut claims = held(&backend, &["again", "other"]).await;
    let [again, other] = &mut claims[..] else { panic!("other claims") };
    let token = granted(again.attempt(Wait::No).await).token;
    let busy = Busy::keep(&bed, &backend, 2).await;
    start_log(&mut admin).await;
    let mut release = other.release();
    assert!(release.as_mut().now_or_never().is_none());
    // It joins the batch, and is dropped.
    assert!(again.release().now_or_never().is_none());
    busy.end().await;
    // Nothing drives the batch meanwhile, and there is a second connection.
    let next = within(SOON, "the attempt", again.attempt(Wait::No)).await;
    assert!(granted(next).token > token);
    assert_eq!(within(SOON, "the batch", release).await.unwrap(), Released::Freed);
    assert_eq!(batches(&mut admin).await, [2]);
    assert!(matches!(again.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(again.release().await.unwrap(), Released::Freed);
}
