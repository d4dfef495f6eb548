//! Parses store URLs: `scheme://user:password@host1:port,host2:port/path?parameter=value`.

mod params;
#[cfg(test)]
mod properties;

use std::{fmt, net::Ipv6Addr};

use percent_encoding::percent_decode_str;
use url::Url;

pub use self::params::Params;
use crate::error::{Error, ErrorKind, Result};

const ENCODE: &str = "special characters in a user name or password must be percent-encoded";

/// The limit is far longer than any scheme, and short enough to be quoted in one line.
const MAX_SCHEME_BYTES: usize = 32;

/// A parsed store URL. Neither its `Debug` nor its `Display` shows the user's name, the password or
/// the parameters.
///
/// Two URLs are equal if their parts are equal, and also the parameters that are not yet taken.
///
/// ```
/// use std::time::Duration;
/// use lockkit_core::url::StoreUrl;
///
/// # fn main() -> lockkit_core::Result<()> {
/// let mut url = StoreUrl::parse("shelf://anna:secret@left:7000/top?depth=2&patience=5s")?;
/// assert_eq!((url.scheme(), url.username(), url.path()), ("shelf", Some("anna"), "/top"));
/// assert_eq!(url.params.duration("patience")?, Some(Duration::from_secs(5)));
/// assert!(url.params.finish().is_err()); // nobody knows `depth`
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    scheme: String,
    username: Option<String>,
    password: Option<String>,
    hosts: Vec<Host>,
    path: String,
    /// The parameters of the query; see [`Params::finish`].
    pub params: Params,
}

/// One server of a [`StoreUrl`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A name or an address; an IPv6 address without its brackets.
    pub name: String,
    /// The port, if the URL has one.
    pub port: Option<u16>,
}

impl StoreUrl {
    /// Parses a URL.
    ///
    /// In a URL with hosts a bare `@` belongs to the part before the hosts. In a path or a
    /// parameter an `@` is written `%40`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`]. The text of the error never quotes the URL, which may hold a
    /// password.
    pub fn parse(text: &str) -> Result<Self> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(invalid(
                "it has no scheme; a store URL looks like redis://127.0.0.1:6379/",
            ));
        };
        check_characters(text)?;
        check_scheme(scheme)?;
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (userinfo, hosts) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (Some(userinfo), hosts),
            None => (None, authority),
        };
        // `redis://user:12/secret@host/` would have the path `/secret@host/`, and
        // `redis://user:@secret?@host/` would have the host `secret`. Messages show both.
        if !authority.is_empty() && tail.contains('@') {
            return Err(invalid(format!(
                "it has an '@' after its hosts: write %40 there; {ENCODE}, a '/' as %2F, a '?' as \
                 %3F"
            )));
        }
        let hosts = hosts
            .split(',')
            .filter(|host| !host.is_empty())
            .map(parse_host)
            .collect::<Result<_>>()?;
        // The url crate accepts only one host; our hosts are parsed already.
        let url = Url::parse(&format!("{scheme}://_{tail}"))
            .map_err(|error| invalid(format!("{error}; {ENCODE}")))?;
        if url.fragment().is_some() {
            return Err(invalid(
                "it has a '#' part, and lockkit knows none; in a password, write '#' as %23",
            ));
        }
        let (username, password) =
            match userinfo.map(|text| text.split_once(':').unwrap_or((text, ""))) {
                None => (None, None),
                Some((name, password)) => (non_empty(decode(name)?), non_empty(decode(password)?)),
            };
        // `query_pairs` would put a replacement character where a value is not UTF-8.
        decode(url.query().unwrap_or_default())?;
        let path = decode(url.path())?;
        if path.contains(char::is_control) {
            return Err(invalid("its path must not contain control characters"));
        }
        let scheme = url.scheme().to_owned();
        let params = Params::new(url.query_pairs());
        Ok(Self { scheme, username, password, hosts, path, params })
    }

    /// The scheme, in lower case.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user's name, decoded.
    #[must_use]
    pub fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    /// The password, decoded.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The servers, in the order of the URL; empty for URLs such as `memory://`.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The path, decoded, with its leading slash; empty if there is none.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        for (at, host) in self.hosts.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            fmt::Display::fmt(host, f)?;
        }
        f.write_str(&self.path)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = self.name.contains(':');
        let (open, close) = if brackets { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}", self.name)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

fn parse_host(text: &str) -> Result<Host> {
    let bad = || invalid(format!("each host must be name, name:port, or [ipv6]:port; {ENCODE}"));
    let bracketed = text.strip_prefix('[');
    let (name, port) = match bracketed {
        Some(rest) => {
            let (name, port) = rest.split_once(']').ok_or_else(bad)?;
            (
                name,
                if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or_else(bad)?) },
            )
        }
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let name = decode(name)?;
    let usable = if bracketed.is_some() { is_ipv6(&name) } else { is_host_name(&name) };
    if !usable {
        return Err(bad());
    }
    // The port may be a piece of a password with a bare '/' or '@' in it: never quote it.
    let port = port.map(|port| port.parse::<u16>().map_err(|_| bad())).transpose()?;
    Ok(Host { name, port })
}

/// Whether a name is fit for a resolver's question and for one line of an error.
fn is_host_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c == '%' || c.is_whitespace() || c.is_control())
}

/// An address with or without a zone, such as `fe80::1%eth0`.
fn is_ipv6(name: &str) -> bool {
    let (address, zone) = name.split_once('%').unwrap_or((name, "0"));
    address.parse::<Ipv6Addr>().is_ok() && is_host_name(zone)
}

/// Refuses characters that the url crate drops silently. For example, it would turn `/1`, a line
/// break and `2` into `/12`.
fn check_characters(text: &str) -> Result<()> {
    let at_an_end = text.trim() != text;
    if at_an_end || text.contains(char::is_control) {
        return Err(invalid(
            "it has a control character, or a blank at one end; if you read it from a file, cut \
             the end of the line off",
        ));
    }
    Ok(())
}

fn check_scheme(scheme: &str) -> Result<()> {
    let letters = scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if !(letters
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.len() <= MAX_SCHEME_BYTES)
    {
        return Err(invalid(
            "it has no usable scheme; a store URL looks like redis://127.0.0.1:6379/",
        ));
    }
    Ok(())
}

fn decode(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| invalid("a percent-encoded part must be UTF-8"))
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn invalid(reason: impl Into<String>) -> Error {
    let reason = reason.into();
    Error::new(ErrorKind::InvalidUrl, format!("the store URL can't be used: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_found_and_decoded() {
        let url =
            StoreUrl::parse("Redis://us%20er:p%40ss@a:1,[::1]:2,c/db%2f1?prefix=x%20y&ttl=3s")
                .unwrap();
        assert_eq!(url.scheme(), "redis");
        assert_eq!((url.username(), url.password()), (Some("us er"), Some("p@ss")));
        assert_eq!(url.path(), "/db/1");
        let hosts: Vec<_> = url.hosts().iter().map(|h| (h.name.as_str(), h.port)).collect();
        assert_eq!(hosts, [("a", Some(1)), ("::1", Some(2)), ("c", None)]);
        assert_eq!(url.to_string(), "redis://a:1,[::1]:2,c/db/1");
    }

    #[test]
    fn a_url_may_have_no_host() {
        let url = StoreUrl::parse("memory://").unwrap();
        assert!(url.hosts().is_empty() && url.path().is_empty());
    }

    #[test]
    fn c13_no_error_and_no_debug_text_shows_a_secret() {
        for bad in [
            "redis://:hunter2#x@h/",
            "redis://u:hunter2@h:port/",
            "redis://u:hunter/2@h/",
            "redis://u:1/hunter2@h/",
            "redis://u:1?hunter2@h/",
            "redis://u:1@hunter2?@h/",
            "redis://u:1@hunter2?a=b@h/",
            "redis://u:1@hunter2#@h/",
            "hunter2",
        ] {
            let error = match StoreUrl::parse(bad) {
                Err(error) => error,
                Ok(url) => panic!("{bad} was taken as {url:?}"),
            };
            assert_eq!(error.kind(), ErrorKind::InvalidUrl);
            assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
        }
        let url = StoreUrl::parse("redis://u:hunter2@h/?secret=hunter2").unwrap();
        assert!(!format!("{url} {url:?}").contains("hunter"));
    }

    #[test]
    fn c13_impossible_parts_of_a_url_are_refused_in_one_line() {
        let long_scheme = format!("{}://h", "x".repeat(33));
        for (bad, reason) in [
            ("redis://h/1\n", "control character"),
            ("redis://h/1\n2", "control character"),
            (" redis://h/", "blank at one end"),
            ("redis://h/?label=%ff", "must be UTF-8"),
            ("redis+unix:///a%0ab", "control characters"),
            ("redis://a%0ab/", "host"),
            ("redis://a b/", "host"),
            ("redis://%zz/", "host"),
            ("redis://[zz]:1/", "host"),
            ("redis://[::1/", "host"),
            ("redis://h:65536/", "host"),
            ("re dis://h/", "scheme"),
            ("1://h/", "scheme"),
            ("://h/", "scheme"),
            (&long_scheme, "scheme"),
        ] {
            let error = StoreUrl::parse(bad).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::InvalidUrl);
            let text = error.to_string();
            assert!(text.contains(reason) && !text.contains(char::is_control), "{bad:?}: {text}");
        }
        for good in [
            "redis://[fe80::1%25eth0]:1/",
            "redis://h_1.ex\u{e4}mple/",
            "memory://?label=two words",
        ] {
            StoreUrl::parse(good).expect(good);
        }
    }
}
