//! One owner competing for one name, and holding it.
//!
//! 1. Lock the gate of the name, a file that is locked for microseconds, and read the record of the
//!    name: who holds it, who waits, and the last token.
//! 2. Drop those from the record whose process has died: nobody locks its session's file any more.
//! 3. If there is room, add the owner with the next token; otherwise, add it to the queue. Write
//!    the record to a new file, and put it into the old one's place.
//! 4. A waiter tries again when the record has changed, which the system tells it.
//! 5. A renewal looks whether our session's file is still locked, and whether we are still in the
//!    record.
//! 6. A release takes the owner out of the record, in the same way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use lockkit_core::{
    FencingToken, OwnerId, Result,
    spi::{
        Attachment, Attempt, Claim, ClaimSpec, Lease, LossReason, Note, Noted, QueuePolicy,
        Released, RenewalOutcome, Transferred, Wait,
    },
};
use tokio::task::coop::consume_budget;

use crate::{
    attachment::SessionFile,
    folder::LockPaths,
    local_claims::Stage,
    note,
    record::{Asker, Record, Share},
    session::Session,
    shared::Shared,
};

#[derive(Debug)]
pub(crate) struct FileClaim {
    shared: Arc<Shared>,
    spec: ClaimSpec,
    share: Share,
    paths: LockPaths,
    /// Of the last attempt. None: nothing of us can be in the record.
    session: Option<Arc<Session>>,
    /// Who may have the grant after a transfer that failed.
    successor: Option<OwnerId>,
}

impl FileClaim {
    pub(crate) fn new(shared: Arc<Shared>, spec: ClaimSpec, share: Share) -> Self {
        let paths = shared.store.folder.paths(&spec.name);
        Self { shared, spec, share, paths, session: None, successor: None }
    }

    /// Who may stand in the record.
    fn owners(&self) -> impl Iterator<Item = OwnerId> + use<> {
        [self.spec.owner].into_iter().chain(self.successor)
    }

    /// What we hold, as far as our own session and the record tell.
    fn look(&self) -> Result<RenewalOutcome> {
        let Some(session) = &self.session else {
            return Ok(RenewalOutcome::Lost(LossReason::Evicted));
        };
        self.shared.store.local_claims.looks(&self.paths, self.spec.owner);
        if !session.stands()? {
            return Ok(RenewalOutcome::Lost(LossReason::SessionLost));
        }
        let record = self.shared.store.read(&self.paths)?;
        Ok(match record.is_held_by(self.spec.owner, session.id) {
            true => RenewalOutcome::Alive(Lease::Session),
            false => RenewalOutcome::Lost(LossReason::Evicted),
        })
    }
}

/// Below `op_timeout`, so that the caller hears who stands in the way.
fn patience_of(spec: &ClaimSpec) -> Duration {
    spec.op_timeout / 4 * 3
}

fn asker<'a>(spec: &'a ClaimSpec, session: &Session, share: Share) -> Asker<'a> {
    Asker { owner: spec.owner, session: session.id, share, label: spec.label.as_deref() }
}

#[async_trait]
impl Claim for FileClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        self.shared.watch()?;
        let store = &self.shared.store;
        let spec = &self.spec;
        let share = self.share;
        let patience = patience_of(&self.spec);
        let session = &mut self.session;
        let paths = &self.paths;
        store
            .change(
                paths,
                Some(spec.owner),
                patience,
                |record, now| {
                    // One that was lost can't hold anything.
                    let present = session.insert(store.session()?);
                    let answer = record.attempt(&asker(spec, present, share), wait, now)?;
                    Ok((answer, present.id))
                },
                |(answer, session)| match answer {
                    Attempt::Granted(_) => {
                        store.local_claims.set(
                            paths,
                            spec.owner,
                            Stage::Holds(*session),
                            &spec.wake,
                        );
                    }
                    Attempt::Busy { queued: true, .. } => {
                        store.local_claims.set(paths, spec.owner, Stage::Waits, &spec.wake);
                    }
                    Attempt::Busy { queued: false, .. } => {
                        store.local_claims.remove(paths, spec.owner)
                    }
                },
            )
            .await
            .map(|(answer, _)| {
                if let Attempt::Busy { queued: false, .. } = answer {
                    self.session = None;
                }
                answer
            })
    }

    async fn renew(&mut self, _: Option<Duration>) -> Result<RenewalOutcome> {
        consume_budget().await;
        let outcome = self.look()?;
        if let RenewalOutcome::Lost(_) = outcome {
            self.shared.store.local_claims.remove(&self.paths, self.spec.owner);
        }
        Ok(outcome)
    }

    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        let store = &self.shared.store;
        let owner = self.spec.owner;
        let raise = |record: &mut Record, _: &_| Ok(record.raise_token(owner, floor));
        store.change(&self.paths, Some(owner), patience_of(&self.spec), raise, |_| {}).await
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        let Some(session) = &self.session else { return Ok(Noted::NotHeld) };
        note::write(
            &self.shared.store,
            &self.paths,
            (self.spec.owner, session),
            note,
            patience_of(&self.spec),
        )
        .await
    }

    async fn transfer(&mut self, to: &ClaimSpec, policy: QueuePolicy) -> Result<Transferred> {
        let Some(session) = self.session.clone() else { return Ok(Transferred::NotHeld) };
        let store = &self.shared.store;
        let paths = &self.paths;
        let from = self.spec.owner;
        let share = self.share;
        // Until it is known, either of the two may have it.
        self.successor = Some(to.owner);
        let unsure = AtomicBool::new(true);
        let transferred = store
            .change(
                paths,
                Some(from),
                patience_of(&self.spec),
                |record, now| record.transfer(from, &asker(to, &session, share), policy, now),
                |transferred| {
                    unsure.store(false, SeqCst);
                    store.local_claims.remove(paths, from);
                    if let Transferred::Granted(_) = transferred {
                        store.local_claims.set(paths, to.owner, Stage::Holds(session.id), &to.wake);
                    }
                },
            )
            .await;
        if !unsure.load(SeqCst) {
            self.successor = None;
        }
        match transferred {
            Ok(Transferred::Granted(_)) => self.spec.clone_from(to),
            Ok(_) => self.session = None,
            Err(_) => {}
        }
        transferred
    }

    async fn release(&mut self) -> Result<Released> {
        if self.session.is_none() {
            return Ok(Released::NotHeld);
        }
        let store = &self.shared.store;
        let owner = self.spec.owner;
        let owners: Vec<_> = self.owners().collect();
        let release = |record: &mut Record, _: &_| Ok(record.release(&owners));
        let local_claims =
            |_: &_| owners.iter().for_each(|owner| store.local_claims.remove(&self.paths, *owner));
        let released = store
            .change(&self.paths, Some(owner), patience_of(&self.spec), release, local_claims)
            .await?;
        (self.session, self.successor) = (None, None);
        Ok(released)
    }

    fn attachment(&self) -> Option<Arc<dyn Attachment>> {
        Some(Arc::new(SessionFile::new(self.session.as_ref()?)))
    }
}

impl Drop for FileClaim {
    fn drop(&mut self) {
        let store = &self.shared.store;
        self.owners().for_each(|owner| store.local_claims.remove(&self.paths, owner));
        // There is no lease that would end what a release that failed has left.
        if let Some(session) = self.session.take()
            && session.is_of_this_process()
        {
            store.cleanups.add(&self.paths, &session, self.owners());
            self.shared.wake();
        }
    }
}
