//! C13: no store URL makes a backend panic or show a password.

use lockkit::{Error, mysql, redis, registry, url::StoreUrl, zk};
use proptest::{prelude::*, sample::select};

const SCHEMES: [&str; 9] = [
    "redis",
    "redis+unix",
    "redis+sentinel",
    "redis+cluster",
    "mysql",
    "mysql+unix",
    "zk",
    "memory",
    "rediss",
];

/// The backend's view of a URL, as far as messages show it.
fn read(scheme: &str, url: StoreUrl) -> Result<String, Error> {
    Ok(match scheme.split('+').next() {
        Some("redis" | "rediss") => format!("{:?}", redis::Config::from_url(url)?),
        Some("mysql") => format!("{:?}", mysql::Config::from_url(url)?),
        Some("zk") => format!("{:?}", zk::Config::from_url(url)?),
        _ => String::new(),
    })
}

/// The text that a user may see of a URL.
fn shown(scheme: &str, text: &str) -> String {
    match StoreUrl::parse(text).and_then(|url| Ok((read(scheme, url.clone())?, url))) {
        Ok((config, url)) => format!("{config} {url} {url:?}"),
        Err(error) => format!("{error} {error:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c13_no_url_causes_a_panic(scheme in select(SCHEMES.to_vec()), rest in prop_oneof!["(?s).{0,40}", "[a-z0-9/?#@:&=%+\\[\\], .\\\\]{0,40}"]) {
        let text = shown(scheme, &format!("{scheme}://{rest}"));
        prop_assert!(!text.is_empty());
    }

    #[test]
    fn c13_no_backend_shows_a_password_encoded_or_not(
        scheme in select(SCHEMES.to_vec()),
        user in select(vec!["", "me"]),
        around in ("[a-z0-9/?#@:&=%+\\[\\], .\\\\]{0,4}", "[a-z0-9/?#@:&=%+\\[\\], .\\\\]{0,4}"),
        encoded: bool,
        hosts in select(vec!["h:6379", "[::1]", "h,i:7", ""]),
        tail in select(vec!["", "/", "/1", "/1?connect_timeout=3s", "/main/2", "/run/x.sock", "/a//b"]),
    ) {
        let mut password = format!("{}hunter2{}", around.0, around.1);
        if encoded {
            password = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
        }
        let text = format!("{scheme}://{user}:{password}@{hosts}{tail}");
        let shown = shown(scheme, &text);
        prop_assert!(!shown.contains("hunter"), "{text}: {shown}");
    }

    /// The test connects to no server, because the second member is invalid.
    #[test]
    fn c13_a_quorum_shows_no_password_of_a_member(
        around in ("[a-z0-9/?@:=,.]{0,4}", "[a-z0-9/?@:=,.]{0,4}"),
        host in select(vec!["h,i", ""]),
    ) {
        let member = format!("redis://me:{}hunter2{}@{host}/x", around.0, around.1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(registry().connect(&format!("quorum://?member={member}&member=zk://")));
        let error = error.expect_err("no member is one");
        prop_assert!(!format!("{error} {error:?}").contains("hunter"), "{member}: {error:?}");
    }
}
