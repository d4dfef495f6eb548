//! What the tables are called.

/// The names of the tables.
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

    /// A table's name, as SQL wants it.
    pub(crate) fn table(&self, name: &str) -> String {
        format!("`{}_{name}`", self.prefix)
    }
}
