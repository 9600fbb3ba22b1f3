//! Settings of garbage collection: when bytes without a row are removed.

use std::time::Duration;

use super::parsers::{self, Choice};

const SCHEDULES: Choice<GcSchedule> = Choice(&[("daily", GcSchedule::Daily), ("off", GcSchedule::Off)]);

/// When garbage is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcSchedule {
    /// Once a day, in role `all`.
    Daily,
    /// Never; `photofinish sweep` does it.
    Off,
}

/// Settings of garbage collection.
#[derive(clap::Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Garbage collection (role all, command sweep)")]
pub struct GcArguments {
    /// When stored bytes that no row needs are removed by role all; the command sweep removes them too
    #[arg(long, env = "PHOTOFINISH_SWEEP", value_name = "NAME", default_value = "daily")]
    #[arg(value_parser = SCHEDULES)]
    pub sweep: GcSchedule,
    /// How old such bytes must be, hours
    #[arg(long = "sweep-hours", env = "PHOTOFINISH_SWEEP_HOURS", value_name = "HOURS")]
    #[arg(default_value = "48", value_parser = parsers::hours)]
    pub min_age: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{config, problems};

    #[test]
    fn a_gc_age_below_the_longest_upload_is_refused() {
        let given =
            |hours, seconds| [("PHOTOFINISH_SWEEP_HOURS", hours), ("PHOTOFINISH_UPLOAD_SECONDS", seconds)];
        assert!(config(&given("3", "900")).is_ok());
        for (hours, seconds) in [("1", "900"), ("48", "180000")] {
            let problems = problems(&given(hours, seconds));
            assert!(problems[0].contains("PHOTOFINISH_SWEEP_HOURS"), "{problems:?}");
        }
        let off = config(&[("PHOTOFINISH_SWEEP", "off")]).unwrap();
        assert_eq!(off.settings.gc.sweep, GcSchedule::Off);
        assert_eq!(config::<&str>(&[]).unwrap().settings.gc.sweep, GcSchedule::Daily);
    }
}
