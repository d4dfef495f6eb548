//! Lists the names in use, page by page.

use lockkit_core::{Kind, LockName, Result};

use crate::{
    error::{self, Phase},
    handshake::value,
    pool::Pool,
    sql::{WRITABLE, literal},
};

/// How many names one request finds at most.
const PAGE: usize = 500;
const WHAT: &str = "listing names";

/// The names of one kind that begin with `prefix` and have a row in `table` with the condition
/// `held`. They are read without a lock, by the primary key, in the order of their bytes.
///
/// # Errors
/// Returns the server's error.
pub(crate) async fn held(
    pool: &Pool,
    table: &str,
    held: &str,
    kind: Kind,
    prefix: &str,
) -> Result<Vec<LockName>> {
    let before = end(prefix).map_or_else(String::new, |end| format!(" AND name<{}", literal(&end)));
    let kind_is = literal(kind.as_str().as_bytes());
    let mut found = Vec::new();
    let mut from = format!("name>={}", literal(prefix.as_bytes()));
    loop {
        let page = format!(
            "SELECT DISTINCT name FROM {table} WHERE kind={kind_is} AND {from}{before} AND {held} AND {WRITABLE} \
             ORDER BY name LIMIT {PAGE}"
        );
        // A side connection, because the others hold locks or wait for them.
        let mut side = pool.get_side(pool.config().connect_timeout).await?;
        let steps = pool.checked(side.script(&page).await, Phase::Read, WHAT)?;
        let rows = steps.iter().flat_map(|step| &step.rows);
        let names: Option<Vec<Vec<u8>>> = rows.map(|row| value(row, 0)).collect();
        let names = names.ok_or_else(|| error::nonsense(WHAT))?;
        if names.is_empty() {
            // An empty page may come from a demoted server, which does not know any more which
            // names are held.
            pool.ask_time(&mut side).await?;
        }
        // Skips text that is no name: another program wrote it.
        let valid =
            names.iter().filter_map(|name| LockName::new(kind, str::from_utf8(name).ok()?).ok());
        found.extend(valid);
        match names.get(PAGE - 1) {
            Some(last) => from = format!("name>{}", literal(last)),
            None => return Ok(found),
        }
    }
}

/// The first bytes beyond all that begin with `prefix`; `None` if all begin with it.
fn end(prefix: &str) -> Option<Vec<u8>> {
    let (last, rest) = prefix.as_bytes().split_last()?;
    // No byte of UTF-8 is 255, so the sum does not saturate.
    Some([rest, &[last.saturating_add(1)]].concat())
}

#[cfg(test)]
mod tests {
    use lockkit_fixture::names::name;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn c14_exactly_the_names_with_the_prefix_are_listed(
            prefix in name(),
            rest in prop_oneof![name(), Just(String::new())],
            other in name(),
        ) {
            let is_listed =
                |name: &[u8]| name >= prefix.as_bytes() && end(&prefix).is_none_or(|end| name < &*end);
            let longer = format!("{prefix}{rest}");
            prop_assert!(is_listed(longer.as_bytes()));
            prop_assert_eq!(is_listed(other.as_bytes()), other.starts_with(&prefix));
        }
    }

    #[test]
    fn c14_the_end_of_a_prefix_is_beyond_all_that_begin_with_it() {
        for prefix in ["a", "a%", "_", "\u{10ffff}", "a\u{7f}", "é"] {
            let end = end(prefix).unwrap();
            for rest in ["", "a", "\u{10ffff}\u{10ffff}"] {
                assert!(format!("{prefix}{rest}").into_bytes() < end, "{prefix:?} {rest:?}");
            }
            assert!(!end.starts_with(prefix.as_bytes()));
        }
        assert_eq!(end(""), None);
    }
}
