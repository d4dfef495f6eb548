//! Checks properties that hold for every URL.

use std::net::Ipv6Addr;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::{collection::vec, option, prelude::*};

use super::StoreUrl;
use crate::error::ErrorKind;

/// Parameters that the reader of a URL asks for.
const KNOWN: [&str; 3] = ["prefix", "t", "member"];

/// The parts of a URL before they are encoded.
#[derive(Clone, Debug)]
struct Parts {
    scheme: String,
    user: Option<(String, String)>,
    hosts: Vec<(Name, Option<u16>)>,
    segments: Vec<String>,
    params: Vec<(usize, String)>,
}

#[derive(Clone, Debug)]
enum Name {
    Text(String),
    V6(Ipv6Addr),
}

impl Parts {
    fn to_url(&self) -> String {
        let user = self
            .user
            .as_ref()
            .map(|(name, password)| format!("{}:{}@", encode(name), encode(password)));
        let hosts = self.hosts.iter().map(|(name, port)| {
            let name = match name {
                Name::Text(name) => encode(name),
                Name::V6(address) => format!("[{address}]"),
            };
            port.map_or(name.clone(), |port| format!("{name}:{port}"))
        });
        let hosts: Vec<_> = hosts.collect();
        let params: Vec<_> = self
            .params
            .iter()
            .map(|(at, value)| format!("{}={}", KNOWN[*at], encode(value)))
            .collect();
        let path: String =
            self.segments.iter().map(|segment| format!("/{}", encode(segment))).collect();
        let query =
            if params.is_empty() { String::new() } else { format!("?{}", params.join("&")) };
        format!("{}://{}{}{path}{query}", self.scheme, user.unwrap_or_default(), hosts.join(","))
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Any text; often a text that looks like a piece of a URL.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["(?s).{0,12}", "[a-z0-9/?#@:&=%+\\[\\], .\\\\]{0,12}", Just("%41%2f".to_owned())]
}

fn parts() -> impl Strategy<Value = Parts> {
    // A host looks like no other part of a URL. A segment is no dot, because a dot would be
    // resolved.
    let host = prop_oneof!["[a-zA-Z0-9_.-]{1,12}", "[äß🔒字a-z]{1,4}"].prop_map(Name::Text);
    let name =
        prop_oneof![3 => host, 1 => any::<[u16; 8]>().prop_map(|words| Name::V6(words.into()))];
    let segment = text().prop_filter("a dot, or control characters", |text| {
        !matches!(text.as_str(), "." | "..") && !text.contains(char::is_control)
    });
    let params = vec((0..KNOWN.len(), text()), 0..6);
    (
        "x[a-z0-9+.-]{0,8}",
        option::of((text(), text())),
        vec((name, option::of(any::<u16>())), 0..4),
        vec(segment, 0..4),
        params,
    )
        .prop_map(|(scheme, user, hosts, segments, params)| Parts {
            scheme,
            user,
            hosts,
            segments,
            params,
        })
}

fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c13_no_text_is_a_trap(text in prop_oneof!["(?s).{0,40}", "[a-z0-9/?#@:&=%+\\[\\], .\\\\]{0,40}"], scheme: bool) {
        let text = if scheme { format!("x://{text}") } else { text };
        match StoreUrl::parse(&text) {
            Ok(mut url) => {
                let shown = format!("{url} {url:?}");
                prop_assert!(!shown.contains(char::is_control), "{shown:?}");
                for name in KNOWN {
                    let _ = url.params.clone().duration(name);
                    let _ = url.params.clone().parsed::<u64>(name, "a number");
                    url.params.texts(name);
                }
                let _ = url.params.finish();
            }
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::InvalidUrl);
                prop_assert!(!error.to_string().contains(char::is_control), "{}", error);
            }
        }
    }

    #[test]
    fn the_parts_of_a_url_are_parsed_back(parts in parts()) {
        let text = parts.to_url();
        let mut url = match StoreUrl::parse(&text) {
            Ok(url) => url,
            Err(error) => return Err(TestCaseError::fail(format!("{text}: {error}"))),
        };
        prop_assert_eq!(url.scheme(), &parts.scheme);
        let (user, password) = parts.user.as_ref().map(|(user, password)| (&**user, &**password)).unwrap_or_default();
        prop_assert_eq!((url.username(), url.password()), (non_empty(user), non_empty(password)), "{}", text);
        let hosts = parts.hosts.iter().map(|(name, port)| match name {
            Name::Text(name) => (name.clone(), *port),
            Name::V6(address) => (address.to_string(), *port),
        });
        let found: Vec<_> = url.hosts().iter().map(|host| (host.name.clone(), host.port)).collect();
        prop_assert_eq!(found, hosts.collect::<Vec<_>>(), "{}", text);
        let path: String = parts.segments.iter().map(|segment| format!("/{segment}")).collect();
        prop_assert_eq!(url.path(), path, "{}", text);
        for (at, name) in KNOWN.into_iter().enumerate() {
            let given: Vec<_> =
                parts.params.iter().filter(|(known, _)| *known == at).map(|(_, value)| value.clone()).collect();
            prop_assert_eq!(url.params.texts(name), given, "{}", text);
        }
        url.params.finish().unwrap();
    }

    #[test]
    fn c13_an_encoded_password_is_never_shown(mut parts in parts(), around in ("\\PC{0,4}", "\\PC{0,4}")) {
        parts.user = Some(("me".to_owned(), format!("{}hunter2{}", around.0, around.1)));
        let text = parts.to_url();
        match StoreUrl::parse(&text) {
            Ok(url) => prop_assert!(!format!("{url} {url:?} {:?}", url.params).contains("hunter"), "{url}"),
            Err(error) => prop_assert!(!format!("{error:?}").contains("hunter"), "{error:?}"),
        }
    }

    /// A user who forgets to encode the password gets an error that does not quote it. A URL that
    /// was parsed all the same does not quote it either.
    #[test]
    fn c13_a_password_that_was_not_encoded_is_never_shown(
        around in ("[a-z0-9/?#@:&=%+\\[\\], .\\\\]{0,4}", "[a-z0-9/?#@:&=%+\\[\\], .\\\\]{0,4}"),
        hosts in prop_oneof![Just("h:6379"), Just("[::1]"), Just("h,i:7"), Just("")],
        tail in prop_oneof![Just(""), Just("/1"), Just("/1?t=3s"), Just("/run/x.sock")],
    ) {
        let text = format!("x://me:{}hunter2{}@{hosts}{tail}", around.0, around.1);
        let (shown, error) = match StoreUrl::parse(&text) {
            Ok(mut url) => {
                url.params.texts("t");
                (format!("{url} {url:?} {:?}", url.params), url.params.finish().err())
            }
            Err(error) => (String::new(), Some(error)),
        };
        prop_assert!(!shown.contains("hunter") && !format!("{error:?}").contains("hunter"), "{text}: {shown} {error:?}");
    }
}
