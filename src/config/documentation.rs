//! The table of settings in `docs/OPERATIONS.md`, made from the arguments. `UPDATE_DOCS=1 cargo test --package photofinish
//! settings_table` writes it.

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;

use clap::Arg;

use super::settings::{Settings, check_one, variable};

const PAGE: &str = "docs/OPERATIONS.md";
const BEGIN: &str = "<!-- settings: made from src/config, see src/config/documentation.rs -->\n";
const END: &str = "<!-- end of settings -->";

/// Settings and values that only builds for tests have are not documented.
const TEST_SETTINGS: &str = "feature fakes";
const TEST_MODELS: &str = "fake";

#[test]
#[expect(clippy::disallowed_methods, reason = "a switch of this test, no setting")]
fn the_settings_table_of_the_operations_page_is_made_from_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", settings_table())).unwrap();
        return;
    }
    assert!(table == settings_table(), "{PAGE} is out of date: run this test with UPDATE_DOCS=1");
}

fn settings_table() -> String {
    let mut table = String::from(
        "\n| variable, flag | default | allowed | meaning | concerns |\n|---|---|---|---|---|\n",
    );
    for arg in Settings::arguments() {
        let concerned = heading(&arg);
        if concerned == TEST_SETTINGS {
            continue;
        }
        let (meaning, default) = meaning_and_default(&arg);
        let flag = arg.get_long().unwrap();
        let (name, allowed) = (variable(&arg), allowed(&arg));
        writeln!(table, "| `{name}`, `--{flag}` | {default} | {allowed} | {meaning} | {concerned} |")
            .unwrap();
    }
    table.push('\n');
    table
}

/// The roles or commands, from the parentheses of the heading in `--help`.
fn heading(arg: &Arg) -> String {
    let (_, rest) = arg.get_help_heading().unwrap().split_once('(').unwrap();
    let roles = rest.split([';', ')']).next().unwrap();
    roles.trim_start_matches("roles ").trim_start_matches("role ").to_owned()
}

/// The help text, and the default: a value, or the words in brackets where it depends on other settings.
fn meaning_and_default(arg: &Arg) -> (String, String) {
    let help = arg.get_help().unwrap().to_string();
    let (meaning, words) = help.split_once(" [default: ").unwrap_or((&help, ""));
    let default = match arg.get_default_values().first() {
        Some(value) => format!("`{}`", value.to_string_lossy()),
        None => words.trim_end_matches(']').to_owned(),
    };
    assert!(!default.is_empty(), "the help of {} names no default", variable(arg));
    (meaning.to_owned(), default)
}

/// What is said about a value that no parser accepts; else the kind of value.
fn allowed(arg: &Arg) -> String {
    let values = arg.get_possible_values();
    if !values.is_empty() {
        let names = values.iter().map(|value| value.get_name()).filter(|name| *name != TEST_MODELS);
        return names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    }
    let refusal = check_one(arg, OsStr::new("?=")).err();
    let words = refusal.as_deref().and_then(|refusal| refusal.strip_prefix("must be "));
    let words = words.map(|words| words.split(" (").next().unwrap_or(words).to_owned());
    words.unwrap_or_else(|| arg.get_value_names().unwrap()[0].to_lowercase())
}
