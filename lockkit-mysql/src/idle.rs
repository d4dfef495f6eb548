//! Finds the names whose rows were not used for a while, page by page.

use lockkit_core::Result;

use crate::{
    channel::Checkout,
    error::{self, Phase},
    handshake::value,
    pool::Pool,
    sql::literal,
};

/// How many names one request finds.
const PAGE: usize = 100;
pub(crate) const WHAT: &str = "removing the rows of unused names";

/// Finds the names in the order of the primary key. It only reads.
#[derive(Debug)]
pub(crate) struct IdleNames {
    page: String,
    /// Kind and name of the last one found; `None` when there are no more.
    after: Option<(Vec<u8>, Vec<u8>)>,
}

impl IdleNames {
    /// The names for whose row in `table` the condition `idle` holds.
    pub(crate) fn new(table: &str, idle: &str) -> Self {
        let page = format!(
            "SELECT kind,name FROM {table} WHERE (kind>? OR (kind=? AND name>?)) AND {idle} \
             ORDER BY kind,name LIMIT {PAGE}"
        );
        Self { page, after: Some((Vec::new(), Vec::new())) }
    }

    /// The next names, and the connection that found them. Each name is a condition that finds its
    /// row by the primary key, because a scan would wait for the rows of others.
    ///
    /// # Errors
    /// Returns the server's error.
    pub(crate) async fn next(&mut self, pool: &Pool) -> Result<Option<(Checkout, Vec<String>)>> {
        let Some((kind, name)) = self.after.take() else { return Ok(None) };
        let mut connection = pool.get(pool.config().connect_timeout).await?;
        let params = vec![kind.clone().into(), kind.into(), name.into()];
        let rows = pool.checked(connection.rows(&self.page, params).await, Phase::Read, WHAT)?;
        let names =
            rows.iter().map(|row| Some((value(row, 0)?, value(row, 1)?))).collect::<Option<_>>();
        let names: Vec<(Vec<u8>, Vec<u8>)> = names.ok_or_else(|| error::nonsense(WHAT))?;
        let found = names
            .iter()
            .map(|(kind, name)| format!("kind={} AND name={}", literal(kind), literal(name)));
        let found = found.collect();
        self.after = names.into_iter().nth(PAGE - 1);
        Ok(Some((connection, found)))
    }
}
