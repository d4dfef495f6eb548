//! A primary and its replicas.

use anyhow::Result;

use super::{
    options::RedisOptions,
    server::{RedisServer, START_TIMEOUT},
    wait::wait_for,
};

impl RedisServer {
    /// Starts a replica of `primary` with the same password, and waits until it has all of the
    /// primary's data.
    ///
    /// # Errors
    /// As for [`start`](Self::start), or it does not synchronize.
    pub fn start_replica_of(primary: &Self) -> Result<Self> {
        let options = RedisOptions::default().with_primary(primary.port());
        let replica = Self::start_as(match primary.password() {
            Some(password) => options.with_password(password),
            None => options,
        })?;
        replica.wait_in_sync()?;
        Ok(replica)
    }

    /// Makes this server a replica of `primary`, and so deletes its own data. Does not wait.
    ///
    /// # Errors
    /// When this server is down, or refuses.
    pub fn replicate(&self, primary: &Self) -> Result<()> {
        if let Some(password) = primary.password() {
            self.ask(["CONFIG", "SET", "masterauth", password])?;
        }
        self.ask(["REPLICAOF", &primary.ip().to_string(), &primary.port().to_string()])?;
        Ok(())
    }

    /// Makes this replica a primary, with the data that it has received.
    ///
    /// # Errors
    /// When this server is down, or refuses.
    pub fn promote(&self) -> Result<()> {
        self.ask(["REPLICAOF", "NO", "ONE"])?;
        Ok(())
    }

    /// Waits until this replica has its primary's data, and receives all further writes.
    ///
    /// # Errors
    /// When that takes more than a minute.
    pub fn wait_in_sync(&self) -> Result<()> {
        let what = format!("synchronization of the replica {}", self.addr());
        wait_for(&what, START_TIMEOUT, || {
            Ok(self.info("replication")?.contains("master_link_status:up").then_some(()))
        })
    }

    /// Whether the server considers itself a primary.
    ///
    /// # Errors
    /// When it is down or paused.
    pub fn is_primary(&self) -> Result<bool> {
        Ok(self.peek(["ROLE"])?.elements().first().is_some_and(|role| role.text() == "master"))
    }

    fn info(&self, section: &str) -> Result<String> {
        Ok(self.peek(["INFO", section])?.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::RedisReply;

    #[test]
    fn a_replica_has_the_data_of_its_primary_and_keeps_it_when_it_is_promoted() {
        let primary =
            RedisServer::start_as(RedisOptions::default().with_password("secret")).unwrap();
        primary.ask(["SET", "a", "b"]).unwrap();
        let replica = RedisServer::start_replica_of(&primary).unwrap();
        assert_eq!(replica.ask(["GET", "a"]).unwrap().text(), "b");
        assert!(
            replica
                .ask(["SET", "a", "c"])
                .unwrap_err()
                .root_cause()
                .to_string()
                .starts_with("READONLY")
        );
        assert!(!replica.is_primary().unwrap());

        replica.promote().unwrap();
        assert!(replica.is_primary().unwrap());
        replica.ask(["SET", "a", "c"]).unwrap();
        primary.replicate(&replica).unwrap();
        primary.wait_in_sync().unwrap();
        assert_eq!(primary.command(["GET", "a"]).unwrap(), RedisReply::Bulk(b"c".to_vec()));
    }
}
