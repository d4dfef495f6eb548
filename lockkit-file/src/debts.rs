//! What claims have left in the records that nobody asks for any more: it stands there until it is
//! taken out.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lockkit_core::OwnerId;

use crate::{folder::Place, session::Session};

/// The owners to be taken out of the records.
#[derive(Debug, Default)]
pub(crate) struct Debts(Mutex<HashMap<String, Debt>>);

#[derive(Debug)]
struct Debt {
    place: Place,
    owed: Vec<(OwnerId, Arc<Session>)>,
}

impl Debts {
    /// These owners may stand in the record, and must not.
    pub(crate) fn add(
        &self,
        place: &Place,
        session: &Arc<Session>,
        owners: impl Iterator<Item = OwnerId>,
    ) {
        let mut debts = self.lock();
        let new = || Debt { place: place.clone(), owed: Vec::new() };
        let debt = debts.entry(place.key.clone()).or_insert_with(new);
        debt.owed.extend(owners.map(|owner| (owner, Arc::clone(session))));
    }

    pub(crate) fn of(&self, place: &Place) -> Vec<OwnerId> {
        let debts = self.lock();
        debts
            .get(&place.key)
            .into_iter()
            .flat_map(|debt| &debt.owed)
            .map(|(owner, _)| *owner)
            .collect()
    }

    /// These owners do not stand in the record any more.
    pub(crate) fn paid(&self, place: &Place, owners: &[OwnerId]) {
        self.retain(|key, owner, _| *key != place.key || !owners.contains(&owner));
    }

    /// Where something has to be done. What was of a session that is over is nobody's any more.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.retain(|_, _, session| session.stands().unwrap_or(true));
        self.lock().values().map(|debt| debt.place.clone()).collect()
    }

    pub(crate) fn are_none(&self) -> bool {
        self.lock().is_empty()
    }

    fn retain(&self, keep: impl Fn(&String, OwnerId, &Session) -> bool) {
        self.lock().retain(|key, debt| {
            debt.owed.retain(|(owner, session)| keep(key, *owner, session));
            !debt.owed.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Debt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
