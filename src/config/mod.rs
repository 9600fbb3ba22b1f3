//! The configuration in force: the settings as types, with the defaults that depend on other settings, and the rules
//! between settings. All problems are reported at once.
//!
//! The environment is read in two places: by clap, for the settings, and by [`ForeignVariables::read`], for variables that
//! belong to clouds, to OpenTelemetry and to NVIDIA's driver.

mod api;
mod console;
pub mod costs;
pub mod credits;
mod database;
#[cfg(test)]
mod documentation;
#[cfg(feature = "fakes")]
mod fakes;
mod gc;
mod models;
mod parsers;
mod pipeline;
mod queue;
pub mod redact;
mod rules;
pub mod secrets;
mod service;
pub mod settings;
mod storage;
mod traces;
mod variables;
pub mod webhooks;

use std::fmt;
use std::path::PathBuf;

use photofinish_store::blobs::cloud::CloudSettings;
use photofinish_store::{QueueSettings, ServerLimits};
use url::Url;

pub use self::gc::GcSchedule;
pub use self::models::{BIB_GATES, DEVICES, ModelKind};
pub use self::parsers::MEGABYTE;
pub use self::pipeline::Capacity;
use self::redact::{redact_servers, redact_url};
pub use self::service::LogFormat;
use self::settings::{CheckedSettings, GivenTexts, Settings, variable};
#[cfg(feature = "otlp")]
pub use self::traces::Sampling;
pub use self::traces::TraceSettings;

/// Everything that an operator decides.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings as given, or their defaults.
    pub settings: Settings,
    pub public_url: Url,
    pub database_url: String,
    pub server_limits: ServerLimits,
    pub storage_url: String,
    pub cloud: CloudSettings,
    /// `None`: the database is the queue.
    pub queue: Option<QueueSettings>,
    pub capacity: Capacity,
    /// Where kernels are kept that are compiled for CUDA.
    pub kernel_cache_dir: PathBuf,
    /// `None`: no traces are exported.
    pub traces: Option<TraceSettings>,
    texts: GivenTexts,
    trace_variables: Vec<(String, String)>,
}

/// Variables of this process under names that others define.
#[derive(Default)]
pub struct ForeignVariables {
    cloud: Vec<(String, String)>,
    traces: Vec<(String, String)>,
    driver_cache: Option<PathBuf>,
}

impl ForeignVariables {
    /// Reads the variables of clouds, of OpenTelemetry and of NVIDIA's driver.
    pub fn read() -> Self {
        Self {
            cloud: storage::cloud_variables(),
            traces: traces::trace_variables(),
            driver_cache: models::driver_cache(),
        }
    }
}

/// Every problem of the settings, each with its variable, the value given and what is allowed.
#[derive(Debug, thiserror::Error)]
pub struct ConfigErrors(pub Vec<String>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of the settings cannot be used:", self.0.len())?;
        for problem in &self.0 {
            writeln!(f, "  {problem}")?;
        }
        Ok(())
    }
}

impl Config {
    /// Builds the configuration from the texts of the settings and the variables of others, for a command that makes links to
    /// the service or does not.
    ///
    /// # Errors
    /// [`ConfigErrors`] with all problems.
    pub fn new(texts: GivenTexts, foreign: ForeignVariables, makes_links: bool) -> anyhow::Result<Self> {
        let CheckedSettings { settings, mut problems } = Settings::check(&texts)?;
        let data_dir = &settings.service.data_dir;
        let mut config = Self {
            public_url: settings.api.public_url(settings.service.listen),
            database_url: settings.database.url(data_dir),
            server_limits: settings.database.server_limits(),
            storage_url: settings.storage.url(data_dir),
            cloud: settings.storage.cloud(foreign.cloud),
            queue: None,
            capacity: settings.pipeline.capacity(),
            kernel_cache_dir: models::kernel_cache_dir(foreign.driver_cache.as_deref(), data_dir),
            traces: traces::trace_settings(&foreign.traces, &mut problems),
            trace_variables: foreign.traces,
            settings,
            texts,
        };
        config.queue = config.queue_settings();
        config.check_public_url(makes_links, &mut problems);
        config.check_storage(&mut problems);
        config.check_heic(&mut problems);
        config.check_queue(&mut problems);
        config.check_gc(&mut problems);
        #[cfg(feature = "fakes")]
        config.check_fakes(&mut problems);
        if problems.is_empty() { Ok(config) } else { Err(ConfigErrors(problems).into()) }
    }

    /// The URL under which people reach the console.
    pub fn console_url(&self) -> &Url {
        self.settings.console.console_url.as_ref().unwrap_or(&self.public_url)
    }

    /// The folder of the secrets created at first start.
    pub fn secrets_dir(&self) -> PathBuf {
        self.settings.service.data_dir.join("secrets")
    }

    /// Every setting in force, as variable and value, secrets redacted.
    pub fn lines(&self) -> Vec<(String, String)> {
        let line = |arg: clap::Arg| {
            let name = variable(&arg);
            let given = self.texts.get(&name).map(|text| text.to_string_lossy().into_owned());
            let default = || arg.get_default_values().first().map(|text| text.to_string_lossy().into_owned());
            let value = self.derived_value(arg.get_id().as_str()).or(given).or_else(default);
            (name, value.unwrap_or_default())
        };
        Settings::arguments().into_iter().map(line).collect()
    }

    /// The variables of the cloud in use, secrets redacted.
    pub fn cloud_lines(&self) -> Vec<(String, String)> {
        storage::redacted_variables(&self.storage_url, &self.cloud)
    }

    /// OpenTelemetry's variables, secrets redacted; none where no traces are exported.
    pub fn trace_lines(&self) -> Vec<(String, String)> {
        let exports = self.traces.is_some();
        if exports { traces::redacted_variables(&self.trace_variables) } else { Vec::new() }
    }

    /// The value in force of a setting, by the id of its argument, where it is not simply the given text or a constant.
    fn derived_value(&self, id: &str) -> Option<String> {
        let megabytes = |bytes: usize| Some((bytes as u64 / MEGABYTE).to_string());
        match id {
            "public_url" => Some(redact_url(self.public_url.as_str())),
            "database_url" => Some(redact_url(&self.database_url)),
            "database_connections" => Some(self.server_limits.connections.to_string()),
            "storage_url" => Some(redact_url(&self.storage_url)),
            "rate_limits" => {
                let limits = self.settings.credits.rate_limits(self.settings.service.environment);
                Some(credits::limits_to_text(&limits))
            }
            "secret_key" => self.settings.secrets.secret_key.as_ref().map(|key| format!("{key:?}")),
            "secret_key_old" => self.settings.secrets.secret_key_old.as_ref().map(|key| format!("{key:?}")),
            "queue_url" => Some(match &self.queue {
                Some(queue) => redact_servers(&queue.url),
                None => redact_url(&self.database_url),
            }),
            "queue_credentials" | "queue_stream" | "queue_replicas" if self.queue.is_none() => {
                Some(String::new())
            }
            "heic" => Some(if self.settings.storage.reads_heic() { "on" } else { "off" }.to_owned()),
            "processing_threads" => Some(self.capacity.processing_threads.to_string()),
            "file_budget_bytes" => megabytes(self.capacity.file_budget_bytes),
            "pixel_budget_bytes" => megabytes(self.capacity.pixel_budget_bytes),
            _ => None,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use super::*;

    /// The configuration made from these settings, by environment variable.
    pub fn config<T: AsRef<str>>(settings: &[(&str, T)]) -> Result<Config, ConfigErrors> {
        config_with(settings, &[], &[])
    }

    /// As [`config`], with variables of a cloud and of OpenTelemetry.
    pub fn config_with<T: AsRef<str>>(
        settings: &[(&str, T)],
        cloud: &[(&str, &str)],
        traces: &[(&str, &str)],
    ) -> Result<Config, ConfigErrors> {
        let texts = settings.iter().map(|(name, text)| ((*name).to_owned(), text.as_ref().into())).collect();
        let owned = |variables: &[(&str, &str)]| {
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let foreign =
            ForeignVariables { cloud: owned(cloud), traces: owned(traces), ..ForeignVariables::default() };
        Config::new(texts, foreign, true).map_err(|error| error.downcast::<ConfigErrors>().unwrap())
    }

    /// The problems of settings that cannot be used.
    pub fn problems<T: AsRef<str>>(settings: &[(&str, T)]) -> Vec<String> {
        config(settings).unwrap_err().0
    }

    #[test]
    fn every_problem_is_listed_at_once() {
        let problems = problems(&[
            ("PHOTOFINISH_LISTEN", "nowhere"),
            ("PHOTOFINISH_ENVIRONMENT", "moon"),
            ("PHOTOFINISH_MAX_PHOTO_MB", "0"),
            ("PHOTOFINISH_FACE_THRESHOLD", "101"),
            ("PHOTOFINISH_STORAGE_URL", "ftp://example"),
            ("PHOTOFINISH_SWEEP_HOURS", "1"),
        ]);
        assert_eq!(problems.len(), 6, "{problems:?}");
        for name in ["LISTEN", "ENVIRONMENT", "MAX_PHOTO_MB", "FACE_THRESHOLD", "STORAGE_URL", "SWEEP_HOURS"]
        {
            assert!(problems.iter().any(|problem| problem.contains(name)), "{name} is not in {problems:?}");
        }
    }

    #[test]
    fn a_problem_names_variable_value_and_what_is_allowed() {
        for (name, value, allowed) in [
            ("PHOTOFINISH_MAX_PHOTO_MB", "501", "must be a whole number from 1 to 500"),
            ("PHOTOFINISH_DEVICE", "abacus", "must be one of auto, cpu, cuda, wgpu"),
            ("PHOTOFINISH_TEXT_THRESHOLD", "", "must be a number from 0 to 100"),
        ] {
            assert_eq!(problems(&[(name, value)]), [format!("{name}={value}: {allowed}")]);
        }
        config(&[("PHOTOFINISH_MAX_PHOTO_MB", "500")]).unwrap();
    }

    #[test]
    fn every_value_that_a_setting_names_is_accepted() {
        let mut accepted = 0;
        for arg in Settings::arguments() {
            for value in arg.get_possible_values() {
                let checked = settings::check_one(&arg, value.get_name().as_ref());
                assert!(checked.is_ok(), "{}={}: {checked:?}", settings::variable(&arg), value.get_name());
                accepted += 1;
            }
        }
        assert!(accepted > 20, "{accepted} values");
        assert!(!config(&[("PHOTOFINISH_CONSOLE", "off")]).unwrap().settings.console.console);
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let config = config::<&str>(&[]).unwrap();
        assert_eq!(config.settings.service.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.public_url.as_str(), "http://127.0.0.1:8080/");
        assert_eq!(config.storage_url, "file:data/objects");
        let api = &config.settings.api;
        let lifetimes = [api.upload_ttl, api.download_ttl, api.probe_ttl];
        assert_eq!(lifetimes, [900, 3600, 3600].map(Duration::from_secs));
    }

    #[test]
    fn the_lines_show_what_is_in_force() {
        let lines = config(&[("PHOTOFINISH_DATABASE_CONNECTIONS", "1")]).unwrap().lines();
        let value = |name: &str| lines.iter().find(|(known, _)| known == name).unwrap().1.clone();
        assert_eq!(value("PHOTOFINISH_DATABASE_CONNECTIONS"), "2");
        assert_eq!(value("PHOTOFINISH_LEASE_SECONDS"), "60");
        assert_eq!(value("PHOTOFINISH_STORAGE_URL"), "file:data/objects");
        assert_eq!(value("PHOTOFINISH_ADMIN_LISTEN"), "");
    }
}
