//! Tests of names, on a database whose collation takes `K` for `k`, and drops blanks at the end.

use lockkit_core::spi::{Backend as _, Released, RenewalOutcome, Wait};
use lockkit_fixture::SqlFlavor;

use crate::support::*;

on_both!(c11_names_are_compared_byte_by_byte, c11_names_survive_a_server_that_converts_text);

fn names() -> Vec<String> {
    let mut names: Vec<_> = [
        "k",
        "K",
        "\u{212a}",
        "k ",
        "k  ",
        " k",
        "ä",
        "a\u{308}",
        "a",
        "ß",
        "ss",
        "%",
        "_",
        "__",
        "k%",
        "'",
        "\"",
        "`",
        "\\",
        "\\'",
        "\\\\",
        "'; DROP TABLE x; -- ",
        "?",
        "/",
        "{k}",
        "🔒",
        "🔑",
        "0x6b",
        "\u{feff}k",
        "k\u{a0}",
    ]
    .map(str::to_owned)
    .into();
    names.extend(["x".repeat(255), "X".repeat(255), "x".repeat(254), "🔒".repeat(63) + "abc"]);
    names
}

/// Catches a column or a comparison with a collation, a statement that quotes wrongly, and one that
/// cuts names.
async fn c11_names_are_compared_byte_by_byte(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    all_at_once(&bed).await;
    let mut admin = bed.admin().await;
    let rows: usize = admin.one(format!("SELECT COUNT(*) FROM {}", bed.table("lock"))).await;
    assert_eq!(rows, names().len());
}

/// The server converts parameters to the connection's character set, but not literals.
async fn c11_names_survive_a_server_that_converts_text(flavor: SqlFlavor) {
    for wrong in [
        "SET character_set_connection=ucs2",
        "SET NAMES latin1",
        "SET NAMES utf8mb3",
        "SET NAMES ascii",
    ] {
        let bed = Bed::own(flavor, &[&format!("--init-connect={wrong}")]);
        println!("{wrong}");
        all_at_once(&bed).await;
    }
}

/// Holds all names at once, and checks that each is only itself.
async fn all_at_once(bed: &Bed) {
    let here = bed.connect("").await;
    let there = bed.connect("").await;
    let mut held = Vec::new();
    for name in names() {
        let mut claim = claim(&here, &name);
        let grant = granted(claim.attempt(Wait::No).await);
        held.push((name, claim, grant.token));
    }
    for (name, claim, token) in &mut held {
        busy(crate::support::claim(&there, name).attempt(Wait::No).await);
        assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)), "{name:?}");
        let seen = there.inspect(&mutex(name)).await.unwrap();
        assert_eq!(
            seen.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(),
            [Some(*token)],
            "{name:?}"
        );
    }
    for (name, claim, _) in &mut held {
        assert_eq!(claim.release().await.unwrap(), Released::Freed, "{name:?}");
        granted(crate::support::claim(&there, name).attempt(Wait::No).await);
    }
}
