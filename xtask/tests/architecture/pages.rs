//! The words of the console and of galleries: each in every language.

use std::collections::BTreeSet;

use serde_json::Value;

use super::source;

/// English first: the others are compared with it.
const LANGUAGES: [&str; 5] = ["en", "de", "fr", "es", "it"];

/// The words of a file.
fn words(file: &str) -> serde_json::Map<String, Value> {
    let words: serde_json::Map<String, Value> = serde_json::from_str(&source::text(file)).expect("JSON");
    for (key, word) in &words {
        assert!(word.as_str().is_some_and(|word| !word.trim().is_empty()), "{file}: {key} has no words");
    }
    words
}

/// The names in braces, which values take the place of.
fn places(word: &Value) -> BTreeSet<&str> {
    let word = word.as_str().unwrap_or_default();
    word.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

#[test]
fn every_language_has_every_word() {
    for folder in ["api/console/web/words", "api/console/web/words/gallery"] {
        let english = words(&format!("{folder}/en.json"));
        for language in LANGUAGES {
            let file = format!("{folder}/{language}.json");
            let here = words(&file);
            let keys =
                |words: &serde_json::Map<String, Value>| words.keys().cloned().collect::<BTreeSet<_>>();
            let missing: Vec<_> = keys(&english).symmetric_difference(&keys(&here)).cloned().collect();
            assert!(missing.is_empty(), "{file} differs from en.json in {missing:?}");
            for (key, word) in &english {
                assert_eq!(places(&here[key]), places(word), "{file}: {key}");
            }
        }
    }
}
