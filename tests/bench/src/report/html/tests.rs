use super::*;
use crate::report::{Metric, Verdict, sample, words};

#[test]
fn the_page_has_no_external_references() {
    let page = html(&sample::report());
    for forbidden in
        ["<script", "<link", "<img", "url(", "@import", "href=", "src=\"", "http:", "https:"]
    {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn the_verdict_comes_first_and_all_sections_follow() {
    let report = sample::report();
    let page = html(&report);
    let at = |needle: &str| page.find(needle).unwrap_or_else(|| panic!("{needle}"));
    let mut places = vec![at("id=\"verdict\""), at("id=\"stores\""), at("id=\"reading\"")];
    places.extend(
        report.scenarios().into_iter().map(|one| at(&format!("<h2>{}</h2>", words::title(one)))),
    );
    places.push(at("id=\"repeat\""));
    assert!(places.is_sorted(), "{places:?}");
    assert_eq!(
        page.matches("<svg class=\"lines\"").count(),
        4,
        "uncontended, hot name, hand-off, open loop"
    );
}

#[test]
fn servers_and_urls_cannot_write_markup() {
    let mut report = sample::report();
    let evil = "<b onclick='x'>\"&</style></svg>";
    report.stores[0].url = evil.into();
    report.stores[0].version = evil.into();
    report.stores[0].guarantee.text = evil.into();
    report.stores[0].settings[0].value = evil.into();
    report.command = evil.into();
    report.started_at = evil.into();
    report.host.cpu = evil.into();
    let id = std::mem::replace(&mut report.stores[1].id, evil.into());
    for outcome in report.outcomes.iter_mut().filter(|outcome| outcome.store == id) {
        outcome.store = evil.into();
    }
    report.outcomes[0].verdict = Verdict::Failed { reason: evil.into() };
    let page = html(&report);
    assert!(!page.contains("<b onclick"));
    assert!(page.contains("&lt;b onclick"));
    assert_eq!(page.matches("</style>").count(), 1);
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

/// If a task got no grant, the page shows an infinite ratio, and the pictures have no bad numbers.
#[test]
fn infinite_ratios_can_be_shown() {
    let mut report = sample::report();
    for outcome in &mut report.outcomes {
        let Verdict::Measured { figures, .. } = &mut outcome.verdict else { continue };
        if let Some(series) = figures.get_mut(&Metric::MostOverLeast) {
            series.0[0] = f64::INFINITY;
            if outcome.store == "redis" {
                series.0.fill(f64::INFINITY);
            }
        }
    }
    for text in [html(&report), crate::report::markdown(&report)] {
        assert!(text.contains('∞'));
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        assert!(!words.any(|word| ["NaN", "inf"].contains(&word)));
    }
}

/// Otherwise the first column of the table of stores would push the others off the screen.
#[test]
fn the_url_of_a_store_may_wrap() {
    let mut report = sample::report();
    report.stores[0].url = format!("zk://{}/", ["zookeeper.example.com:2181"; 5].join(","));
    let page = html(&report);
    assert!(page.contains(&format!("<span class=\"detail\">{}</span>", report.stores[0].url)));
    let rule = page.lines().find_map(|line| line.strip_prefix("td:first-child .detail {")).unwrap();
    for part in ["white-space: normal;", "overflow-wrap: anywhere;", "max-width: "] {
        assert!(rule.contains(part), "{rule}");
    }
}

/// A browser uses the first `class` of a tag and ignores the others.
#[test]
fn no_tag_has_two_classes() {
    let page = html(&sample::report());
    for tag in page.split('<').filter_map(|rest| rest.split('>').next()) {
        assert!(tag.matches(" class=").count() < 2, "{tag}");
    }
}

/// The drawings must contain the colours exactly as the style sheet looks for them.
#[test]
fn colours_of_drawings_are_those_of_the_style_sheet() {
    let page = html(&sample::report());
    let (styles, body) = page.split_once("</style>").unwrap();
    let used = |attribute: &str| {
        body.match_indices(attribute)
            .map(|(at, _)| body[at..at + attribute.len() + 8].to_owned())
            .collect::<Vec<_>>()
    };
    let colours: Vec<_> = used("stroke=\"#").into_iter().chain(used("fill=\"#")).collect();
    assert!(colours.len() > 50);
    for colour in colours {
        assert!(styles.contains(&format!("svg [{}", &colour[..colour.len() - 1])), "{colour}");
    }
}

#[test]
fn every_picture_has_a_text_for_blind_readers() {
    let page = html(&sample::report());
    let pictures = page.matches("role=\"img\"").count();
    assert!(pictures > 10);
    assert_eq!(page.matches("role=\"img\" aria-label=\"").count(), pictures);
}

/// Writes a page to look at:
/// `LOCKKIT_BENCH_SAMPLE=some.html cargo test -p lockkit-bench sample_page`.
#[test]
fn sample_page() {
    if let Some(path) = std::env::var_os("LOCKKIT_BENCH_SAMPLE") {
        std::fs::write(path, html(&sample::report())).unwrap();
    }
}
