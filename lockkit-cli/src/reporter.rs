//! Writes lockkit's own messages to standard error, because standard output belongs to the child.

use serde_json::{Map, Value};

use crate::{
    cli::{Format, OutputArguments},
    output::aside,
};

/// How much lockkit reports, and in which format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reporter {
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
    pub(crate) json: bool,
}

impl Reporter {
    pub(crate) const fn new(output: &OutputArguments) -> Self {
        Self {
            quiet: output.quiet,
            verbose: output.verbose > 0,
            json: matches!(output.format, Format::Json),
        }
    }

    /// Reports what happened, unless `--quiet` is set.
    pub(crate) fn say(self, text: &str) {
        if !self.quiet {
            self.insist(text);
        }
    }

    /// Reports what only a user of `--verbose` wants to know.
    pub(crate) fn remark(self, text: &str) {
        if self.verbose {
            self.insist(text);
        }
    }

    /// Reports what must not be missed, even with `--quiet`.
    pub(crate) fn insist(self, text: &str) {
        if self.json {
            self.event("message", [("text", text.into())]);
        } else {
            aside(format_args!("lockkit: {text}"));
        }
    }

    /// Writes a line of JSON.
    pub(crate) fn event(
        self,
        event: &str,
        fields: impl IntoIterator<Item = (&'static str, Value)>,
    ) {
        let mut object = Map::new();
        object.insert("event".to_owned(), event.into());
        object.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
        aside(Value::Object(object));
    }
}
