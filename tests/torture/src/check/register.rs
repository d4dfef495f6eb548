//! (a) The register accepts no token below an earlier accepted token, and refuses no holder that
//! holds.

use std::collections::HashMap;

use super::{
    Rule,
    findings::{Finding, Findings},
    index::{Index, Place},
};
use crate::history::{Event, Lock, Mode, Op};

/// A write, as the register compared it.
struct Write<'a> {
    place: Place,
    op: Op,
    lock: &'a Lock,
    token: u64,
    /// The largest token, as the register knew it.
    largest: u64,
    accepted: bool,
    /// The largest token that the register accepted before, and its write.
    before: Option<(u64, Place)>,
}

pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    let mut taken: HashMap<&Lock, (u64, Place)> = HashMap::new();
    let mut careful: HashMap<Op, Place> = HashMap::new();
    for (place, record) in index.records.iter().enumerate() {
        match &record.event {
            Event::Writes { op, careless: false } => _ = careful.insert(*op, place),
            Event::Writes { op, careless: true } => _ = careful.remove(op),
            Event::Compared { op, lock, token, largest, accepted } => {
                let write = Write {
                    place,
                    op: *op,
                    lock,
                    token: *token,
                    largest: *largest,
                    accepted: *accepted,
                    before: taken.get(lock).copied(),
                };
                if let Some(what) = write.misjudged() {
                    findings.add(write.finding(index, what, Vec::new(), Vec::new()));
                }
                if write.accepted && write.before.is_none_or(|(floor, _)| write.token > floor) {
                    taken.insert(lock, (write.token, place));
                }
                if let Some(finding) =
                    careful.get(op).and_then(|writes| write.refused_holder(index, *writes))
                {
                    findings.add(finding);
                }
            }
            _ => {}
        }
    }
}

impl<'a> Write<'a> {
    /// The largest token that the register accepted before.
    fn floor(&self) -> u64 {
        self.before.map_or(0, |(floor, _)| floor)
    }

    /// Describes the error in the register's answer, if there is one.
    fn misjudged(&self) -> Option<String> {
        let Self { op, token, largest, accepted, .. } = *self;
        let floor = self.floor();
        if accepted && token < floor {
            Some(format!("the register accepted token {token} of {op} after token {floor}"))
        } else if largest != floor {
            Some(format!(
                "the register compared token {token} of {op} with {largest}, but it had accepted \
                 {floor}"
            ))
        } else if !accepted && token >= floor {
            Some(format!(
                "the register refused token {token} of {op}, but had accepted no token above \
                 {floor}"
            ))
        } else {
            None
        }
    }

    /// Reports a holder that held, and that the register refused. The holder had checked whether it
    /// holds, and then wrote at `writes`.
    fn refused_holder(&self, index: &Index<'_>, writes: Place) -> Option<Finding<'a>> {
        let Self { op, token, accepted, before, .. } = *self;
        // Only exclusive holders count. Beside a reader, another reader with a later token may have
        // written.
        let claim = index.claim(&op).filter(|claim| claim.mode == Mode::Exclusive && !accepted)?;
        let (from, to) = index.held(claim)?;
        if !(from..to).contains(&index.at(self.place)) {
            return None;
        }
        let floor = self.floor();
        let what = format!(
            "{op} held with token {token} and was refused, because the register had accepted \
             {floor}"
        );
        let proof = claim.proof.map(|(place, _)| place);
        let other = before.and_then(|(_, place)| match &index.records[place].event {
            Event::Compared { op, .. } => index.claim(op),
            _ => None,
        });
        let losable = [Some(op), other.map(|other| other.op)].into_iter().flatten().collect();
        let other = other.and_then(|other| other.granted);
        let slice = vec![Some(claim.asks), claim.granted, proof, other, Some(writes)];
        Some(self.finding(index, what, slice, losable))
    }

    /// The slice of the finding also has this write and the one before it.
    fn finding(
        &self,
        index: &Index<'_>,
        what: String,
        mut slice: Vec<Option<Place>>,
        losable: Vec<Op>,
    ) -> Finding<'a> {
        slice.extend([self.before.map(|(_, place)| place), Some(self.place)]);
        Finding {
            rule: Rule::Register,
            at: index.at(self.place),
            lock: Some(self.lock),
            what,
            slice,
            losable,
        }
    }
}
