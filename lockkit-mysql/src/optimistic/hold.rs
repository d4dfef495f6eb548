//! Finds the rows of several holds with one statement.

use std::collections::HashMap;

use lockkit_core::LockName;
use mysql_async::{Row, prelude::FromValue};

use super::record::TokenRange;
use crate::{
    handshake::value,
    sql::{literal, this},
};

/// A lock that a claim holds, or believes to hold.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) name: LockName,
    pub(crate) owner: String,
    pub(crate) tokens: TokenRange,
}

impl Hold {
    /// The condition that finds the row of this hold, and of no later grant.
    fn condition(&self) -> String {
        let this = this(&self.name);
        let owner = literal(self.owner.as_bytes());
        let (lowest, highest) = self.tokens;
        format!("({this} AND owner={owner} AND fence BETWEEN {lowest} AND {highest})")
    }

    fn key(&self) -> [String; 3] {
        [self.name.kind().as_str(), self.name.as_str(), &self.owner].map(str::to_owned)
    }
}

/// The condition that finds the rows of these holds.
///
/// A statement must name the primary key with `FORCE INDEX`, even where the table is so small that
/// a scan seems cheaper. A scan would wait for the rows of others. Rows that are found by the key
/// are locked in the order of the key, so two such statements never deadlock.
pub(crate) fn any_of<'a>(holds: impl Iterator<Item = &'a Hold>) -> String {
    holds.map(Hold::condition).collect::<Vec<_>>().join(" OR ")
}

/// The answer to a question about rows: kind, name, owner, and a value.
#[derive(Debug)]
pub(crate) struct Found<T>(HashMap<[String; 3], T>);

impl<T: FromValue> Found<T> {
    /// Leaves out rows that make no sense.
    pub(crate) fn read<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let entry = |row: &Row| {
            let text = |index| value::<String>(row, index);
            Some(([text(0)?, text(1)?, text(2)?], value::<T>(row, 3)?))
        };
        Self(rows.filter_map(entry).collect())
    }
}

impl<T> Found<T> {
    pub(crate) fn get(&self, hold: &Hold) -> Option<&T> {
        self.0.get(&hold.key())
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }
}
