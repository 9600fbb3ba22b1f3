//! When bytes without a row are swept away.

use std::time::Duration;

use super::{Config, SettingsParser, Times};
use crate::config::settings::Settings;

/// Sweeping of the storage.
#[derive(Clone, Copy, Debug)]
pub struct GcSettings {
    /// Whether role `all` sweeps once a day.
    pub is_daily: bool,
    /// Younger bytes stay.
    pub min_age: Duration,
}

impl Config {
    pub(super) fn sweep_lines(&self) -> [(&'static str, String); 2] {
        let when = if self.gc.is_daily { "daily" } else { "off" };
        let hours = self.gc.min_age.as_secs() / 3600;
        [("PHOTOFINISH_SWEEP", when.to_owned()), ("PHOTOFINISH_SWEEP_HOURS", hours.to_string())]
    }
}

impl SettingsParser {
    pub(super) fn sweeping(&mut self, given: &Settings, times: &Times) -> GcSettings {
        let hours = self.whole("PHOTOFINISH_SWEEP_HOURS", &given.sweep_hours, 48);
        let older_than = Duration::from_secs(hours * 3600);
        // What is on its way has a row all along; an hour more than it can take is for clocks that differ.
        let on_its_way = times.upload_ttl.max(times.probe_ttl) + times.lease_ttl + Duration::from_secs(3600);
        if older_than < on_its_way {
            let least = on_its_way.as_secs().div_ceil(3600);
            self.problems.push(format!(
                "PHOTOFINISH_SWEEP_HOURS={hours}: must be {least} at least: longer than an upload URL, a selfie and a \
                 lease last"
            ));
        }
        let is_daily = self.choice("PHOTOFINISH_SWEEP", &given.sweep, &[("daily", true), ("off", false)]);
        GcSettings { is_daily, min_age: older_than }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigErrors;

    #[test]
    fn a_gc_age_below_the_longest_upload_is_refused() {
        let with = |hours: &str, upload: &str| Settings {
            sweep_hours: Some(hours.into()),
            upload_seconds: Some(upload.into()),
            ..Settings::default()
        };
        assert!(Config::from_settings(&with("3", "900")).is_ok());
        for (hours, upload) in [("1", "900"), ("48", "180000")] {
            let ConfigErrors(problems) = Config::from_settings(&with(hours, upload)).unwrap_err();
            assert!(problems[0].contains("PHOTOFINISH_SWEEP_HOURS"), "{problems:?}");
        }
        let off = Settings { sweep: Some("off".into()), ..Settings::default() };
        assert!(!Config::from_settings(&off).unwrap().gc.is_daily);
        assert!(Config::from_settings(&Settings::default()).unwrap().gc.is_daily);
    }
}
