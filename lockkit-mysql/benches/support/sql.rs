//! The statements of the benchmarks. They repeat those of lockkit, which are private.

/// The settings of lockkit's connections.
pub(crate) const SETTINGS: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;\
    SET autocommit=1,sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',innodb_lock_wait_timeout=1";

/// The server's time in µs, as lockkit reads it.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";

/// A table for the bare driver, with the columns of lockkit's, and the row of each name in it.
pub(crate) const TABLES: &str = "DROP TABLE IF EXISTS bare_lock,bare_row,bare_fence;\
    CREATE TABLE bare_lock(kind VARBINARY(16) NOT NULL,name VARBINARY(255) NOT NULL,\
    owner VARBINARY(64) NOT NULL DEFAULT '',fence BIGINT UNSIGNED NOT NULL DEFAULT 0,\
    expires_us BIGINT UNSIGNED NOT NULL DEFAULT 0,touched_us BIGINT UNSIGNED NOT NULL DEFAULT 0,\
    acquired_us BIGINT UNSIGNED NOT NULL DEFAULT 0,wanted_us BIGINT UNSIGNED NOT NULL DEFAULT 0,\
    permits INT UNSIGNED NOT NULL DEFAULT 0,label VARBINARY(255) NOT NULL DEFAULT '',\
    PRIMARY KEY(kind,name)) ENGINE=InnoDB;\
    CREATE TABLE bare_row(kind VARBINARY(16) NOT NULL,name VARBINARY(255) NOT NULL,PRIMARY KEY(kind,name)) \
    ENGINE=InnoDB;\
    CREATE TABLE bare_fence(kind VARBINARY(16) NOT NULL,name VARBINARY(255) NOT NULL,\
    fence BIGINT UNSIGNED NOT NULL,PRIMARY KEY(kind,name)) ENGINE=InnoDB";

/// Two updates that only write.
pub(crate) const TAKE: &str = "UPDATE bare_lock SET owner=?,fence=LAST_INSERT_ID(fence+1),expires_us=? WHERE kind=? AND name=?";
pub(crate) const FREE: &str = "UPDATE bare_lock SET owner='',expires_us=0 WHERE kind=? AND name=?";

/// As [`FREE`], without a change of the row's length.
pub(crate) const FREE_IN_PLACE: &str = "UPDATE bare_lock SET expires_us=0 WHERE kind=? AND name=?";

/// lockkit's statement for a row that was seen before. Its condition also reports the rest of
/// another owner's lease.
pub(crate) fn acquire_if_free() -> String {
    format!(
        "UPDATE bare_lock SET fence=LAST_INSERT_ID(GREATEST(fence+1,{NOW})),owner=?,label=?,acquired_us={NOW},\
         wanted_us=IF(wanted_us=?,0,wanted_us),expires_us={NOW}+? WHERE kind=? AND name=? AND {NOW}<=? AND \
         (expires_us<={NOW} OR 0*LAST_INSERT_ID(IF(owner=?,0,LEAST(expires_us-{NOW},1000000000000))))"
    )
}

/// lockkit's one statement, with any expression for the time. `source` is where the row comes from.
pub(crate) fn acquire(now: &str, source: &str) -> String {
    format!(
        "INSERT INTO bare_lock(kind,name,owner,fence,expires_us,touched_us,acquired_us,label) \
         SELECT ?,?,?,LAST_INSERT_ID({now}),{now}+?,{now},{now},? FROM {source} WHERE {now}<=? \
         ON DUPLICATE KEY UPDATE {}",
        assignments(now)
    )
}

/// The same for a row that exists.
pub(crate) fn acquire_by_update(now: &str) -> String {
    format!("UPDATE bare_lock SET {} WHERE kind=? AND name=? AND {now}<=?", assignments(now))
}

fn assignments(now: &str) -> String {
    format!(
        "fence=IF(expires_us<={now},LAST_INSERT_ID(GREATEST(fence+1,{now})),\
         IF(owner=?,LAST_INSERT_ID(fence),fence+0*LAST_INSERT_ID(LEAST(expires_us-{now},1000000000000)))),\
         acquired_us=IF(expires_us<={now},{now},acquired_us),\
         label=IF(expires_us<={now},?,label),\
         owner=IF(expires_us<={now},?,owner),\
         touched_us=IF(owner=?,{now},touched_us),\
         expires_us=IF(owner=?,GREATEST(expires_us,{now}+?),expires_us)"
    )
}

/// lockkit's peek: the fence, and how long the lease still lasts.
pub(crate) fn peek() -> String {
    format!("SELECT fence,CAST(expires_us AS SIGNED)-{NOW} FROM bare_lock WHERE kind=? AND name=?")
}

/// A release that wipes the row clean, as lockkit's once did.
pub(crate) fn release() -> String {
    format!(
        "UPDATE bare_lock SET fence=fence+0*LAST_INSERT_ID(IF(expires_us>{NOW},2,1)),\
         owner='',expires_us=0,touched_us={NOW} WHERE kind=? AND name=? AND owner=?"
    )
}

/// lockkit's release: no column changes its length.
pub(crate) fn release_in_place() -> String {
    format!(
        "UPDATE bare_lock SET expires_us=0*LAST_INSERT_ID(IF(expires_us>{NOW},2,1)),touched_us={NOW} \
         WHERE kind=? AND name=? AND owner=?"
    )
}

/// The textbook's optimistic lock: the owner, the version, and how long the lease still lasts.
pub(crate) fn classic_read() -> String {
    format!(
        "SELECT owner,fence,CAST(expires_us AS SIGNED)-{NOW} FROM bare_lock WHERE kind=? AND name=?"
    )
}

/// The write that takes the lock, if no other contender was faster.
pub(crate) fn classic_write() -> String {
    format!(
        "UPDATE bare_lock SET owner=?,fence=fence+1,expires_us={NOW}+?,touched_us={NOW},acquired_us={NOW} \
         WHERE kind=? AND name=? AND fence=?"
    )
}
