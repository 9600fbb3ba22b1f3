//! What the pages say: every refusal that they may show has words in every language.

use std::collections::BTreeSet;
use std::path::Path;

/// Codes that no page shows: those of partners with keys, and those that pages handle or prevent.
const WITHOUT_WORDS: [&str; 10] = [
    "CONFIRM_REQUIRED",
    "CROSS_SITE",
    "INSUFFICIENT_SCOPE",
    "MODE_OF_ANOTHER_ENVIRONMENT",
    "OLD_PROCESSES",
    "OTHER_MODE",
    "PHOTO_TOO_LARGE",
    "SELFIE_USED",
    "TEST_KEYS_ONLY",
    "URL_EXPIRED",
];

/// The codes that handlers give, as their source has them.
fn find_codes(folder: &Path, codes: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_codes(&path, codes);
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let given = source.split("with_code(\"").skip(1).filter_map(|rest| rest.split('"').next());
        codes.extend(given.map(str::to_owned));
    }
}

#[test]
fn codes_of_refusals_have_words_in_every_language() {
    let api = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut codes = BTreeSet::new();
    find_codes(&api.join("src"), &mut codes);
    assert!(codes.contains("NO_SECRET_KEY") && codes.contains("DOWNLOADS_DISABLED"));
    for language in ["en", "de", "fr", "it", "es"] {
        let read = |path: String| std::fs::read_to_string(api.join("console/web/words").join(path)).unwrap();
        let words = read(format!("{language}.json")) + &read(format!("gallery/{language}.json"));
        for code in codes.iter().filter(|code| !WITHOUT_WORDS.contains(&code.as_str())) {
            assert!(words.contains(&format!("\"ui.failure.{code}\"")), "{code} in {language}");
        }
    }
}
