//! Shows URLs without their passwords, and finds names for stores.

use crate::error::{Error, Result};

const HIDDEN: &str = "***";

/// A URL without its secrets, which are its password and parameters that hold a password. If the
/// parts of a URL are ambiguous, the result shows only the scheme.
pub(crate) fn shown(url: &str) -> String {
    let is_scheme = |scheme: &str| scheme.chars().all(|c| c.is_ascii_lowercase() || c == '+');
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        return HIDDEN.to_owned();
    };
    let (rest, query) =
        rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    // This text is part of a password with a bare '?', or of a member of a quorum.
    if query.is_some_and(|query| query.contains('@')) {
        return format!("{scheme}://{HIDDEN}");
    }
    // A bare '/' in a password is an error. The last '@' counts, so that the error does not show
    // the password.
    let (user, hosts) =
        rest.rsplit_once('@').map_or((None, rest), |(user, hosts)| (Some(user), hosts));
    if !hosts.split('/').next().unwrap_or_default().split(',').all(is_host) {
        return format!("{scheme}://{HIDDEN}");
    }
    let user = match user
        .map(|user| user.split_once(':').map_or((user, false), |(user, _)| (user, true)))
    {
        None => String::new(),
        Some((user, true)) => format!("{user}:{HIDDEN}@"),
        Some((user, false)) => format!("{user}@"),
    };
    let Some(query) = query else { return format!("{scheme}://{user}{hosts}") };
    let pairs: Vec<_> = query.split('&').map(shown_pair).collect();
    format!("{scheme}://{user}{hosts}?{}", pairs.join("&"))
}

/// Whether only digits follow the colon. Other text there may be a password without its '@'.
fn is_host(host: &str) -> bool {
    let port = if host.starts_with('[') { host.rsplit_once("]:") } else { host.split_once(':') };
    port.is_none_or(|(_, port)| port.chars().all(|c| c.is_ascii_digit()))
}

fn shown_pair(pair: &str) -> String {
    let Some((key, value)) = pair.split_once('=') else { return pair.to_owned() };
    let key_lower = key.to_ascii_lowercase();
    let lower = value.to_ascii_lowercase();
    let is_secret = key_lower.contains("pass") || key_lower.contains("secret") || key.contains('%');
    if is_secret || lower.contains("%40") {
        return format!("{key}={HIDDEN}");
    }
    pair.to_owned()
}

/// A text about the words of a command line, without the secrets in those words.
pub(crate) fn without_secrets(text: &str, words: impl IntoIterator<Item = String>) -> String {
    let mut parts: Vec<String> = Vec::new();
    for word in words {
        parts.extend(word.split_once('=').map(|(_, value)| value.to_owned()));
        parts.push(word);
    }
    parts.retain(|part| part.contains("://") || part.contains('@'));
    // The longest part is replaced first: a shorter part could replace only a piece of a longer
    // word.
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    parts.iter().fold(text.to_owned(), |text, part| text.replace(part.as_str(), &shown(part)))
}

/// The name of a store: its product, and the parts of its URL that distinguish it from others of
/// the same product.
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
        id.push_str(if param("strategy") == Some("pessimistic") {
            "pessimistic"
        } else {
            "optimistic"
        });
    }
    if url.starts_with("zk") && param("fair") == Some("false") {
        id.push_str("-unfair");
    }
    id
}

/// A word of the command line: `URL`, or `label=URL`.
///
/// # Errors
/// The label has other characters than letters, digits, `.`, `-` and `_`.
pub(crate) fn parse(word: &str) -> Result<(Option<String>, String)> {
    let Some((label, url)) =
        word.split_once('=').filter(|(label, _)| !label.contains([':', '/', '?', '@']))
    else {
        return Ok((None, word.to_owned()));
    };
    check_label(label)?;
    Ok((Some(label.to_owned()), url.to_owned()))
}

/// Checks the label that a user gives to a store.
///
/// # Errors
/// The label has other characters than letters, digits, `.`, `-` and `_`, or has none.
pub(crate) fn check_label(label: &str) -> Result<()> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if label.is_empty() || !label.chars().all(is_fine) {
        return Err(Error::new("a label may contain only letters, digits, '.', '-' and '_'"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_secrets() {
        for (url, expected) in [
            ("redis://127.0.0.1:6379/", "redis://127.0.0.1:6379/"),
            ("redis://:s3cret@h/0", "redis://:***@h/0"),
            (
                "mysql://me:s3c@ret@h/db?strategy=pessimistic",
                "mysql://me:***@h/db?strategy=pessimistic",
            ),
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
            ("quorum://?member=redis://:s3cret@h/", "quorum://***"),
            ("redis://:s3c?ret@h/0", "redis://***"),
            ("redis://me:s3c?ret@h/0?prefix=a", "redis://***"),
            ("mysql://me:s3cret", "mysql://***"),
            ("mysql://me:s3cret/db", "mysql://***"),
            ("s3cret://h/", "***"),
            ("zk://[::1]:2181,b:2181/a", "zk://[::1]:2181,b:2181/a"),
            ("redis://[::1]/0", "redis://[::1]/0"),
            ("memory://", "memory://"),
            ("s3cret", "***"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn messages_about_a_command_line_have_no_secrets() {
        let words = ["--urls=redis://me:s3cret@h/", "a b=redis://:s3cret@h/", "me:s3cret@h"]
            .map(str::to_owned);
        let text = format!("no '{}', no '{}', no '{}'", words[0], words[1], words[2]);
        assert!(!without_secrets(&text, words.clone()).contains("s3cret"));
        assert!(!without_secrets("no 'redis://me:s3cret@h/'", words).contains("s3cret"));
        assert_eq!(without_secrets("no 'x'", ["x".to_owned()]), "no 'x'");
    }

    #[test]
    fn a_store_is_named_by_its_product_and_its_distinctive_setting() {
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
