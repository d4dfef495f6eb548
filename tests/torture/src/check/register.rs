//! (a) The register takes no token below one that it has taken, and refuses no holder that holds.

use std::collections::HashMap;

use super::{
    Rule,
    findings::{Finding, Findings},
    index::{Index, Place},
};
use crate::history::{Event, Mode, Op};

pub(super) fn check(index: &Index<'_>, findings: &mut Findings<'_, '_>) {
    let mut taken: HashMap<&crate::history::Lock, (u64, Place)> = HashMap::new();
    let mut careful: HashMap<Op, Place> = HashMap::new();
    for (place, record) in index.records.iter().enumerate() {
        let (op, lock, token, largest, accepted) = match &record.event {
            Event::Writes { op, careless: false } => {
                careful.insert(*op, place);
                continue;
            }
            Event::Writes { op, careless: true } => {
                careful.remove(op);
                continue;
            }
            Event::Compared { op, lock, token, largest, accepted } => {
                (*op, lock, *token, *largest, *accepted)
            }
            _ => continue,
        };
        let at = record.at;
        let before = taken.get(lock).copied();
        let floor = before.map_or(0, |(floor, _)| floor);
        let mut add = |what: String, mut slice: Vec<Option<Place>>, losable: Vec<Op>| {
            slice.extend([before.map(|(_, place)| place), Some(place)]);
            let rule = Rule::Register;
            findings.add(Finding { rule, at, lock: Some(lock), what, slice, losable });
        };
        if accepted && token < floor {
            add(
                format!("the register took token {token} of {op} after token {floor}"),
                Vec::new(),
                Vec::new(),
            );
        } else if largest != floor {
            let what = format!(
                "the register compared token {token} of {op} with {largest}, but had taken {floor}"
            );
            add(what, Vec::new(), Vec::new());
        } else if !accepted && token >= floor {
            let what = format!(
                "the register refused token {token} of {op}, though none above {floor} was taken"
            );
            add(what, Vec::new(), Vec::new());
        }
        if accepted && before.is_none_or(|(floor, _)| token > floor) {
            taken.insert(lock, (token, place));
        }
        let claim = index.claim(&op).filter(|claim| claim.mode == Mode::Exclusive && !accepted);
        // Only exclusive holders count: beside a reader, another one with a later token may have
        // written.
        if let (Some(claim), Some(writes)) = (claim, careful.get(&op))
            && let Some((from, to)) = index.held(claim)
            && (from..to).contains(&at)
        {
            let what = format!(
                "{op} held with token {token} and was refused, because {floor} had been taken"
            );
            let proof = claim.proof.map(|(place, _)| place);
            let other = before.and_then(|(_, place)| match &index.records[place].event {
                Event::Compared { op, .. } => index.claim(op),
                _ => None,
            });
            let losable = [Some(op), other.map(|other| other.op)].into_iter().flatten().collect();
            let other = other.and_then(|other| other.granted);
            add(what, vec![Some(claim.asks), claim.granted, proof, other, Some(*writes)], losable);
        }
    }
}
