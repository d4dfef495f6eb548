//! Tests of the settings, without a server.

use super::*;

fn parse(text: &str) -> Result<Config> {
    Config::from_url(StoreUrl::parse(text)?)
}

#[test]
fn all_parts_of_a_url_are_used() {
    let config = parse(
        "mysql://us:p%40ss@h:7/db?strategy=pessimistic&table_prefix=jobs&create_table=false&pool_size=3\
         &connect_timeout=250ms&retention=2h&strict_lease=true",
    )
    .unwrap();
    let opts = config.opts();
    assert_eq!((opts.ip_or_hostname(), opts.tcp_port(), opts.db_name()), ("h", 7, Some("db")));
    assert_eq!((opts.user(), opts.pass(), opts.prefer_socket()), (Some("us"), Some("p@ss"), false));
    assert_eq!((config.strategy, config.tables().prefix()), (Strategy::Pessimistic, "jobs"));
    assert_eq!((config.create_table, config.pool_size, config.strict_lease), (false, 3, true));
    assert_eq!(config.connect_timeout, Duration::from_millis(250));
    assert_eq!(config.retention, Duration::from_secs(7200));
    assert!(!opts.client_found_rows(), "it would change what the answers mean");
}

#[test]
fn a_socket_and_the_default_port_are_used() {
    let opts = parse("mysql+unix://me:x@/run/mysqld.sock?db=shop").unwrap().opts();
    assert_eq!(
        (opts.socket(), opts.db_name(), opts.user()),
        (Some("/run/mysqld.sock"), Some("shop"), Some("me"))
    );
    assert_eq!(parse("mysql://h/db").unwrap().opts().tcp_port(), 3306);
}

#[test]
fn c13_impossible_settings_are_refused_with_the_cause() {
    use ErrorKind as K;
    for (url, kind, text) in [
        ("mysql://h/", K::InvalidUrl, "names no database"),
        ("mysql:///db", K::InvalidUrl, "names no host"),
        ("mysql://h1,h2/db", K::Unsupported, "more than one server"),
        ("mysql://h/a/b", K::InvalidUrl, "one database"),
        ("mysql://h:0/db", K::InvalidUrl, "port 0"),
        ("mysql+unix:///run/x.sock", K::InvalidUrl, "names no database"),
        ("mysql://h/db?strategy=hopeful", K::InvalidUrl, "optimistic or pessimistic"),
        ("mysql://h/db?table_prefix=a-b", K::InvalidOption, "letters, digits"),
        ("mysql://h/db?table_prefix=", K::InvalidOption, "1 to 48"),
        ("mysql://h/db?pool_size=0", K::InvalidOption, "between 1 and 10000"),
        ("mysql://h/db?pool_size=1&strategy=pessimistic", K::InvalidOption, "at least 2"),
        ("mysql://h/db?connect_timeout=0s", K::InvalidOption, "between 1 ms and 60 s"),
        ("mysql://h/db?retention=59s", K::InvalidOption, "between 60s and ten years"),
        ("mysql://h/db?strict_lease=true", K::InvalidOption, "strategy=pessimistic"),
        ("mysql://h/db?stratgy=optimistic", K::UnknownParameter, "did you mean strategy?"),
    ] {
        let error = parse(url).unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(text), "{url}: {error}");
    }
}

#[cfg(unix)]
#[test]
fn c13_a_socket_that_the_driver_can_not_name_is_not_another_server() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    for path in [OsStr::from_bytes(b"/run/\xff.sock"), OsStr::new("")] {
        let error = Config::unix(path, "db").check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
    }
    Config::unix("/run/mysqld.sock", "db").check().unwrap();
}

#[test]
fn c13_a_password_is_not_shown() {
    let config = parse("mysql://me:hunter2@h/db").unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    assert_eq!(config.secret(), Some("hunter2"));
}
