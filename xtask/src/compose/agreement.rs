//! Tests that the compose file and native.sh agree: ports, URLs, settings.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use super::native::{pairs, with_offset};
use crate::run::{output, root};

fn compose() -> Value {
    let text = fs::read_to_string(root().join("compose/compose.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn native(command: &str) -> Vec<(String, String)> {
    pairs(&output(&mut with_offset(0, &[command])).unwrap())
}

/// The values of native.sh's settings of a kind.
fn settings(kind: &str) -> BTreeSet<String> {
    native("settings").into_iter().filter(|(of, _)| of == kind).map(|(_, value)| value).collect()
}

fn profiles() -> Vec<String> {
    native("urls").into_iter().map(|(profile, _)| profile).collect()
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().map_or_else(Vec::new, |values| {
        values.iter().map(|value| value.as_str().unwrap()).collect()
    })
}

/// The services of a profile, by name.
fn services<'a>(compose: &'a Value, profile: &str) -> Vec<(&'a str, &'a Value)> {
    let all = compose["services"].as_object().unwrap();
    let of = |service: &Value| strings(&service["profiles"]).contains(&profile);
    all.iter()
        .filter(|(_, service)| of(service))
        .map(|(name, service)| (name.as_str(), service))
        .collect()
}

/// The ports of this machine and of the container.
fn published(service: &Value) -> Vec<(u16, u16)> {
    let ports = strings(&service["ports"]).into_iter().map(|port| {
        let (outside, inside) = port.strip_prefix("127.0.0.1:").unwrap().split_once(':').unwrap();
        (outside.parse().unwrap(), inside.parse().unwrap())
    });
    ports.collect()
}

#[test]
fn each_service_is_pinned_keeps_its_data_and_reports_readiness() {
    let compose = compose();
    let all = services(&compose, "all");
    assert_eq!(
        all.len(),
        compose["services"].as_object().unwrap().len(),
        "the profile `all` lacks services"
    );
    let volumes = compose["volumes"].as_object().unwrap();
    let mut used = BTreeSet::new();
    for (name, service) in all {
        let image = service["image"].as_str().unwrap();
        let (_, tag) = image.rsplit_once(':').unwrap();
        assert!(
            tag.split('.').count() == 3 && tag.split('.').all(|part| part.parse::<u32>().is_ok()),
            "{name} is {image}"
        );
        let healthcheck = &service["healthcheck"];
        for part in ["test", "interval", "timeout", "retries"] {
            assert!(!healthcheck[part].is_null(), "{name} has no healthcheck.{part}");
        }
        let own = strings(&service["volumes"]);
        // Such a service only holds a network.
        assert_eq!(own.is_empty(), name.ends_with("-network"), "{name} has the volumes {own:?}");
        for volume in own {
            let volume = volume.split_once(':').unwrap().0;
            assert!(
                volumes.contains_key(volume) && used.insert(volume),
                "{name} has the volume {volume}"
            );
        }
    }
    assert_eq!(used.len(), volumes.len());
}

#[test]
fn each_profile_has_the_ports_of_native_and_no_port_is_taken_twice() {
    let compose = compose();
    let mut taken = BTreeSet::new();
    for profile in profiles() {
        let services = services(&compose, &profile);
        assert!(!services.is_empty(), "there is no {profile}");
        let here: BTreeSet<u16> = services
            .iter()
            .flat_map(|(_, service)| published(service))
            .map(|(outside, _)| outside)
            .collect();
        // The first port of a server is for clients. The other ports are for connections between
        // servers.
        let ports = native("ports").into_iter().filter(|(of, _)| *of == profile);
        let there: BTreeSet<u16> =
            ports.map(|(_, ports)| ports.split(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(here, there, "{profile}");
        assert!(
            here.iter().all(|port| taken.insert(*port)),
            "{profile} uses a port of another profile"
        );
    }
}

#[test]
fn servers_that_announce_themselves_are_at_the_same_port_inside_and_outside() {
    let compose = compose();
    for profile in ["redis-cluster", "sentinel"] {
        let services = services(&compose, profile);
        let (network, owner) =
            services.iter().find(|(name, _)| name.ends_with("-network")).unwrap();
        let ports = published(owner);
        assert!(ports.iter().all(|(outside, inside)| outside == inside), "{profile}: {ports:?}");
        for (name, service) in services.iter().filter(|(name, _)| name != network) {
            assert_eq!(
                service["network_mode"].as_str().unwrap(),
                format!("service:{network}"),
                "{name}"
            );
            let port: u16 = service["environment"]["PORT"].as_str().unwrap().parse().unwrap();
            assert!(ports.contains(&(port, port)), "{name} is at {port}");
        }
    }
}

/// The options of a server as `--name value`, from its entrypoint if it has one, and its command.
fn options(service: &Value) -> BTreeSet<String> {
    let script = strings(&service["entrypoint"]).into_iter().nth(2).unwrap_or_default();
    let (_, options) =
        script.split_once("exec docker-entrypoint.sh redis-server").unwrap_or_default();
    let words = options
        .split_whitespace()
        .filter(|word| !matches!(*word, "\\" | "\"$$@\"" | "/data/redis.conf"));
    let words: Vec<_> = words.chain(strings(&service["command"])).collect();
    words.chunks(2).filter(|option| option[0] != "--port").map(|option| option.join(" ")).collect()
}

#[test]
fn settings_of_redis_are_the_same() {
    let compose = compose();
    let plain = settings("redis");
    assert!(plain.contains("--appendfsync always") && plain.contains("--save "), "{plain:?}");
    for (name, more) in [
        ("redis", None),
        ("valkey", None),
        ("sentinel-server-1", Some("sentinel-server")),
        ("sentinel-server-2", Some("sentinel-server")),
        ("sentinel-server-3", Some("sentinel-server")),
        ("cluster-node-1", Some("redis-cluster")),
        ("cluster-node-2", Some("redis-cluster")),
        ("cluster-node-3", Some("redis-cluster")),
    ] {
        let more = more.map(settings).unwrap_or_default();
        assert_eq!(options(&compose["services"][name]), &plain | &more, "{name}");
    }
    let sentinel = strings(&compose["services"]["sentinel-1"]["entrypoint"])[2];
    let (_, sentinel) = sentinel.split_once("<<END\nport $$PORT\n").unwrap();
    let (sentinel, _) = sentinel.split_once("END\n").unwrap();
    assert_eq!(sentinel.lines().map(str::to_owned).collect::<BTreeSet<_>>(), settings("sentinel"));
}

#[test]
fn settings_of_databases_are_the_same() {
    let compose = compose();
    for name in ["mariadb", "mysql"] {
        let here = strings(&compose["services"][name]["command"]).into_iter().map(str::to_owned);
        assert_eq!(here.collect::<BTreeSet<_>>(), settings("sql"), "{name}");
    }
}

#[test]
fn settings_of_zookeeper_are_the_same() {
    const NAMES: [(&str, &str); 8] = [
        ("ZOO_4LW_COMMANDS_WHITELIST", "4lw.commands.whitelist"),
        ("ZOO_ADMINSERVER_ENABLED", "admin.enableServer"),
        ("ZOO_AUTOPURGE_PURGEINTERVAL", "autopurge.purgeInterval"),
        ("ZOO_AUTOPURGE_SNAPRETAINCOUNT", "autopurge.snapRetainCount"),
        ("ZOO_INIT_LIMIT", "initLimit"),
        ("ZOO_MAX_CLIENT_CNXNS", "maxClientCnxns"),
        ("ZOO_SYNC_LIMIT", "syncLimit"),
        ("ZOO_TICK_TIME", "tickTime"),
    ];
    let compose = compose();
    for name in ["zookeeper", "zookeeper-1", "zookeeper-2", "zookeeper-3"] {
        let environment = compose["services"][name]["environment"].as_object().unwrap();
        let own = environment
            .iter()
            .filter(|(key, _)| !matches!(key.as_str(), "ZOO_MY_ID" | "ZOO_SERVERS"));
        let here = own.map(|(key, value)| {
            let (_, name) = NAMES.iter().find(|(variable, _)| variable == key).unwrap();
            format!("{name}={}", value.as_str().unwrap())
        });
        assert_eq!(here.collect::<BTreeSet<_>>(), settings("zookeeper"), "{name}");
    }
}

#[test]
fn the_page_for_users_has_each_profile_with_its_url() {
    let page = fs::read_to_string(root().join("compose/README.md")).unwrap();
    for (profile, url) in native("urls") {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{profile}` |")));
        assert!(
            row.is_some_and(|row| row.contains(&format!("`{url}`"))),
            "{profile} is not at {url}: {row:?}"
        );
    }
}

/// A reader replaces the names of users and databases. A URL with a host and a port must work.
#[test]
fn a_url_of_the_readme_with_a_port_here_is_one_of_these() {
    let page = fs::read_to_string(root().join("README.md")).unwrap();
    let urls = native("urls");
    let words =
        page.split([' ', '`', '\n', ')', '=', '"']).filter(|word| word.contains("://127.0.0.1:"));
    let shown: Vec<_> = words.map(|word| word.trim_end_matches('/')).collect();
    assert!(!shown.is_empty());
    for word in shown {
        assert!(
            urls.iter().any(|(_, url)| url == word),
            "no server of compose/ has the address {word} of README.md"
        );
    }
}
