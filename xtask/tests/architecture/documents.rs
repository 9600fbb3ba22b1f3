//! Documents stay true: the architecture page names every crate and every stage, every test that a page cites exists, and
//! partners can read of every code of an error.

use std::collections::BTreeSet;

use cargo_metadata::MetadataCommand;

use super::sizes::function_name;
use super::source;

const PAGE: &str = "docs/ARCHITECTURE.md";

/// What partners read before the operations.
const INTRODUCTION: &str = "api/src/openapi/docs/introduction.md";

/// Files of the API whose codes partners do not get, or find in the schemas.
const NOT_FOR_PARTNERS: [&str; 9] = [
    "errors/",
    "handlers/console/",
    "handlers/visitor",
    "openapi/",
    "operation/",
    "same_origin.rs",
    "server/connection/",
    "session.rs",
    "wire/",
];
/// Codes of the console in files that it shares.
const CONSOLE_CODES: [&str; 2] = ["INSUFFICIENT_ROLE", "MODE_OF_ANOTHER_ENVIRONMENT"];

/// How pages name the tests that hold a sentence: those of one crate, and those that each backend passes.
const CITED: [&str; 2] = ["test", "suite"];

/// The stages in the order in which a photo passes them.
const STAGES: [&str; 8] = ["feed", "fetch", "decode", "resize", "detect", "embed", "read", "index"];

#[test]
fn the_architecture_page_names_every_crate() {
    let page = source::text(PAGE);
    let root = source::root();
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec().unwrap();
    for package in &metadata.packages {
        let folder = package.manifest_path.parent().unwrap().strip_prefix(root.to_str().unwrap()).unwrap();
        if !folder.as_str().is_empty() {
            assert!(page.contains(&format!("{folder}/")), "{PAGE} does not name {folder}/");
        }
    }
}

#[test]
fn the_architecture_page_names_every_stage_and_every_stage_has_its_module() {
    let page = source::text(PAGE);
    let files = source::files();
    for stage in STAGES {
        assert!(page.contains(&format!("| `{stage}` |")), "{PAGE} does not describe the stage {stage}");
        let places =
            [format!("pipeline/src/stages/{stage}.rs"), format!("pipeline/src/stages/{stage}/mod.rs")];
        assert!(
            places.iter().any(|place| files.contains(place)),
            "the stage {stage} has no module of its own"
        );
    }
}

/// The functions of a file that are tests.
fn tests_in(text: &str) -> Vec<String> {
    let mut is_test = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let attribute = line.trim_start();
        if attribute.starts_with("#[test]") || attribute.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(name) = function_name(line) {
            if is_test {
                found.push(name);
            }
            is_test = false;
        }
    }
    found
}

/// What a page cites in backquotes: the kind, and the name, which may stand on the next line.
fn citations(page: &str) -> Vec<(&str, &str)> {
    let cited = page.split('`').filter_map(|quoted| quoted.split_once(char::is_whitespace));
    cited.filter(|(kind, _)| CITED.contains(kind)).map(|(kind, name)| (kind, name.trim())).collect()
}

#[test]
fn every_test_that_a_page_cites_exists() {
    let (mut tests, mut suites) = (BTreeSet::new(), BTreeSet::new());
    for (name, text) in source::rust() {
        tests.extend(tests_in(&text));
        if name.contains("/conformance/") {
            suites.extend(text.lines().filter_map(function_name));
        }
    }
    for page in source::files().iter().filter(|name| name.ends_with(".md")) {
        for (kind, name) in citations(&source::text(page)) {
            let known = if kind == "suite" { &suites } else { &tests };
            assert!(known.contains(name), "{page} names the {kind} {name}, which does not exist");
        }
    }
}

#[test]
fn citations_are_found_with_what_they_name() {
    let page = "Both hold (`test one_holds`,\n`suite\n  two_holds`); `cargo test` and `tests` are none.";
    assert_eq!(citations(page), [("test", "one_holds"), ("suite", "two_holds")]);
    let code = "#[test]\n#[cfg(unix)]\nfn one_holds() {}\nfn helper() {}\n\
                \x20   #[tokio::test(start_paused = true)]\n    async fn two_hold() {}\n";
    assert_eq!(tests_in(code), ["one_holds", "two_hold"]);
}

/// The codes of errors in a text: words of capitals with an underscore, as strings of their own.
fn codes_in(text: &str) -> impl Iterator<Item = &str> {
    let is_code = |word: &&str| {
        word.contains('_') && word.bytes().all(|letter| letter.is_ascii_uppercase() || letter == b'_')
    };
    text.split('"').filter(is_code)
}

/// Partners write programs that tell errors apart by `data.code`: the introduction lists each that they can get.
#[test]
fn every_code_of_an_error_that_partners_get_is_documented() {
    let introduction = source::text(INTRODUCTION);
    let mut count = 0;
    for (name, text) in source::rust() {
        let Some(file) = name.strip_prefix("api/src/").filter(|_| !source::is_test(&name)) else { continue };
        if NOT_FOR_PARTNERS.iter().any(|place| file.starts_with(place)) {
            continue;
        }
        let lines: Vec<&str> = text.lines().take(source::production_lines(&text)).collect();
        for code in codes_in(&lines.join("\n")).filter(|code| !CONSOLE_CODES.contains(code)) {
            let is_named = introduction.contains(&format!("`{code}`"));
            assert!(is_named, "{INTRODUCTION} does not name {code} of {name}");
            count += 1;
        }
    }
    assert!(count > 20, "only {count} codes were found");
}
