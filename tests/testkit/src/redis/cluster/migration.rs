//! Moves a slot from one master to another, in steps. A test may act between the steps.

use anyhow::{Result, ensure};

use super::{RedisCluster, view::View};
use crate::redis::{RedisServer, server::START_TIMEOUT};

/// The number of keys to move at once.
const BATCH: &str = "100";
const MOVE_TIMEOUT_MS: &str = "5000";

/// A slot that is being moved from one node to another.
#[derive(Clone, Copy, Debug)]
#[must_use = "the slot stays half-way until the migration is finished or abandoned"]
pub struct SlotMigration {
    /// The slot.
    pub slot: u16,
    /// The index of the node that owns the slot until the end.
    pub from: usize,
    /// The index of the node that owns the slot after the end.
    pub to: usize,
}

impl RedisCluster {
    /// Moves a slot with its keys to the master `to`.
    ///
    /// # Errors
    /// When a node is down, or refuses, or the nodes don't agree.
    pub fn migrate_slot(&self, slot: u16, to: usize) -> Result<()> {
        let migration = self.begin_migration(slot, to)?;
        self.move_keys(&migration)?;
        self.finish_migration(migration)
    }

    /// Starts to move a slot to the master `to`, once the nodes agree. Its owner now answers `ASK`
    /// for keys that it does not have.
    ///
    /// A master that does not know the others' newest epochs would take the slot with an epoch that
    /// is not the newest. Then the nodes may disagree about the slot for ever.
    ///
    /// # Errors
    /// When a node is down, or refuses, or the nodes don't agree.
    pub fn begin_migration(&self, slot: u16, to: usize) -> Result<SlotMigration> {
        self.wait_settled(START_TIMEOUT)?;
        let from = self.owner_of(slot)?;
        ensure!(from != to, "the slot {slot} is the node {to}'s already");
        self.set_slot(to, slot, &["IMPORTING", &self.id(from)?])?;
        self.set_slot(from, slot, &["MIGRATING", &self.id(to)?])?;
        Ok(SlotMigration { slot, from, to })
    }

    /// Moves the keys that are in the slot now.
    ///
    /// # Errors
    /// When a node is down, or refuses.
    pub fn move_keys(&self, migration: &SlotMigration) -> Result<()> {
        let from = &self.nodes[migration.from];
        let to = &self.nodes[migration.to];
        loop {
            let keys =
                from.ask(["CLUSTER", "GETKEYSINSLOT", &migration.slot.to_string(), BATCH])?;
            if keys.elements().is_empty() {
                return Ok(());
            }
            let mut command = migrate(to);
            command.extend(keys.elements().iter().map(|key| key.bytes().to_vec()));
            from.ask(command)?;
        }
    }

    /// Gives the slot to its new owner, and informs all masters that answer.
    ///
    /// # Errors
    /// When one of the two nodes is down, or refuses. The old owner refuses while it has keys in
    /// the slot.
    pub fn finish_migration(&self, migration: SlotMigration) -> Result<()> {
        let SlotMigration { slot, from, to } = migration;
        let owner = self.id(to)?;
        // The new owner first: until it knows, no node would serve the slot.
        self.set_slot(to, slot, &["NODE", &owner])?;
        self.set_slot(from, slot, &["NODE", &owner])?;
        for other in (0..self.nodes.len()).filter(|&other| other != from && other != to) {
            // A replica, or a node that is down, learns of it from its peers.
            if self.nodes[other].is_primary().unwrap_or(false) {
                self.set_slot(other, slot, &["NODE", &owner])?;
            }
        }
        Ok(())
    }

    /// Leaves the slot with its old owner. Moved keys stay where they are.
    ///
    /// # Errors
    /// When one of the two nodes is down.
    pub fn abandon_migration(&self, migration: SlotMigration) -> Result<()> {
        self.set_slot(migration.from, migration.slot, &["STABLE"])?;
        self.set_slot(migration.to, migration.slot, &["STABLE"])
    }

    fn set_slot(&self, node: usize, slot: u16, state: &[&str]) -> Result<()> {
        let slot = slot.to_string();
        self.nodes[node].ask(["CLUSTER", "SETSLOT", &slot].iter().chain(state))?;
        Ok(())
    }

    fn id(&self, node: usize) -> Result<String> {
        Ok(View::of(&self.nodes[node])?.id)
    }
}

/// The command up to the names of the keys.
fn migrate(to: &RedisServer) -> Vec<Vec<u8>> {
    let port = to.port().to_string();
    let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", MOVE_TIMEOUT_MS];
    words.extend(to.password().iter().flat_map(|password| ["AUTH", password]));
    words.push("KEYS");
    words.into_iter().map(|word| word.as_bytes().to_vec()).collect()
}
