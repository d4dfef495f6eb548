//! URLs as they may be shown, and what stores are called.

use crate::error::{Error, Result};

const HIDDEN: &str = "***";

/// A URL without what nobody is to see: its password, and parameters that hold one.
pub(crate) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return HIDDEN.to_owned() };
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    // A bare '/' in a password is an error, and must not show it: the last '@' counts.
    let rest = match rest.rsplit_once('@') {
        None => rest.to_owned(),
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{user}:{HIDDEN}@{host}"),
            None => format!("{user}@{host}"),
        },
    };
    let Some(query) = query else { return format!("{scheme}://{rest}") };
    if query.contains('@') {
        // Part of a password with a bare '?', or of a member of a quorum.
        return format!("{}://{rest}?{HIDDEN}", scheme);
    }
    let pairs: Vec<_> = query.split('&').map(shown_pair).collect();
    format!("{scheme}://{rest}?{}", pairs.join("&"))
}

fn shown_pair(pair: &str) -> String {
    let Some((key, value)) = pair.split_once('=') else { return pair.to_owned() };
    let lower = value.to_ascii_lowercase();
    let is_secret = key.to_ascii_lowercase().contains("password") || key.contains('%');
    if is_secret || lower.contains("%40") {
        return format!("{key}={HIDDEN}");
    }
    pair.to_owned()
}

/// What to call a store: its product, and what sets it apart from others of the same product.
pub(crate) fn id(product: &str, url: &str) -> String {
    let letters = product.to_ascii_lowercase();
    let mut id: String = letters
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("-");
    let param = |wanted: &str| {
        let (_, query) = url.split_once('?')?;
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == wanted)
            .map(|(_, value)| value)
    };
    if url.starts_with("mysql") {
        id.push('-');
        id.push_str(if param("strategy") == Some("pessimistic") { "pessimistic" } else { "optimistic" });
    }
    if url.starts_with("zk") && param("fair") == Some("false") {
        id.push_str("-unfair");
    }
    id
}

/// A word of the command line: `URL`, or `label=URL`.
///
/// # Errors
/// A label that is not made of letters, digits, `.`, `-` and `_`.
pub(crate) fn parse(word: &str) -> Result<(Option<String>, String)> {
    let Some((label, url)) = word.split_once('=').filter(|(label, _)| !label.contains([':', '/', '?', '@']))
    else {
        return Ok((None, word.to_owned()));
    };
    check_label(label)?;
    Ok((Some(label.to_owned()), url.to_owned()))
}

/// Checks what a user calls a store.
///
/// # Errors
/// It has other characters than letters, digits, `.`, `-` and `_`, or none.
pub(crate) fn check_label(label: &str) -> Result<()> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if label.is_empty() || !label.chars().all(is_fine) {
        return Err(Error::new("a label is made of letters, digits, '.', '-' and '_'"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_shown() {
        for (url, expected) in [
            ("redis://127.0.0.1:6379/", "redis://127.0.0.1:6379/"),
            ("redis://:s3cret@h/0", "redis://:***@h/0"),
            ("mysql://me:s3c@ret@h/db?strategy=pessimistic", "mysql://me:***@h/db?strategy=pessimistic"),
            ("mysql://me:s3c/ret@h/db", "mysql://me:***@h/db"),
            (
                "redis+sentinel://h/m?sentinel_password=s3cret&prefix=a",
                "redis+sentinel://h/m?sentinel_password=***&prefix=a",
            ),
            (
                "redis+sentinel://h/m?sentinel%5Fpassword=s3cret",
                "redis+sentinel://h/m?sentinel%5Fpassword=***",
            ),
            ("quorum://?member=redis%3A%2F%2F:s3cret%40h%2F", "quorum://?member=***"),
            ("quorum://?member=redis://:s3cret@h/", "quorum://?***"),
            ("s3cret", "***"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn a_store_is_called_by_its_product_and_what_sets_it_apart() {
        for (product, url, expected) in [
            ("Redis", "redis://h/", "redis"),
            ("MariaDB", "mysql://h/d", "mariadb-optimistic"),
            ("MySQL", "mysql://h/d?a=b&strategy=pessimistic", "mysql-pessimistic"),
            ("Apache ZooKeeper", "zk://h/?fair=false", "apache-zookeeper-unfair"),
        ] {
            assert_eq!(id(product, url), expected);
        }
    }

    #[test]
    fn a_label_comes_before_the_url() {
        for (word, label, url) in [
            ("a-1=redis://h/?prefix=x", Some("a-1"), "redis://h/?prefix=x"),
            ("redis://h/?prefix=x", None, "redis://h/?prefix=x"),
            ("memory://", None, "memory://"),
        ] {
            assert_eq!(parse(word).unwrap(), (label.map(str::to_owned), url.to_owned()));
        }
        assert!(parse("a b=redis://h/").unwrap_err().to_string().contains("letters"));
    }
}
