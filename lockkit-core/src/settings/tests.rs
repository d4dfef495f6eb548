//! Tests of settings from JSON, TOML, YAML and variables.

use std::{collections::BTreeMap, time::Duration};

use super::*;
use crate::{LockOptions, Renewal};

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn json<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn variables(given: &[(&str, &str)]) -> Result<Settings> {
    let given = given.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Settings::from_variables("APP_LOCK_", given)
}

fn all_options() -> LockOptions {
    LockOptions::new()
        .with_ttl(secs(90))
        .with_wait(secs(5))
        .with_renewal(Renewal::Manual)
        .with_op_timeout(Duration::from_millis(250))
        .with_label("42")
        .with_max_hold(secs(600))
        .with_group("orders")
}

const JSON: &str = r#"{
    "ttl": "1m 30s", "wait": "5s", "renewal": "manual", "op_timeout": "250ms", "label": "42",
    "max_hold": "10m", "group": "orders"
}"#;

/// TOML reads the label as a number.
const TOML: &str = r#"
ttl = "1m 30s"
wait = "5s"
renewal = "manual"
op_timeout = "250ms"
label = 42
max_hold = "10m"
group = "orders"
"#;

/// YAML reads the label as a number.
const YAML: &str = "
ttl: 1m 30s
wait: 5s
renewal: manual
op_timeout: 250ms
label: 42
max_hold: 10m
group: orders
";

/// Catches a reader that drops a key, or that mixes up two of them.
#[test]
fn each_option_is_read_from_json_toml_and_yaml() {
    assert_eq!(json(JSON), Ok(all_options()));
    assert_eq!(toml::from_str::<LockOptions>(TOML).unwrap(), all_options());
    assert_eq!(serde_saphyr::from_str::<LockOptions>(YAML).unwrap(), all_options());
    assert_eq!(json("{}"), Ok(LockOptions::new()));
}

/// Catches a reader that takes `forever` as not set: then the bound of the base would stay.
#[test]
fn forever_removes_a_bound_that_was_set_before() {
    let forever: LockOptions = json(r#"{"wait": "forever", "max_hold": "forever"}"#).unwrap();
    assert_eq!(forever, LockOptions::new().without_wait_bound().without_max_hold());
    let options = forever.over(&all_options());
    assert_eq!((options.wait(), options.max_hold()), (None, None));
}

/// Catches a reader that ignores what it does not know, or whose error does not name the key.
#[test]
fn c13_a_bad_option_is_refused_with_its_key_and_what_is_allowed() {
    for (bad, reasons) in [
        (r#"{"tll": "3s"}"#, ["no setting \"tll\"", "did you mean ttl?"]),
        (r#"{"zookeeper": "3s"}"#, ["no setting \"zookeeper\"", "known are group, label"]),
        (r#"{"ttl": 10}"#, ["setting ttl", "a duration such as 250ms"]),
        (r#"{"ttl": "forever"}"#, ["setting ttl", "a duration such as 250ms"]),
        (r#"{"ttl": 1.5}"#, ["floating point", "as the setting ttl"]),
        (r#"{"max_hold": null}"#, ["null", "as the setting max_hold"]),
        (r#"{"max_hold": {"secs": 1}}"#, ["map", "as the setting max_hold"]),
        (r#"{"wait": "none"}"#, ["setting wait", "or forever"]),
        (r#"{"renewal": "off"}"#, ["setting renewal", "auto or manual"]),
        (r#"{"ttl": "1s", "ttl": "2s"}"#, ["setting ttl", "twice"]),
        (r#"{"token_base": 1}"#, ["no setting \"token_base\"", "known are"]),
        ("[]", ["sequence", "a map of settings"]),
    ] {
        let error = json::<LockOptions>(bad).expect_err(bad);
        for reason in reasons {
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }
    let error = serde_saphyr::from_str::<LockOptions>("ttl: 10 apples").unwrap_err();
    assert!(error.to_string().contains("the setting ttl must be a duration"), "{error}");
    let error = toml::from_str::<LockOptions>("tll = '3s'").unwrap_err();
    assert!(error.to_string().contains("did you mean ttl?"), "{error}");
}

#[tokio::test]
async fn settings_replace_the_parameters_of_the_url_and_keep_the_others() {
    let text = r#"{
        "url": "memory://?ttl=5s&label=cron&token_base=7&process_gate=true", "ttl": "9s",
        "token_base": 1000, "process_gate": false, "wait": "1s"
    }"#;
    let locker = json::<Settings>(text).unwrap().connect(&Registry::new()).await.unwrap();
    let expected = LockOptions::new().with_ttl(secs(9)).with_wait(secs(1)).with_label("cron");
    assert_eq!(*locker.defaults(), expected);
    assert_eq!((locker.keeper.agenda().locker.token_base, locker.gated), (1_000, false));
    locker.shutdown().await.unwrap();
    let plain = json::<Settings>(r#"{"url": "memory://?token_base=7&process_gate=false"}"#);
    let locker = plain.unwrap().builder(&Registry::new()).await.unwrap().build();
    assert_eq!((locker.keeper.agenda().locker.token_base, locker.gated), (7, false));
    locker.shutdown().await.unwrap();
}

/// Catches a check that does not see the parameters of the URL, or that looks only at the
/// connection.
#[test]
fn c13_settings_that_contradict_each_other_or_their_url_are_refused_at_once() {
    for (bad, reason) in [
        (r#"{"url": "memory://", "ttl": "1ms"}"#, "ttl is 1ms, but it must be between 10ms"),
        (r#"{"url": "memory://?ttl=1m", "max_hold": "59s"}"#, "at least ttl (60s)"),
        (r#"{"url": "memory://", "ttl": "1s", "op_timeout": "501ms"}"#, "half of ttl (1s)"),
        (r#"{"url": "memory://?ttl=3", "ttl": "1s"}"#, "parameter ttl must be a duration"),
        (r#"{"url": "memory://", "label": ""}"#, "a label must not be empty"),
        (r#"{"url": "memory://", "token_base": -1}"#, "token_base must be a whole number"),
        (r#"{"url": "memory://", "process_gate": "off"}"#, "process_gate must be true or false"),
        (r#"{"url": "localhost"}"#, "it has no scheme"),
        (r#"{"ttl": "1s"}"#, "the setting url is missing"),
        (r#"{"ulr": "memory://"}"#, "no setting \"ulr\": did you mean url?"),
    ] {
        let error = json::<Settings>(bad).expect_err(bad);
        assert!(error.contains(reason), "{bad}: {error}");
    }
    // A setting that fits may repair the URL.
    json::<Settings>(r#"{"url": "memory://?ttl=1ms", "ttl": "1s"}"#).unwrap();
}

#[tokio::test]
async fn c13_a_fault_of_the_store_names_the_parameter_when_it_connects() {
    let settings: Settings = json(r#"{"url": "memory://?prefix=a"}"#).unwrap();
    let error = settings.connect(&Registry::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownParameter);
    assert_eq!(error.operation(), Some("connect"));
    let known = "group, label, max_hold, op_timeout, process_gate, token_base, ttl";
    assert!(error.to_string().contains(known), "each once: {error}");
}

#[test]
fn settings_are_a_part_of_a_programs_own_configuration() {
    let text = "
primary: {url: 'memory://', process_gate: false, token_base: 7}
reports: {url: 'memory://', label: nightly}
";
    let read: BTreeMap<String, Settings> = serde_saphyr::from_str(text).unwrap();
    let same = r#"{"url": "memory://", "token_base": "7", "process_gate": "false"}"#;
    assert_eq!(read["primary"], json::<Settings>(same).unwrap());
    let text = "[primary]\nurl = 'memory://'\nprocess_gate = false\ntoken_base = 7";
    let toml: BTreeMap<String, Settings> = toml::from_str(text).unwrap();
    assert_eq!(toml["primary"], read["primary"]);
    assert_eq!(read["reports"].common.options.label(), Some("nightly"));
}

/// Catches a key that only a number or a boolean can set.
#[test]
fn each_setting_is_read_from_a_variable() {
    let given = variables(&[
        ("APP_LOCK_URL", "memory://"),
        ("APP_LOCK_TTL", "1m 30s"),
        ("APP_LOCK_WAIT", "5s"),
        ("APP_LOCK_RENEWAL", "manual"),
        ("APP_LOCK_OP_TIMEOUT", "250ms"),
        ("APP_LOCK_LABEL", "42"),
        ("APP_LOCK_MAX_HOLD", "10m"),
        ("APP_LOCK_GROUP", "orders"),
        ("APP_LOCK_TOKEN_BASE", "7"),
        ("APP_LOCK_PROCESS_GATE", "false"),
        ("PATH", "/bin"),
        ("APP_NAME", "app"),
    ])
    .unwrap();
    let expected =
        Common { options: all_options(), token_base: Some(7), process_gate: Some(false) };
    assert_eq!(given.common, expected);
}

#[test]
fn c13_a_bad_variable_is_refused_with_its_key_and_the_prefix() {
    let url = ("APP_LOCK_URL", "memory://");
    for (bad, kind, reason) in [
        (("APP_LOCK_TLL", "1s"), ErrorKind::UnknownParameter, "\"tll\": did you mean ttl?"),
        (("APP_LOCK_TTL", "10"), ErrorKind::InvalidOption, "the setting ttl must be a duration"),
        (("APP_LOCK_TTL", "1ms"), ErrorKind::InvalidOption, "ttl is 1ms"),
        (("APP_LOCK_ttl", ""), ErrorKind::InvalidOption, "the setting ttl must be a duration"),
        (("APP_LOCK_url", "memory://"), ErrorKind::InvalidOption, "url is given twice"),
    ] {
        let error = variables(&[url, bad]).expect_err(reason);
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains("the variables APP_LOCK_…"), "{text}");
    }
    let error = variables(&[]).unwrap_err();
    assert!(error.to_string().contains("the setting url is missing"), "{error}");
    // No variable of a test's environment begins like this.
    let error = Settings::from_env("LOCKKIT NONE ").unwrap_err();
    assert!(error.to_string().contains("the setting url is missing"), "{error}");
}

#[cfg(unix)]
#[test]
fn c13_a_variable_that_is_not_utf_8_is_refused() {
    use std::os::unix::ffi::OsStringExt as _;

    let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let foreign = (text(b"\xff"), text(b"\xff"));
    let url = (text(b"APP_LOCK_URL"), text(b"memory://"));
    Settings::from_variables("APP_LOCK_", [foreign.clone(), url.clone()]).unwrap();
    let label = (text(b"APP_LOCK_LABEL"), foreign.1);
    let error = Settings::from_variables("APP_LOCK_", [url, label]).unwrap_err();
    assert!(error.to_string().contains("APP_LOCK_LABEL must be UTF-8"), "{error}");
}

/// Catches a derived `Debug` over the text of the URL, and an error that quotes a value.
#[test]
fn c13_no_setting_shows_a_password() {
    let settings: Settings =
        json(r#"{"url": "redis://me:hunter2@h/?secret=hunter2", "label": "a"}"#).unwrap();
    let shown = format!("{settings:?}");
    assert!(shown.contains("redis://h/") && !shown.contains("hunter2"), "{shown}");
    for bad in [
        ("APP_LOCK_URL", "redis://me:hunter2@h:port/"),
        ("APP_LOCK_URL", "hunter2"),
        ("APP_LOCK_PASSWORD", "hunter2"),
        ("APP_LOCK_TTL", "redis://me:hunter2@h/"),
    ] {
        let error = variables(&[bad]).unwrap_err();
        assert!(!format!("{error:?} {error}").contains("hunter2"), "{error:?}");
    }
}
