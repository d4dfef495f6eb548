//! lockkit's own words, on standard error: standard output is the child's.

use serde_json::{Map, Value};

use crate::{
    cli::{Format, OutputArguments},
    output::aside,
};

/// How much is said, and how.
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

    /// Says what happened, unless it is to be quiet.
    pub(crate) fn say(self, text: &str) {
        if !self.quiet {
            self.insist(text);
        }
    }

    /// Says what is only of interest to one who asked for more.
    pub(crate) fn remark(self, text: &str) {
        if self.verbose {
            self.insist(text);
        }
    }

    /// Says what nobody may miss.
    pub(crate) fn insist(self, text: &str) {
        if self.json {
            self.event("message", [("text", text.into())]);
        } else {
            aside(format_args!("lockkit: {text}"));
        }
    }

    /// A line of JSON.
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
