//! The view of the cluster that one node has.

use std::{collections::BTreeMap, ops::RangeInclusive};

use anyhow::{Context as _, Result};

use crate::redis::RedisServer;

/// One node's `CLUSTER NODES`.
#[derive(Debug)]
pub(super) struct View {
    /// The id of the node.
    pub(super) id: String,
    /// The epoch of the configuration by which the node owns its slots. Of two claims, the one with
    /// the higher epoch wins.
    pub(super) epoch: u64,
    slots: Slots,
    others: BTreeMap<String, (u64, Slots)>,
}

type Slots = Vec<RangeInclusive<u16>>;

impl View {
    pub(super) fn of(node: &RedisServer) -> Result<Self> {
        Self::parse(&node.peek(["CLUSTER", "NODES"])?.text())
    }

    fn parse(text: &str) -> Result<Self> {
        let mut myself = None;
        let mut others = BTreeMap::new();
        for line in text.lines() {
            // id, address, flags, master, ping, pong, epoch, link, slots...
            let fields: Vec<_> = line.split(' ').collect();
            let [id, _, flags, _, _, _, epoch, _, slots @ ..] = &fields[..] else { continue };
            // Slots in brackets are being moved.
            let slots = slots.iter().filter(|range| !range.starts_with('['));
            let slots = slots.map(|range| parse_range(range)).collect::<Result<Vec<_>>>()?;
            let flags: Vec<_> = flags.split(',').collect();
            let epoch = epoch.parse()?;
            if flags.contains(&"myself") {
                myself = Some((String::from(*id), epoch, slots));
            } else if !flags.contains(&"handshake") {
                others.insert(String::from(*id), (epoch, slots));
            }
        }
        let (id, epoch, slots) = myself.context("a node of a cluster doesn't know itself")?;
        Ok(Self { id, epoch, slots, others })
    }

    /// How many nodes it has met, itself included.
    pub(super) fn known(&self) -> usize {
        1 + self.others.len()
    }

    /// Whether the node itself is the slot's master.
    pub(super) fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }

    /// The epoch and the slots of each master, by its id.
    pub(super) fn owners(mut self) -> BTreeMap<String, (u64, Slots)> {
        self.others.insert(self.id, (self.epoch, self.slots));
        self.others.retain(|_, (_, slots)| !slots.is_empty());
        self.others
    }
}

fn parse_range(text: &str) -> Result<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Ok(first.parse()?..=last.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migrating_slot_still_belongs_to_its_master() {
        let view = View::parse(
            "aa 127.0.0.1:1@2 myself,master - 0 0 7 connected 0-9 12 [13->-bb]\n\
             bb 127.0.0.1:3@4 slave aa 0 0 2 connected\n\
             cc 127.0.0.1:5@6 handshake - 0 0 0 disconnected\n",
        )
        .unwrap();
        assert_eq!((view.id.as_str(), view.epoch, view.known()), ("aa", 7, 2));
        assert!(view.owns(9) && view.owns(12) && !view.owns(10) && !view.owns(13));
        assert_eq!(view.owners().into_keys().collect::<Vec<_>>(), ["aa"]);
    }
}
