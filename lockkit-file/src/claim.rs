//! The claim of one owner for one name, which later holds the lock.
//!
//! 1. Lock the gate of the name, a file that is locked for microseconds. Read the record of the
//!    name: the holders, the waiters and the last token.
//! 2. Drop the owners whose process has died: the file of their session is not locked any more.
//! 3. If there is room, add the owner with the next token. Otherwise add it to the queue. Write the
//!    record to a new file, and put that in the place of the old one.
//! 4. A waiter tries again when the system reports that the record has changed.
//! 5. A renewal checks whether our session's file is still locked, and whether we are still in the
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
    /// The session of the last attempt. If it is `None`, the record can't contain this claim.
    session: Option<Arc<Session>>,
    /// The owner that may have the grant after a transfer that failed.
    successor: Option<OwnerId>,
}

impl FileClaim {
    pub(crate) fn new(shared: Arc<Shared>, spec: ClaimSpec, share: Share) -> Self {
        let paths = shared.store.folder.paths(&spec.name);
        Self { shared, spec, share, paths, session: None, successor: None }
    }

    /// The owners of this claim that may be in the record.
    fn owners(&self) -> impl Iterator<Item = OwnerId> + use<> {
        [self.spec.owner].into_iter().chain(self.successor)
    }

    /// Whether the claim holds the lock, as far as our session and the record show.
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

/// Less than `op_timeout`, so that the caller gets the error that names the process in the gate.
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
                    // A session that was lost can't hold anything, so a new one takes its place.
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
        // Until the outcome is known, either owner may have the grant.
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
        // There is no lease that would end what a failed release has left.
        if let Some(session) = self.session.take()
            && session.is_of_this_process()
        {
            store.cleanups.add(&self.paths, &session, self.owners());
            self.shared.wake();
        }
    }
}
