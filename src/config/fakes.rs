//! Settings that only builds with the cargo feature `fakes` have.

use std::time::Duration;

use super::parsers;

/// Longer than a stop waits for a thread.
const MAX_DELAY_MS: u64 = 60_000;

/// Settings of the fake models.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Tests (feature fakes)")]
pub struct FakeArguments {
    /// With fake models: how long reading a photo takes, milliseconds
    #[arg(long = "fake-delay-ms", env = "PHOTOFINISH_FAKE_DELAY_MS", value_name = "MILLISECONDS")]
    #[arg(default_value = "0", value_parser = milliseconds)]
    pub read_delay: Duration,
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    parsers::integer(text, 0, MAX_DELAY_MS).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{config, problems};

    #[test]
    fn only_fake_models_are_delayed() {
        let given = |models, delay| [("PHOTOFINISH_MODELS", models), ("PHOTOFINISH_FAKE_DELAY_MS", delay)];
        let delay = |given: [(&str, &str); 2]| config(&given).unwrap().settings.fakes.read_delay;
        assert_eq!(delay(given("fake", "100")), Duration::from_millis(100));
        assert_eq!(delay(given("zoo", "0")), Duration::ZERO);
        for refused in [given("zoo", "100"), given("fake", "60001"), given("fake", "soon")] {
            let problems = problems(&refused);
            assert!(problems.len() == 1 && problems[0].contains("FAKE_DELAY_MS"), "{problems:?}");
        }
    }
}
