//! Takes the parameters of a URL, or settings, one by one, and refuses those that no reader took.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use super::{ENCODE, invalid};
use crate::error::{Error, ErrorKind, Result};

/// The parameters of a [`StoreUrl`](super::StoreUrl).
#[derive(Clone)]
pub struct Params {
    given: Vec<(String, String)>,
    known: Vec<&'static str>,
    /// Errors call them settings, and not parameters of a URL.
    are_settings: bool,
}

impl Params {
    pub(super) fn new<'a>(pairs: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>) -> Self {
        let given = pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        Self { given, known: Vec::new(), are_settings: false }
    }

    /// The keys and values of settings, which are read as parameters are.
    #[cfg(feature = "serde")]
    pub(crate) fn of_settings(given: Vec<(String, String)>) -> Self {
        Self { given, known: Vec::new(), are_settings: true }
    }

    /// Takes out a parameter as text.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] if it is given twice.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>> {
        self.known.push(name);
        let mut values = self.given.extract_if(.., |(given, _)| given == name);
        let first = values.next();
        let is_repeated = values.next().is_some();
        drop(values);
        if is_repeated {
            return Err(self.fault(name, "is given twice"));
        }
        Ok(first.map(|(_, value)| value))
    }

    /// Takes out a parameter that may be given several times, as texts in their order.
    pub fn texts(&mut self, name: &'static str) -> Vec<String> {
        self.known.push(name);
        self.given.extract_if(.., |(given, _)| given == name).map(|(_, value)| value).collect()
    }

    /// Takes out a parameter and parses it. `expected` says what it should look like.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] if it can't be parsed, or is given twice.
    pub fn parsed<T: FromStr>(&mut self, name: &'static str, expected: &str) -> Result<Option<T>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let parsed = text.parse::<T>().map(Some);
        parsed.map_err(|_| self.fault(name, &format!("must be {expected}")))
    }

    /// Takes out a parameter that is a duration such as `250ms`, `10s` or `1m 30s`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] if it is no duration, or is given twice.
    pub fn duration(&mut self, name: &'static str) -> Result<Option<Duration>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let parsed = humantime::parse_duration(&text).map(Some);
        parsed.map_err(|_| self.fault(name, "must be a duration such as 250ms or 10s"))
    }

    /// As [`duration`](Self::duration); `forever` is [`Duration::MAX`].
    pub(crate) fn bound(&mut self, name: &'static str) -> Result<Option<Duration>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        if text == "forever" {
            return Ok(Some(Duration::MAX));
        }
        let parsed = humantime::parse_duration(&text).map(Some);
        parsed.map_err(|_| self.fault(name, "must be a duration such as 250ms or 10s, or forever"))
    }

    /// Checks that no parameter is left after all known ones were taken.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownParameter`] if one is left. The error names the known parameter that is
    /// most like it.
    pub fn finish(&self) -> Result<()> {
        let Some((unknown, _)) = self.given.first() else { return Ok(()) };
        let is_split = |(name, value): &(String, String)| !is_plain(name) || value.contains('@');
        if !self.are_settings && self.given.iter().any(is_split) {
            return Err(Error::new(
                ErrorKind::UnknownParameter,
                format!(
                    "the store URL has an unknown parameter, perhaps a part of a password; {ENCODE}"
                ),
            ));
        }
        let likeness = |known: &&&str| -strsim::normalized_damerau_levenshtein(unknown, known);
        let mut known: Vec<_> = self.known.iter().collect();
        known.sort_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let advice = match known.first() {
            Some(nearest) if -likeness(nearest) >= 0.5 => format!("did you mean {nearest}?"),
            _ => {
                known.sort();
                let known: Vec<_> = known.into_iter().copied().collect();
                format!("known are {}", known.join(", "))
            }
        };
        let text = if self.are_settings {
            format!("there is no setting {unknown:?}: {advice}")
        } else {
            format!("the store URL has an unknown parameter {unknown:?}: {advice}")
        };
        Err(Error::new(ErrorKind::UnknownParameter, text))
    }

    fn fault(&self, name: &str, fault: &str) -> Error {
        if self.are_settings {
            let text = format!("the setting {name} {fault}");
            return Error::new(ErrorKind::InvalidOption, text);
        }
        invalid(format!("the parameter {name} {fault}"))
    }
}

/// Whether a name may be quoted. In `redis://?secret@host/` the parser reads `secret@host/` as a
/// parameter.
fn is_plain(name: &str) -> bool {
    name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// Two values are equal if the same parameters are left in them.
impl PartialEq for Params {
    fn eq(&self, other: &Self) -> bool {
        self.given == other.given
    }
}

impl Eq for Params {}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.given.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::StoreUrl;

    fn params(query: &str) -> Params {
        StoreUrl::parse(&format!("memory://?{query}")).unwrap().params
    }

    #[test]
    fn c13_an_unknown_parameter_names_its_nearest() {
        let mut given = params("tll=3s");
        given.duration("ttl").unwrap();
        given.text("prefix").unwrap();
        let error = given.finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownParameter);
        assert!(
            error.to_string().contains("unknown parameter \"tll\": did you mean ttl?"),
            "{error}"
        );
    }

    #[test]
    fn a_far_fetched_parameter_lists_the_known_ones() {
        let mut given = params("zookeeper=1");
        given.duration("ttl").unwrap();
        given.text("prefix").unwrap();
        assert!(given.finish().unwrap_err().to_string().contains("known are prefix, ttl"));
    }

    #[test]
    fn c13_a_piece_of_a_password_is_not_quoted_as_a_parameter() {
        for query in ["hunter2@h/", "hunter2&a@h", "hunter2&a=b@h/"] {
            let error = params(query).finish().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownParameter);
            let text = error.to_string();
            assert!(text.contains("percent-encoded") && !text.contains("hunter"), "{text}");
        }
    }

    #[test]
    fn values_are_parsed_or_refused_by_name() {
        let mut given = params("ttl=1m%2030s&token_base=7");
        assert_eq!(given.duration("ttl").unwrap(), Some(Duration::from_secs(90)));
        assert_eq!(given.parsed::<u64>("token_base", "a number").unwrap(), Some(7));
        assert_eq!(given.text("prefix").unwrap(), None);
        given.finish().unwrap();
        for bad in ["ttl=3", "ttl=", "ttl=1s&ttl=2s", "ttl=forever"] {
            let error = params(bad).duration("ttl").unwrap_err();
            assert!(error.to_string().contains("parameter ttl"), "{error}");
        }
    }

    #[test]
    fn a_bound_is_a_duration_or_forever() {
        let mut given = params("wait=5s&max_hold=forever");
        assert_eq!(given.bound("wait").unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(given.bound("max_hold").unwrap(), Some(Duration::MAX));
        assert_eq!(given.bound("patience").unwrap(), None);
        let error = params("max_hold=Forever").bound("max_hold").unwrap_err();
        assert!(error.to_string().contains("parameter max_hold must be a duration"), "{error}");
        assert!(error.to_string().contains("or forever"), "{error}");
    }
}
