//! Reads and writes the note beside a lock. It has a row of its own, in both strategies.

use lockkit_core::{
    LockName, Result, Tick,
    spi::{Note, Noted},
};
use mysql_async as my;

use crate::{
    connection::Connection,
    error::{self, Phase},
    handshake::value,
    pool::Pool,
    sql::{NOW, WRITABLE, literal, this},
};

/// How often a statement that lost a race is sent again at once.
const RACES: u32 = 4;
const WRITTEN: u64 = 1;
const OUTDATED: u64 = 2;
/// The index of the insert among the statements of a write.
const INSERT: usize = 1;

/// How a write finds out that a grant is still held.
#[derive(Debug)]
pub(crate) struct Proof<'a> {
    pub(crate) name: &'a LockName,
    /// The table that has the row of the name.
    pub(crate) table: String,
    /// The condition that is true of that row while the lock is held.
    pub(crate) held: String,
    /// The statement that changes that row. On a cluster with several primaries it is needed,
    /// because a row lock does not reach the other servers.
    pub(crate) touch: String,
}

/// The note of a name; an empty one if none was written.
///
/// # Errors
/// Returns the server's error, or an error if the server is no primary any more.
pub(crate) async fn note(pool: &Pool, name: &LockName) -> Result<Note> {
    let what = "reading the note";
    let question = format!(
        "SELECT revision,content FROM {} WHERE {}",
        pool.config().tables().table("note"),
        this(name)
    );
    let Some(row) = pool.ask_primary(&question, what).await? else { return Ok(Note::default()) };
    let note = || Some(Note::new(value(&row, 0)?, String::from_utf8(value(&row, 1)?).ok()?));
    note().ok_or_else(|| error::nonsense(what))
}

/// Writes the note in one transaction and one request. The transaction does nothing unless the
/// grant is held by then, and the note is newer than the stored one. This asks once, or twice if
/// our estimate of the server's time was wrong. The result is `None` if the request came late both
/// times.
///
/// # Errors
/// The outcome is unknown if the connection broke.
pub(crate) async fn write(
    pool: &Pool,
    connection: &mut Connection,
    proof: &Proof<'_>,
    note: &Note,
    deadline: Tick,
) -> Result<Option<Noted>> {
    let table = pool.config().tables().table("note");
    for _ in 0..2 {
        let not_after = pool.server_time(deadline);
        let script = script(&table, proof, note, not_after);
        let mut races = 0;
        let steps = loop {
            let answer: Result<_, my::Error> = connection.transaction(&script).await;
            match answer {
                Err(error) if error::is_race(&error) && races < RACES => {
                    races += 1;
                    pool.checked(
                        connection.roll_back().await,
                        Phase::Read,
                        "undoing a note that lost a race",
                    )?;
                }
                answer => break pool.checked(answer, Phase::Write, "writing the note")?,
            }
        };
        match steps.get(INSERT).map(|step| step.outcome.id) {
            Some(WRITTEN) => return Ok(Some(Noted::Written)),
            Some(OUTDATED) => return Ok(Some(Noted::Outdated)),
            Some(0) if pool.ask_time(connection).await? <= not_after => {
                return Ok(Some(Noted::NotHeld));
            }
            Some(0) => {}
            _ => return Err(error::nonsense("writing the note").with_outcome_unknown()),
        }
    }
    Ok(None)
}

/// Locks the row of the grant first, and then checks it. The server assigns columns from left to
/// right, so the columns that depend on the old `revision` come before `revision`. The answer is
/// the last value of `LAST_INSERT_ID()`. It is 0 if there is no such grant, if the request is late,
/// or if the server is no primary.
fn script(table: &str, proof: &Proof<'_>, note: &Note, not_after_us: u64) -> String {
    let Proof { name, table: source, held, touch } = proof;
    let this = this(name);
    let revision = note.revision;
    let text = literal(note.text.as_bytes());
    // A missing note counts as an empty note of revision zero.
    let (first, content) = match note.replaces(&Note::default()) {
        Noted::Written => (WRITTEN, "@lockkit_note"),
        Noted::NotHeld | Noted::Outdated => (OUTDATED, "''"),
    };
    format!(
        "SET @lockkit_note={text};\
         INSERT INTO {table}(kind,name,revision,content) \
         SELECT kind,name,{revision}+0*LAST_INSERT_ID({first}),{content} FROM {source} \
         WHERE {this} AND {held} AND {NOW}<={not_after_us} AND {WRITABLE} FOR UPDATE \
         ON DUPLICATE KEY UPDATE content=IF(revision<{revision},@lockkit_note,content),\
         revision=IF(revision<{revision},{revision}+0*LAST_INSERT_ID({WRITTEN}),revision+0*LAST_INSERT_ID(\
         IF(revision={revision} AND content=@lockkit_note,{WRITTEN},{OUTDATED})))\
         {touch}"
    )
}
