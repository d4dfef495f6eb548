//! The names of the tables.

/// The names of the tables under one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tables {
    prefix: String,
}

impl Tables {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A table's name, quoted for SQL.
    pub(crate) fn table(&self, name: &str) -> String {
        format!("`{}_{name}`", self.prefix)
    }
}
