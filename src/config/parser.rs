//! How the text of a setting becomes a value, and what is said when it does not.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub(super) const MEGABYTE: u64 = 1_000_000;

/// Collects problems while it turns text into types; a value with a problem becomes its default and is never used.
#[derive(Default)]
pub(super) struct SettingsParser {
    pub(super) problems: Vec<String>,
}

impl SettingsParser {
    pub(super) fn parse<T>(&mut self, name: &str, given: &Option<String>, default: T) -> T
    where
        T: FromStr<Err: fmt::Display>,
    {
        let Some(text) = given else { return default };
        text.parse().unwrap_or_else(|error| {
            self.problems.push(format!("{name}={text}: {error}"));
            default
        })
    }

    /// The first option is the default.
    pub(super) fn choice<T: Copy>(&mut self, name: &str, given: &Option<String>, options: &[(&str, T)]) -> T {
        let wanted = given.as_deref().unwrap_or(options[0].0);
        if let Some((_, value)) = options.iter().find(|(option, _)| *option == wanted) {
            return *value;
        }
        let names: Vec<&str> = options.iter().map(|(option, _)| *option).collect();
        self.problems.push(format!("{name}={wanted}: must be one of {}", names.join(", ")));
        options[0].1
    }

    pub(super) fn whole(&mut self, name: &str, given: &Option<String>, default: u64) -> u64 {
        let value = self.parse(name, given, default);
        if (1..=1_000_000).contains(&value) {
            return value;
        }
        self.problems.push(format!("{name}={value}: must be from 1 to 1000000"));
        default
    }

    pub(super) fn megabytes(&mut self, name: &str, given: &Option<String>, default: u64) -> u64 {
        self.whole(name, given, default) * MEGABYTE
    }

    pub(super) fn seconds(&mut self, name: &str, given: &Option<String>, default: u64) -> Duration {
        Duration::from_secs(self.whole(name, given, default))
    }

    pub(super) fn confidence(&mut self, name: &str, given: &Option<String>, default: f64) -> f64 {
        let value = self.parse(name, given, default);
        if (0.0..=100.0).contains(&value) {
            return value;
        }
        self.problems.push(format!("{name}={value}: must be from 0 to 100"));
        default
    }
}
