//! What is in force: the settings as types, each problem with them named. Only `settings` reads the environment.

mod database;
pub(crate) mod gc;
pub(crate) mod parser;
mod queue;
pub(crate) mod redact;
pub(crate) mod settings;
mod storage;
mod traces;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use photofinish_api::context::Environment;
use photofinish_models::onnx::runtime::{DeviceChoice, Precision};
use photofinish_store::blobs::cloud::CloudSettings;
use photofinish_store::{QueueSettings, ServerLimits};
use url::Url;

pub use self::gc::GcSettings;
use self::parser::{MEGABYTE, SettingsParser};
pub use self::storage::cloud_variables;
#[cfg(feature = "otlp")]
pub use self::traces::Sampling;
pub use self::traces::{TraceSettings, trace_variables};
use crate::config::redact::redact_url;
use crate::config::settings::Settings;

/// Everything that an operator decides.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub admin_listen: Option<SocketAddr>,
    pub data_dir: PathBuf,
    pub public_url: Url,
    pub database_url: String,
    pub server_limits: ServerLimits,
    pub storage_url: String,
    pub cloud: CloudSettings,
    pub gc: GcSettings,
    /// `None`: the database is the queue.
    pub queue: Option<QueueSettings>,
    pub environment: Environment,
    pub models_dir: PathBuf,
    pub models: ModelKind,
    /// What the reading of a photo takes with the fake networks, beyond what it takes.
    pub fake_delay: Duration,
    /// `None`: searched.
    pub onnxruntime: Option<PathBuf>,
    pub device: DeviceChoice,
    pub text_precision: Precision,
    pub processing_threads: usize,
    pub sizes: Sizes,
    pub times: Times,
    pub face_threshold: f64,
    pub text_threshold: f64,
    pub attempt_limit: u32,
    pub log: String,
    pub log_format: LogFormat,
    /// `None`: no traces are sent.
    pub traces: Option<TraceSettings>,
    trace_variables: Vec<(String, String)>,
}

/// How much of what.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub file_budget_bytes: usize,
    pub pixel_budget_bytes: usize,
    pub face_index_bytes: usize,
    pub max_photo_bytes: u64,
    pub max_probe_bytes: u64,
    pub max_pixels: u64,
}

/// How long what holds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub lease_ttl: Duration,
    pub drain_grace: Duration,
    pub upload_ttl: Duration,
    pub download_ttl: Duration,
    pub probe_ttl: Duration,
    pub body_timeout: Duration,
}

/// Which networks read the photos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// The real ones.
    Zoo,
    /// Readers of painted marks: for tests of everything around the networks.
    Fake,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines, one object a line.
    Json,
}

/// Every setting that cannot be used, at once.
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

/// A stop has to wait for a read that sleeps.
const MAX_FAKE_DELAY_MS: u64 = 10_000;

/// A photo is read from the storage in 26 s at most, whatever the storage: so large a one at 20 MB/s.
const MAX_PHOTO_BYTES: u64 = 500_000_000;

impl Config {
    /// Judges every setting.
    ///
    /// # Errors
    /// All problems at once, each with its variable, what was given and what is allowed.
    pub fn from_settings(given: &Settings) -> Result<Self, ConfigErrors> {
        let mut judge = SettingsParser::default();
        let config = judge.config(given);
        if judge.problems.is_empty() { Ok(config) } else { Err(ConfigErrors(judge.problems)) }
    }

    /// Where the secrets made at first start lie.
    pub fn secrets_dir(&self) -> PathBuf {
        self.data_dir.join("secrets")
    }

    /// What is in force, a variable a line, passwords in URLs masked.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let seconds = |duration: &Duration| duration.as_secs().to_string();
        let megabytes = |bytes: u64| (bytes / MEGABYTE).to_string();
        let optional = |value: Option<String>| value.unwrap_or_default();
        let mut lines = vec![
            ("PHOTOFINISH_LISTEN", self.listen.to_string()),
            ("PHOTOFINISH_ADMIN_LISTEN", optional(self.admin_listen.map(|a| a.to_string()))),
            ("PHOTOFINISH_DATA_DIR", self.data_dir.display().to_string()),
            ("PHOTOFINISH_PUBLIC_URL", self.public_url.to_string()),
            ("PHOTOFINISH_DATABASE_URL", redact_url(&self.database_url)),
            ("PHOTOFINISH_DATABASE_CONNECTIONS", self.server_limits.connections.to_string()),
            ("PHOTOFINISH_DATABASE_ACQUIRE_SECONDS", seconds(&self.server_limits.acquire_timeout)),
            ("PHOTOFINISH_DATABASE_STATEMENT_SECONDS", seconds(&self.server_limits.statement_timeout)),
            ("PHOTOFINISH_DATABASE_LOCK_SECONDS", seconds(&self.server_limits.lock_timeout)),
            ("PHOTOFINISH_STORAGE_URL", redact_url(&self.storage_url)),
            (
                "PHOTOFINISH_STORAGE_PUBLIC_ENDPOINT",
                optional(self.cloud.public_endpoint.as_ref().map(Url::to_string)),
            ),
            ("PHOTOFINISH_STORAGE_ADDRESSING", format!("{:?}", self.cloud.addressing).to_lowercase()),
            ("PHOTOFINISH_ENVIRONMENT", format!("{:?}", self.environment).to_lowercase()),
            ("PHOTOFINISH_MODELS_DIR", self.models_dir.display().to_string()),
            ("PHOTOFINISH_MODELS", format!("{:?}", self.models).to_lowercase()),
            ("PHOTOFINISH_FAKE_DELAY_MS", self.fake_delay.as_millis().to_string()),
            ("PHOTOFINISH_ONNXRUNTIME", optional(self.onnxruntime.as_ref().map(|p| p.display().to_string()))),
            ("PHOTOFINISH_DEVICE", format!("{:?}", self.device).to_lowercase()),
            ("PHOTOFINISH_TEXT_PRECISION", format!("{:?}", self.text_precision).to_lowercase()),
            ("PHOTOFINISH_PROCESSING_THREADS", self.processing_threads.to_string()),
            ("PHOTOFINISH_FILE_BUDGET_MB", megabytes(self.sizes.file_budget_bytes as u64)),
            ("PHOTOFINISH_PIXEL_BUDGET_MB", megabytes(self.sizes.pixel_budget_bytes as u64)),
            ("PHOTOFINISH_FACE_INDEX_MB", megabytes(self.sizes.face_index_bytes as u64)),
            ("PHOTOFINISH_MAX_PHOTO_MB", megabytes(self.sizes.max_photo_bytes)),
            ("PHOTOFINISH_MAX_SELFIE_MB", megabytes(self.sizes.max_probe_bytes)),
            ("PHOTOFINISH_MAX_MEGAPIXELS", megabytes(self.sizes.max_pixels)),
            ("PHOTOFINISH_FACE_THRESHOLD", self.face_threshold.to_string()),
            ("PHOTOFINISH_TEXT_THRESHOLD", self.text_threshold.to_string()),
            ("PHOTOFINISH_LEASE_SECONDS", seconds(&self.times.lease_ttl)),
            ("PHOTOFINISH_ATTEMPT_LIMIT", self.attempt_limit.to_string()),
            ("PHOTOFINISH_DRAIN_SECONDS", seconds(&self.times.drain_grace)),
            ("PHOTOFINISH_UPLOAD_SECONDS", seconds(&self.times.upload_ttl)),
            ("PHOTOFINISH_DOWNLOAD_SECONDS", seconds(&self.times.download_ttl)),
            ("PHOTOFINISH_PROBE_SECONDS", seconds(&self.times.probe_ttl)),
            ("PHOTOFINISH_BODY_SECONDS", seconds(&self.times.body_timeout)),
            ("PHOTOFINISH_LOG", self.log.clone()),
            ("PHOTOFINISH_LOG_FORMAT", format!("{:?}", self.log_format).to_lowercase()),
        ];
        lines.extend(self.queue_lines());
        lines.extend(self.sweep_lines());
        lines
    }
}

/// Variables of this process that are named by others than this program.
fn read_variables(is_wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let readable =
        std::env::vars_os().filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)));
    readable.filter(|(name, _)| is_wanted(name)).collect()
}

impl SettingsParser {
    fn config(&mut self, given: &Settings) -> Config {
        let listen =
            self.parse("PHOTOFINISH_LISTEN", &given.listen, SocketAddr::from(([127, 0, 0, 1], 8080)));
        let data_dir = PathBuf::from(given.data_dir.clone().unwrap_or_else(|| "data".into()));
        let database_url = self.database_url(given, &data_dir);
        let storage_url = self.storage_url(given, &data_dir);
        let processing_threads = self.processing_threads(given);
        let times = self.times(given);
        self.remote_ttls(&times, &storage_url);
        Config {
            listen,
            admin_listen: self.admin_listen(given),
            public_url: self.public_url(given, listen),
            cloud: self.cloud(given, &storage_url),
            storage_url,
            gc: self.sweeping(given, &times),
            environment: self.environment(given),
            models_dir: PathBuf::from(
                given.models_dir.clone().unwrap_or_else(|| ".photofinish/models".into()),
            ),
            models: self.choice(
                "PHOTOFINISH_MODELS",
                &given.models,
                &[("zoo", ModelKind::Zoo), ("fake", ModelKind::Fake)],
            ),
            fake_delay: self.fake_delay(given),
            onnxruntime: given.onnxruntime.clone().map(PathBuf::from),
            device: self.choice(
                "PHOTOFINISH_DEVICE",
                &given.device,
                &[
                    ("auto", DeviceChoice::Auto),
                    ("cpu", DeviceChoice::Cpu),
                    ("cuda", DeviceChoice::Cuda),
                    ("wgpu", DeviceChoice::Wgpu),
                ],
            ),
            text_precision: self.choice(
                "PHOTOFINISH_TEXT_PRECISION",
                &given.text_precision,
                &[("bf16", Precision::Bf16), ("f32", Precision::F32)],
            ),
            processing_threads,
            sizes: self.sizes(given, processing_threads),
            queue: self.queue(given, &database_url, times.lease_ttl),
            times,
            face_threshold: self.confidence("PHOTOFINISH_FACE_THRESHOLD", &given.face_threshold, 10.0),
            text_threshold: self.confidence("PHOTOFINISH_TEXT_THRESHOLD", &given.text_threshold, 0.0),
            attempt_limit: self.whole("PHOTOFINISH_ATTEMPT_LIMIT", &given.attempt_limit, 3) as u32,
            log: self.log_filter(given),
            log_format: self.choice(
                "PHOTOFINISH_LOG_FORMAT",
                &given.log_format,
                &[("text", LogFormat::Text), ("json", LogFormat::Json)],
            ),
            traces: self.traces(given),
            trace_variables: given.trace_variables.clone(),
            data_dir,
            database_url,
            server_limits: self.server_limits(given),
        }
    }

    /// Real networks take what they take: a delay beside them is a mistake.
    fn fake_delay(&mut self, given: &Settings) -> Duration {
        let milliseconds: u64 = self.parse("PHOTOFINISH_FAKE_DELAY_MS", &given.fake_delay_ms, 0);
        if milliseconds > MAX_FAKE_DELAY_MS {
            self.problems.push(format!(
                "PHOTOFINISH_FAKE_DELAY_MS={milliseconds}: must be from 0 to {MAX_FAKE_DELAY_MS}"
            ));
        } else if milliseconds > 0 && given.models.as_deref() != Some("fake") {
            self.problems
                .push(format!("PHOTOFINISH_FAKE_DELAY_MS={milliseconds}: only with PHOTOFINISH_MODELS=fake"));
        }
        Duration::from_millis(milliseconds.min(MAX_FAKE_DELAY_MS))
    }

    fn environment(&mut self, given: &Settings) -> Environment {
        let names = [
            ("local", Environment::Local),
            ("sandbox", Environment::Sandbox),
            ("production", Environment::Production),
        ];
        self.choice("PHOTOFINISH_ENVIRONMENT", &given.environment, &names)
    }

    fn sizes(&mut self, given: &Settings, processing_threads: usize) -> Sizes {
        // A core works on one photo while the next waits: two files and three working frames of 24 megapixel photos.
        // Twice as much made nothing faster on two cores. A larger photo has the budget for itself.
        let cores = processing_threads.max(2) as u64;
        Sizes {
            file_budget_bytes: self.megabytes("PHOTOFINISH_FILE_BUDGET_MB", &given.file_budget_mb, 16 * cores)
                as usize,
            pixel_budget_bytes: self.megabytes(
                "PHOTOFINISH_PIXEL_BUDGET_MB",
                &given.pixel_budget_mb,
                28 * cores,
            ) as usize,
            face_index_bytes: self.megabytes("PHOTOFINISH_FACE_INDEX_MB", &given.face_index_mb, 1024)
                as usize,
            max_photo_bytes: self.max_photo_bytes(given),
            max_probe_bytes: self.megabytes("PHOTOFINISH_MAX_SELFIE_MB", &given.max_selfie_mb, 10),
            max_pixels: self.megabytes("PHOTOFINISH_MAX_MEGAPIXELS", &given.max_megapixels, 200),
        }
    }

    fn times(&mut self, given: &Settings) -> Times {
        Times {
            lease_ttl: self.seconds("PHOTOFINISH_LEASE_SECONDS", &given.lease_seconds, 60),
            drain_grace: self.seconds("PHOTOFINISH_DRAIN_SECONDS", &given.drain_seconds, 20),
            upload_ttl: self.seconds("PHOTOFINISH_UPLOAD_SECONDS", &given.upload_seconds, 900),
            download_ttl: self.seconds("PHOTOFINISH_DOWNLOAD_SECONDS", &given.download_seconds, 3600),
            probe_ttl: self.seconds("PHOTOFINISH_PROBE_SECONDS", &given.probe_seconds, 3600),
            body_timeout: self.seconds("PHOTOFINISH_BODY_SECONDS", &given.body_seconds, 30),
        }
    }

    fn processing_threads(&mut self, given: &Settings) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.whole("PHOTOFINISH_PROCESSING_THREADS", &given.processing_threads, cores as u64).min(256)
            as usize
    }

    fn admin_listen(&mut self, given: &Settings) -> Option<SocketAddr> {
        given.admin_listen.as_ref()?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Some(self.parse("PHOTOFINISH_ADMIN_LISTEN", &given.admin_listen, nowhere))
    }

    fn max_photo_bytes(&mut self, given: &Settings) -> u64 {
        let bytes = self.megabytes("PHOTOFINISH_MAX_PHOTO_MB", &given.max_photo_mb, 50);
        if bytes > MAX_PHOTO_BYTES {
            let most = MAX_PHOTO_BYTES / 1_000_000;
            self.problems.push(format!("PHOTOFINISH_MAX_PHOTO_MB={}: at most {most}", bytes / 1_000_000));
        }
        bytes
    }

    /// Where partners reach the service: by default where it listens, and this machine where it listens on all addresses.
    /// Then nobody else could follow an upload URL of local files, which only a trial can do with.
    fn public_url(&mut self, given: &Settings, listen: SocketAddr) -> Url {
        let everywhere = listen.ip().is_unspecified();
        let here: IpAddr =
            if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let reached = SocketAddr::new(if everywhere { here } else { listen.ip() }, listen.port());
        let default = Url::parse(&format!("http://{reached}")).expect("a socket address makes a URL");
        let local_files = given.storage_url.as_ref().is_none_or(|url| url.starts_with("file:"));
        let is_trial = given.environment.as_ref().is_none_or(|name| name == "local");
        if everywhere && given.public_url.is_none() && local_files && !is_trial {
            self.problems
                .push("PHOTOFINISH_PUBLIC_URL is missing: what presigned URLs begin with".to_owned());
        }
        let url = self.parse("PHOTOFINISH_PUBLIC_URL", &given.public_url, default.clone());
        if matches!(url.scheme(), "http" | "https") && url.host().is_some() {
            return url;
        }
        self.problems.push(format!("PHOTOFINISH_PUBLIC_URL={url}: must begin with http:// or https://"));
        default
    }

    fn log_filter(&mut self, given: &Settings) -> String {
        let filter = given.log.clone().unwrap_or_else(|| "info,ort=warn".into());
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&filter) {
            self.problems.push(format!("PHOTOFINISH_LOG={filter}: {error}"));
        }
        filter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_listed_at_once() {
        let given = Settings {
            listen: Some("nowhere".into()),
            environment: Some("moon".into()),
            max_photo_mb: Some("0".into()),
            face_threshold: Some("101".into()),
            storage_url: Some("ftp://example".into()),
            ..Settings::default()
        };
        let ConfigErrors(problems) = Config::from_settings(&given).unwrap_err();
        assert_eq!(problems.len(), 5, "{problems:?}");
        for name in ["LISTEN", "ENVIRONMENT", "MAX_PHOTO_MB", "FACE_THRESHOLD", "STORAGE_URL"] {
            assert!(problems.iter().any(|p| p.contains(name)), "{name} is not in {problems:?}");
        }
    }

    #[test]
    fn the_default_public_url_is_a_reachable_address() {
        let given = |listen: &str, environment: &str| Settings {
            listen: Some(listen.into()),
            environment: Some(environment.into()),
            ..Settings::default()
        };
        for (listen, url) in [("0.0.0.0:8080", "http://127.0.0.1:8080/"), ("[::]:81", "http://[::1]:81/")] {
            let config = Config::from_settings(&given(listen, "local")).unwrap();
            assert_eq!(config.public_url.as_str(), url);
            let ConfigErrors(problems) = Config::from_settings(&given(listen, "production")).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains("PUBLIC_URL"), "{problems:?}");
            let storage_url = Some("s3://photos".into());
            Config::from_settings(&Settings { storage_url, ..given(listen, "production") }).unwrap();
            let public_url = Some("https://photos.example".into());
            Config::from_settings(&Settings { public_url, ..given(listen, "production") }).unwrap();
        }
        Config::from_settings(&given("10.0.0.1:80", "production")).unwrap();
    }

    #[test]
    fn no_photo_may_be_larger_than_can_be_read_in_time() {
        let given =
            |megabytes: &str| Settings { max_photo_mb: Some(megabytes.into()), ..Settings::default() };
        Config::from_settings(&given("500")).unwrap();
        let ConfigErrors(problems) = Config::from_settings(&given("501")).unwrap_err();
        assert_eq!(problems, ["PHOTOFINISH_MAX_PHOTO_MB=501: at most 500"]);
    }

    #[test]
    fn only_fake_networks_are_made_slower() {
        let given = |models: &str, delay: &str| Settings {
            models: Some(models.into()),
            fake_delay_ms: Some(delay.into()),
            ..Settings::default()
        };
        let config = Config::from_settings(&given("fake", "100")).unwrap();
        assert_eq!(config.fake_delay, Duration::from_millis(100));
        assert_eq!(Config::from_settings(&given("zoo", "0")).unwrap().fake_delay, Duration::ZERO);
        for refused in [given("zoo", "100"), given("fake", "10001"), given("fake", "soon")] {
            let ConfigErrors(problems) = Config::from_settings(&refused).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains("FAKE_DELAY_MS"), "{problems:?}");
        }
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let config = Config::from_settings(&Settings::default()).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.public_url.as_str(), "http://127.0.0.1:8080/");
        assert_eq!(config.storage_url, "file:data/objects");
        assert_eq!(config.times.upload_ttl, Duration::from_secs(900));
    }
}
