//! Names that a path cannot contain unchanged.

use lockkit_core::{
    Kind, LockName,
    spi::{Backend as _, Released, Wait},
};

use crate::support::*;

#[tokio::test]
async fn c11_names_of_all_sorts_are_locks_of_their_own() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let longest = [&"🔒".repeat(63), "abc"].concat();
    let names = [
        "a",
        "A",
        " a",
        "a ",
        "a/b",
        "/",
        "//",
        ".",
        "..",
        "...",
        "a/..",
        "%",
        "%2F",
        "%2E",
        "{a}",
        "*",
        "🔒",
        "\u{e000}",
        "\u{fffd}",
        "é",
        "e\u{301}",
        "zookeeper",
        "held",
        "x-lock-0000000001",
        &longest,
        &"é".repeat(127),
        &"/".repeat(255),
    ];
    let mut claims = Vec::new();
    for name in names {
        let mut claim = claim(&zk, name);
        granted(claim.attempt(Wait::Queue).await);
        claims.push(claim);
    }
    let folder = format!("/{}/mutex", bed.prefix);
    assert_eq!(bed.admin().await.children(&folder).await.len(), names.len());
    for (name, claim) in names.into_iter().zip(&mut claims) {
        let inspection = zk.inspect(&LockName::new(Kind::Mutex, name).unwrap()).await.unwrap();
        assert_eq!(inspection.holders.len(), 1, "{name}");
        assert_eq!(claim.release().await.unwrap(), Released::Freed, "{name}");
    }
    bed.assert_clean().await;
}
