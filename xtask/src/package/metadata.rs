//! Checks the metadata by which the registry shows and finds a crate.

use serde_json::Value;

use super::fault;
use crate::members::Member;

/// The registry refuses more keywords or categories.
const MOST: usize = 5;
const LONGEST_KEYWORD: usize = 20;

/// The metadata that is missing.
pub(super) fn faults(member: &Member) -> Vec<String> {
    let manifest = &member.manifest;
    let mut faults = Vec::new();
    let mut expect = |ok: bool, what: &str| {
        if !ok {
            faults.push(fault(member, what));
        }
    };
    expect(
        manifest["description"].as_str().is_some_and(|text| !text.is_empty()),
        "it has no description",
    );
    expect(manifest["license"] == "MIT OR Apache-2.0", "its license differs from the workspace's");
    expect(manifest["rust_version"].is_string(), "it has no rust-version");
    expect(manifest["readme"] == "README.md", "it has no README.md in its folder");
    let page = format!("https://docs.rs/{}", member.name);
    expect(
        manifest["documentation"] == page.as_str(),
        "its documentation is not its page on docs.rs",
    );
    let keywords = words(&manifest["keywords"]);
    expect((1..=MOST).contains(&keywords.len()), "the registry accepts one to five keywords");
    expect(keywords.iter().all(|word| word.len() <= LONGEST_KEYWORD), "a keyword is too long");
    expect(
        (1..=MOST).contains(&words(&manifest["categories"]).len()),
        "the registry accepts one to five categories",
    );
    let docs = &manifest["metadata"]["docs"]["rs"];
    let all = docs["all-features"] == true && words(&docs["rustdoc-args"]) == ["--cfg", "docsrs"];
    expect(
        all || !member.has_library,
        "its metadata for docs.rs does not show all features and the items that need them",
    );
    faults
}

fn words(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::members;

    #[test]
    fn missing_programs_are_named() {
        let mut member =
            members().unwrap().into_iter().find(|member| member.name == "lockkit-redis").unwrap();
        assert!(faults(&member).is_empty());
        member.manifest["readme"] = "../README.md".into();
        member.manifest["keywords"] = ["a-keyword-of-too-many-letters"].as_slice().into();
        let _ = member.manifest["metadata"].take();
        assert_eq!(
            faults(&member),
            [
                "lockkit-redis: it has no README.md in its folder",
                "lockkit-redis: a keyword is too long",
                "lockkit-redis: its metadata for docs.rs does not show all features and the items \
                 that need them",
            ]
        );
    }
}
