//! One owner competing for one name, and holding it.
//!
//! 1. Lock the gate of the name, a file that is locked for microseconds, and read the record of the
//!    name: who holds it, who waits, and the last token.
//! 2. Drop those from the record whose process has died: nobody locks its session's file any more.
//! 3. If there is room, add the owner with the next token; otherwise, add it to the queue. Write the
//!    record to a new file, and put it into the old one's place.
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
        Attachment, Attempt, Claim, ClaimSpec, Lease, LossReason, Note, Noted, Outsiders, Pulse,
        Reissued, Released, Wait,
    },
};
use tokio::task::coop::consume_budget;

use crate::{
    attachment::SessionFile,
    folder::Place,
    locals::Stage,
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
    place: Place,
    /// Of the last attempt. None: nothing of us can be in the record.
    session: Option<Arc<Session>>,
    /// Who may have the grant after a hand-over that failed.
    heir: Option<OwnerId>,
}

impl FileClaim {
    pub(crate) fn new(shared: Arc<Shared>, spec: ClaimSpec, share: Share) -> Self {
        let place = shared.store.folder.place(&spec.name);
        Self { shared, spec, share, place, session: None, heir: None }
    }

    /// Who may stand in the record.
    fn owners(&self) -> impl Iterator<Item = OwnerId> + use<> {
        [self.spec.owner].into_iter().chain(self.heir)
    }

    /// What we hold, as far as our own session and the record tell.
    fn look(&self) -> Result<Pulse> {
        let Some(session) = &self.session else { return Ok(Pulse::Lost(LossReason::Evicted)) };
        self.shared.store.locals.looks(&self.place, self.spec.owner);
        if !session.stands()? {
            return Ok(Pulse::Lost(LossReason::SessionLost));
        }
        let record = self.shared.store.read(&self.place)?;
        Ok(match record.is_held_by(self.spec.owner, session.id) {
            true => Pulse::Alive(Lease::Session),
            false => Pulse::Lost(LossReason::Evicted),
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
        let place = &self.place;
        store
            .change(
                place,
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
                        store.locals.set(place, spec.owner, Stage::Holds(*session), &spec.hint);
                    }
                    Attempt::Busy { queued: true, .. } => {
                        store.locals.set(place, spec.owner, Stage::Waits, &spec.hint);
                    }
                    Attempt::Busy { queued: false, .. } => store.locals.remove(place, spec.owner),
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

    async fn renew(&mut self, _: Option<Duration>) -> Result<Pulse> {
        consume_budget().await;
        let pulse = self.look()?;
        if let Pulse::Lost(_) = pulse {
            self.shared.store.locals.remove(&self.place, self.spec.owner);
        }
        Ok(pulse)
    }

    async fn raise_fence(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        let store = &self.shared.store;
        let owner = self.spec.owner;
        let raise = |record: &mut Record, _: &_| Ok(record.raise_fence(owner, floor));
        store.change(&self.place, Some(owner), patience_of(&self.spec), raise, |_| {}).await
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        let Some(session) = &self.session else { return Ok(Noted::NotHeld) };
        note::write(
            &self.shared.store,
            &self.place,
            (self.spec.owner, session),
            note,
            patience_of(&self.spec),
        )
        .await
    }

    async fn reissue(&mut self, to: &ClaimSpec, outsiders: Outsiders) -> Result<Reissued> {
        let Some(session) = self.session.clone() else { return Ok(Reissued::NotHeld) };
        let store = &self.shared.store;
        let place = &self.place;
        let from = self.spec.owner;
        let share = self.share;
        // Until it is known, either of the two may have it.
        self.heir = Some(to.owner);
        let unsure = AtomicBool::new(true);
        let reissued = store
            .change(
                place,
                Some(from),
                patience_of(&self.spec),
                |record, now| record.reissue(from, &asker(to, &session, share), outsiders, now),
                |reissued| {
                    unsure.store(false, SeqCst);
                    store.locals.remove(place, from);
                    if let Reissued::Granted(_) = reissued {
                        store.locals.set(place, to.owner, Stage::Holds(session.id), &to.hint);
                    }
                },
            )
            .await;
        if !unsure.load(SeqCst) {
            self.heir = None;
        }
        match reissued {
            Ok(Reissued::Granted(_)) => self.spec.clone_from(to),
            Ok(_) => self.session = None,
            Err(_) => {}
        }
        reissued
    }

    async fn release(&mut self) -> Result<Released> {
        if self.session.is_none() {
            return Ok(Released::NotHeld);
        }
        let store = &self.shared.store;
        let owner = self.spec.owner;
        let owners: Vec<_> = self.owners().collect();
        let release = |record: &mut Record, _: &_| Ok(record.release(&owners));
        let locals =
            |_: &_| owners.iter().for_each(|owner| store.locals.remove(&self.place, *owner));
        let released = store
            .change(&self.place, Some(owner), patience_of(&self.spec), release, locals)
            .await?;
        (self.session, self.heir) = (None, None);
        Ok(released)
    }

    fn attachment(&self) -> Option<Arc<dyn Attachment>> {
        Some(Arc::new(SessionFile::new(self.session.as_ref()?)))
    }
}

impl Drop for FileClaim {
    fn drop(&mut self) {
        let store = &self.shared.store;
        self.owners().for_each(|owner| store.locals.remove(&self.place, owner));
        // There is no lease that would end what a release that failed has left.
        if let Some(session) = self.session.take()
            && session.is_of_this_process()
        {
            store.debts.add(&self.place, &session, self.owners());
            self.shared.wake();
        }
    }
}
