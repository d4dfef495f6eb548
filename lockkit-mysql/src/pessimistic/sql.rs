//! The statements of this strategy.

use std::time::Duration;

use lockkit_core::spi::ClaimSpec;
use mysql_async::Value;

use crate::{
    connection::Session,
    server::Server,
    sql::{NOW, WRITABLE, is_owner, literal, quoted, this},
    tables::Tables,
};

/// The start of the name of a sign. The lock of a row shows that there is a holder, but not which
/// one. So each holder also has a user-level lock of the server, for which no client waits. It is
/// named after the owner and its connection, because an earlier attempt of the same owner may still
/// have its own.
pub(super) const SIGN: &str = "lockkit.";
/// A savepoint before the user's first statement. It is gone when the transaction is gone.
const MARK: &str = "SAVEPOINT lockkit_transaction";
/// A savepoint in a transaction of the program. It is gone when the transaction is gone, and at
/// once where no transaction is open.
const OWN_MARK: &str = "SAVEPOINT lockkit_row";
/// The server lets a connection that waits for a dead holder's lease be idle for at least so many
/// seconds.
pub(super) const LEAST_OPEN: u64 = 5;

/// The statements that are the same for all names.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) row: String,
    pub(super) fence: String,
    database: String,
    pub(super) bump: String,
    pub(super) first_bump: String,
    pub(super) transfer: String,
    pub(super) raise: String,
    strict: bool,
}

impl Sql {
    pub(super) fn new(tables: &Tables, database: &str, strict: bool) -> Self {
        let database = quoted(database);
        let row = tables.table("row");
        let fence = tables.table("fence");
        // The sign is there as long as the connection that has the row. And the token is still the
        // one that was read under the row's lock, so no other claim was granted the lock since. The
        // name of the sign includes an empty part of the row. So the server looks for the sign once
        // the row is locked; it would look for a constant name before.
        let signed = |name: &str| format!("IS_USED_LOCK({name})<=>?");
        let ours = signed("CONCAT(?,CONVERT(LEFT(owner,0) USING utf8mb4))");
        let first = signed("?");
        let bump = format!(
            "UPDATE {fence} SET fence=LAST_INSERT_ID(GREATEST(fence+1,{NOW})),owner=?,acquired_us={NOW},open_us=?,server=?,\
             started_us=?,thread=?,label=? WHERE kind=? AND name=? AND fence=? AND {WRITABLE} AND {ours}"
        );
        let first_bump = format!(
            "INSERT INTO {fence}(fence,owner,acquired_us,open_us,server,started_us,thread,label,kind,name) \
             SELECT LAST_INSERT_ID({NOW}),?,{NOW},?,?,?,?,?,?,? FROM DUAL WHERE {WRITABLE} AND {first} \
             ON DUPLICATE KEY UPDATE fence=fence+0*LAST_INSERT_ID(0)"
        );
        let transfer = format!(
            "UPDATE {fence} SET fence=LAST_INSERT_ID(GREATEST(fence+1,{NOW})),owner=?,label=?,acquired_us={NOW},open_us=? \
             WHERE kind=? AND name=? AND owner=? AND {NOW}<=? AND {WRITABLE}"
        );
        let raise = format!(
            "UPDATE {fence} SET fence=LAST_INSERT_ID(GREATEST(fence,?)) \
             WHERE kind=? AND name=? AND owner=? AND {WRITABLE}"
        );
        Self { row, fence, database, bump, first_bump, transfer, raise, strict }
    }
}

/// No lease is longer, so that all sums of times fit.
pub(super) const LONGEST: Duration = Duration::from_secs(11 * 24 * 60 * 60);

/// The server counts in whole seconds.
pub(super) fn whole_seconds(lease: Duration) -> u64 {
    lease.as_secs() + u64::from(lease.subsec_nanos() > 0)
}

/// The values of one claim in its statements.
#[derive(Clone, Debug)]
pub(super) struct Key {
    this: String,
    kind: &'static str,
    name: String,
    pub(super) owner: String,
    label: String,
    lease_s: u64,
    lease_us: u64,
}

impl Key {
    pub(super) fn new(spec: &ClaimSpec) -> Self {
        Self {
            this: this(&spec.name),
            kind: spec.name.kind().as_str(),
            name: spec.name.as_str().to_owned(),
            owner: spec.owner.to_string(),
            label: spec.label.as_deref().unwrap_or_default().to_owned(),
            lease_s: whole_seconds(spec.ttl).max(1),
            lease_us: u64::try_from(spec.ttl.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// The settings of the session for an attempt. The server counts in whole seconds, and may wait
    /// for one second more, so the waiter counts the time itself.
    pub(super) fn session(&self, patience: Option<Duration>, now: Session) -> Session {
        let lock_wait_s = patience
            .map_or(now.lock_wait_s, |patience| patience.as_secs().saturating_sub(1).max(1));
        Session { idle_s: self.lease_s, lock_wait_s }
    }

    /// Locks the row, and takes a sign of life that others can see and that ends with the
    /// connection. The second answer has the sign, the token and the connection, which a proxy may
    /// have chosen just now. With strict leases, the third answer has the rest that the last holder
    /// left.
    pub(super) fn lock(&self, sql: &Sql, patience: Option<Duration>) -> String {
        let this = &self.this;
        let sign = self.sign_name();
        let nowait = if patience.is_some() { "" } else { " NOWAIT" };
        let Sql { row, fence, strict, .. } = sql;
        // A token that was read before the row was locked is refused at the bump. The end of a
        // lease may also have changed since, but has no such check. So it is read when the row is
        // ours.
        let left = format!(
            ";SELECT open_us,IF(owner='',{NOW}-CAST(acquired_us AS SIGNED),0) FROM {fence} WHERE {this}"
        );
        format!(
            "START TRANSACTION;SELECT GET_LOCK({sign},0),\
             (SELECT last.fence FROM {fence} AS last WHERE last.kind=this.kind AND last.name=this.name),\
             CONNECTION_ID() \
             FROM {row} AS this WHERE {this} FOR UPDATE{nowait}{}",
            if *strict { &left } else { "" }
        )
    }

    /// Marks a transaction of the program, and takes a sign on its connection. The last answer has
    /// the connection's number.
    pub(super) fn begin_own(&self) -> String {
        let sign = self.sign_name();
        format!(
            "{OWN_MARK};RELEASE {OWN_MARK};{OWN_MARK};SELECT GET_LOCK({sign},0),CONNECTION_ID()"
        )
    }

    /// Asks whether this server has the sign of that connection and the row, and for the last
    /// token.
    pub(super) fn look_own(&self, sql: &Sql, thread: u64) -> String {
        let Sql { row, fence, .. } = sql;
        let this = &self.this;
        let signed = is_owner(&self.sign(thread), thread);
        format!(
            "SELECT {signed},(SELECT 1 FROM {row} WHERE {this}),(SELECT fence FROM {fence} WHERE {this})"
        )
    }

    /// Locks the row in a transaction of the program. It reads nothing else, so it makes no
    /// snapshot. And the row of the token stays free for the raise on another connection.
    pub(super) fn lock_own(&self, sql: &Sql, waits: bool) -> String {
        let nowait = if waits { "" } else { " NOWAIT" };
        let Sql { row, database, .. } = sql;
        format!("SELECT 1 FROM {database}.{row} WHERE {} FOR UPDATE{nowait}", self.this)
    }

    /// Proves that the transaction of the program is still open.
    pub(super) fn prove_own() -> String {
        format!("RELEASE {OWN_MARK};{OWN_MARK}")
    }

    /// Removes the sign and the mark. Proves at the same time that the transaction of the program
    /// is still open.
    pub(super) fn end_own(&self) -> String {
        format!("DO RELEASE_LOCK({});RELEASE {OWN_MARK}", self.sign_name())
    }

    /// Makes the row, before the statements of [`lock`](Self::lock).
    pub(super) fn create(&self, sql: &Sql) -> String {
        let kind = literal(self.kind.as_bytes());
        let name = literal(self.name.as_bytes());
        format!("ROLLBACK;INSERT IGNORE INTO {}(kind,name) VALUES({kind},{name});", sql.row)
    }

    /// `last` is the token that was there when the row was locked. If the token has changed, the
    /// row was lost meanwhile. Then nothing may be changed, least of all the token of the present
    /// holder.
    pub(super) fn bump(&self, sql: &Sql, server: &Server, last: u64) -> Vec<Value> {
        let open_us = if sql.strict { self.lease_us } else { 0 };
        let (host, started_us) = server.run();
        let mut params: Vec<Value> = vec![
            self.owner.as_str().into(),
            open_us.into(),
            host.into(),
            started_us.into(),
            server.thread.into(),
            self.label.as_str().into(),
            self.kind.into(),
            self.name.as_str().into(),
        ];
        params.extend(Some(last).filter(|last| *last > 0).map(Value::from));
        params.extend([self.sign(server.thread).into(), server.thread.into()]);
        params
    }

    /// Stores how long the next holder has to wait at least, if this holder dies. A late request
    /// changes nothing once the lease was [ended](Self::settle).
    pub(super) fn keep_open(&self, sql: &Sql, lease: Duration) -> String {
        let owner = literal(self.owner.as_bytes());
        let lease_us = lease.as_micros();
        format!(
            "UPDATE {} SET open_us=GREATEST(open_us,{lease_us}) \
             WHERE {} AND owner={owner} AND open_us>0",
            sql.fence, self.this
        )
    }

    /// Gives the token of a holder to the owner of `to`, unless an operator has freed the lock or
    /// another owner has raised the token.
    pub(super) fn transfer(&self, sql: &Sql, to: &Self, not_after_us: u64) -> Vec<Value> {
        let open_us = if sql.strict { to.lease_us } else { 0 };
        let texts = [&*to.owner, &*to.label].map(Value::from);
        let this = [self.kind, &*self.name, &*self.owner].map(Value::from);
        texts.into_iter().chain([open_us.into()]).chain(this).chain([not_after_us.into()]).collect()
    }

    /// Raises the token of a holder.
    pub(super) fn raise(&self, floor: u64) -> Vec<Value> {
        vec![floor.into(), self.kind.into(), self.name.as_str().into(), self.owner.as_str().into()]
    }

    /// Proves that the connection is alive, and asks whose the last token is. There is no row in
    /// the answer if the server is no primary any more. The new primary has no row locks, and
    /// grants the same name.
    pub(super) fn ping(&self, sql: &Sql) -> String {
        format!("SELECT fence,owner FROM {} WHERE {} AND {WRITABLE}", sql.fence, self.this)
    }

    /// As [`ping`](Self::ping), with the sign of this owner in place of that of `previous`. The
    /// session was set up for another lease, and is set to this one.
    pub(super) fn take_over(&self, sql: &Sql, previous: &Self) -> String {
        format!(
            "SET SESSION wait_timeout={};SELECT fence,owner,GET_LOCK({},0) FROM {} WHERE {} AND {WRITABLE};DO RELEASE_LOCK({})",
            self.lease_s,
            self.sign_name(),
            sql.fence,
            self.this,
            previous.sign_name()
        )
    }

    /// The name of the sign on a connection.
    pub(super) fn sign(&self, thread: u64) -> String {
        format!("{SIGN}{}.{thread}", self.owner)
    }

    /// The same name, for the connection that runs the statement.
    fn sign_name(&self) -> String {
        format!("CONCAT({},CONNECTION_ID())", literal(format!("{SIGN}{}.", self.owner).as_bytes()))
    }

    /// After how many seconds without a request the server ends the connection.
    pub(super) fn idle_s(&self, least_s: u64) -> u64 {
        self.lease_s.max(least_s)
    }

    /// Runs before the user's first statement. A statement that waits for a row, or for its reader,
    /// is given up after the lease, even if its holder is dead.
    pub(super) fn begin_use(&self) -> String {
        let lease_s = self.lease_s;
        format!("SET SESSION innodb_lock_wait_timeout={lease_s},net_write_timeout={lease_s};{MARK}")
    }

    /// Proves that the user's statements have left the transaction open. It undoes those of their
    /// settings that would hurt our statements.
    pub(super) fn check_use(&self, sql: &Sql, idle_s: u64) -> String {
        let lease_s = self.lease_s;
        let database = &sql.database;
        format!(
            "RELEASE {MARK};{MARK};USE {database};\
             SET SESSION wait_timeout={idle_s},net_write_timeout={lease_s},sql_select_limit=DEFAULT"
        )
    }

    /// Asks whose the last token is, as a ping does, and frees the row. With strict leases this may
    /// have to wait, or fail, and until it is done the sign says who has the row. Without them,
    /// nothing was written that a `COMMIT` could wait for.
    pub(super) fn ping_and_commit(
        &self,
        sql: &Sql,
        successor: Option<&Self>,
        server: &Server,
    ) -> String {
        let sign = self.sign_name();
        let Sql { fence, strict, .. } = sql;
        let this = &self.this;
        if *strict {
            return format!("{};{}", self.ping(sql), self.commit(sql, successor, server));
        }
        format!("SELECT fence,owner,RELEASE_LOCK({sign}) FROM {fence} WHERE {this};COMMIT")
    }

    /// Frees the row. With strict leases it also ends the lease, so that no claim has to wait for
    /// it.
    pub(super) fn commit(&self, sql: &Sql, successor: Option<&Self>, server: &Server) -> String {
        let settle =
            if sql.strict { self.settle(sql, successor, server) + ";" } else { String::new() };
        format!("{settle}COMMIT;{}", self.reset())
    }

    /// Frees the row and undoes all changes.
    pub(super) fn undo(&self) -> String {
        format!("ROLLBACK;{}", self.reset())
    }

    fn reset(&self) -> String {
        format!("DO RELEASE_LOCK({})", self.sign_name())
    }

    /// Ends the lease of the grant on this connection, so that no claim has to wait for it any more.
    /// A claim that did not wait may have removed the owner meanwhile, by
    /// [`note_free`](Self::note_free). A late request ends no lease of a later grant, which has
    /// another connection.
    pub(super) fn settle(&self, sql: &Sql, successor: Option<&Self>, server: &Server) -> String {
        let owner = literal(self.owner.as_bytes());
        let successor = literal(successor.unwrap_or(self).owner.as_bytes());
        let (host, started_us) = server.run();
        let host = literal(host.as_bytes());
        let thread = server.thread;
        format!(
            "UPDATE {} SET open_us=0 WHERE {} AND owner IN({owner},{successor},'') \
             AND server={host} AND started_us={started_us} AND thread={thread}",
            sql.fence, self.this
        )
    }

    /// Records since when the row has been free, for claims that come again and hold nothing in
    /// between. The last holder must be gone, because this needs the row's lock.
    pub(super) fn note_free(&self, sql: &Sql) -> String {
        format!(
            "UPDATE {} SET acquired_us={NOW},owner='' WHERE {} AND (owner<>'' OR acquired_us>{NOW});COMMIT;{}",
            sql.fence,
            self.this,
            self.reset()
        )
    }
}
