//! Where the bytes lie, judged: the storage URL, and what a bucket needs beyond it. Credentials come under the names
//! that the clouds' own tools use, so that what injects them into a pod or a machine works here unchanged.

use std::path::Path;

use photofinish_store::blobs::cloud::{Addressing, CloudSettings, LONGEST_TTL, Timeouts};
use photofinish_store::blobs::storage::check_url;
use url::Url;

use super::{Config, SettingsParser, Times, read_variables};
use crate::config::redact::redact_url;
use crate::config::settings::Settings;

/// What the variables of each kind of storage URL begin with.
const CLOUD_PREFIXES: [(&str, &str); 3] = [("s3://", "AWS_"), ("gs://", "GOOGLE_"), ("az://", "AZURE_")];

/// Variables whose values are no secrets, by their whole names: `GOOGLE_APPLICATION_CREDENTIALS` is a path, and with
/// `_JSON` behind it a private key.
const PUBLIC_VARIABLES: [&str; 5] = [
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ROLE_ARN",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

/// The clouds' own variables of this process.
pub fn cloud_variables() -> Vec<(String, String)> {
    read_variables(|name| CLOUD_PREFIXES.iter().any(|(_, prefix)| name.starts_with(prefix)))
}

impl Config {
    /// The variables of the cloud that holds the bytes, secrets masked.
    pub fn cloud_lines(&self) -> Vec<(String, String)> {
        let Some((_, prefix)) =
            CLOUD_PREFIXES.iter().find(|(scheme, _)| self.storage_url.starts_with(scheme))
        else {
            return Vec::new();
        };
        let ours = self.cloud.variables.iter().filter(|(name, _)| name.starts_with(prefix));
        let mut lines: Vec<(String, String)> =
            ours.map(|(name, value)| (name.clone(), redact_variable(name, value))).collect();
        lines.sort();
        lines
    }
}

/// A variable's value as it may be shown: addresses without their secrets, paths and what is no secret whole.
fn redact_variable(name: &str, value: &str) -> String {
    if name.ends_with("_ENDPOINT") || name.starts_with("AWS_ENDPOINT_URL") {
        redact_url(value)
    } else if name.ends_with("_FILE") || PUBLIC_VARIABLES.contains(&name) {
        value.to_owned()
    } else {
        "masked".to_owned()
    }
}

impl SettingsParser {
    pub(super) fn storage_url(&mut self, given: &Settings, data_dir: &Path) -> String {
        let default = format!("file:{}", data_dir.join("objects").display());
        let url = given.storage_url.clone().unwrap_or(default);
        if let Err(error) = check_url(&url) {
            // Says what is wrong without repeating the URL, in which a credential may be.
            self.problems.push(format!("PHOTOFINISH_STORAGE_URL: {}", error.context));
        }
        url
    }

    pub(super) fn cloud(&mut self, given: &Settings, storage_url: &str) -> CloudSettings {
        CloudSettings {
            variables: given.cloud_variables.clone(),
            public_endpoint: self.public_endpoint(given, storage_url),
            addressing: self.choice(
                "PHOTOFINISH_STORAGE_ADDRESSING",
                &given.storage_addressing,
                &[("auto", Addressing::Auto), ("path", Addressing::Path), ("virtual", Addressing::Virtual)],
            ),
            timeouts: Timeouts::SERVICE,
        }
    }

    /// A bucket's URLs end after a week, whatever is asked for: an upload or a download that was promised for longer would
    /// be refused when it is too late to say so.
    pub(super) fn remote_ttls(&mut self, times: &Times, storage_url: &str) {
        if !CLOUD_PREFIXES.iter().any(|(scheme, _)| storage_url.starts_with(scheme)) {
            return;
        }
        let given = [
            ("PHOTOFINISH_UPLOAD_SECONDS", times.upload_ttl),
            ("PHOTOFINISH_DOWNLOAD_SECONDS", times.download_ttl),
        ];
        for (name, ttl) in given.into_iter().filter(|(_, ttl)| *ttl > LONGEST_TTL) {
            let (given, longest) = (ttl.as_secs(), LONGEST_TTL.as_secs());
            self.problems
                .push(format!("{name}={given}: must be {longest} at most where a bucket holds the bytes"));
        }
    }

    fn public_endpoint(&mut self, given: &Settings, storage_url: &str) -> Option<Url> {
        const NAME: &str = "PHOTOFINISH_STORAGE_PUBLIC_ENDPOINT";
        let text = given.storage_public_endpoint.as_deref()?;
        if !storage_url.starts_with("s3://") {
            self.problems.push(format!("{NAME}: is for s3:// storage alone; leave it out"));
            return None;
        }
        let url = text.parse::<Url>().ok();
        // A path would be signed too, and a proxy that takes it away would break every signature.
        let fits = |url: &Url| {
            matches!(url.scheme(), "http" | "https")
                && url.host().is_some()
                && url.path() == "/"
                && url.query().is_none()
                && url.username().is_empty()
        };
        let fitting = url.filter(fits);
        if fitting.is_none() {
            self.problems.push(format!(
                "{NAME}={}: must be http:// or https:// and a host, nothing after it",
                redact_url(text)
            ));
        }
        fitting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(storage_url: &str) -> Settings {
        Settings { storage_url: Some(storage_url.into()), ..Settings::default() }
    }

    #[test]
    fn every_kind_of_storage_url_is_accepted() {
        for url in ["file:data", "s3://photos/live", "gs://photos", "az://photos/a"] {
            assert_eq!(Config::from_settings(&on(url)).unwrap().storage_url, url);
        }
    }

    #[test]
    fn settings_that_do_not_fit_the_storage_are_refused() {
        let problems = |given: Settings| Config::from_settings(&given).unwrap_err().0;
        for wrong in ["ftp://key:secret@example", "s3://", "s3://key:secret@photos", "file:"] {
            let problems = problems(on(wrong));
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].starts_with("PHOTOFINISH_STORAGE_URL") && !problems[0].contains("secret"));
        }
        let public = |storage: &str, endpoint: &str| {
            problems(Settings { storage_public_endpoint: Some(endpoint.into()), ..on(storage) })
        };
        for (storage, endpoint) in [
            ("file:data", "https://photos.example"),
            ("gs://photos", "https://photos.example"),
            ("s3://photos", "photos.example"),
            ("s3://photos", "https://photos.example/s3"),
            ("s3://photos", "https://photos.example/?a=b"),
        ] {
            assert!(public(storage, endpoint)[0].contains("PUBLIC_ENDPOINT"), "{storage} {endpoint}");
        }
        let addressing = Settings { storage_addressing: Some("host".into()), ..on("s3://photos") };
        assert!(problems(addressing)[0].contains("auto, path, virtual"));
    }

    #[test]
    fn a_bucket_signs_for_a_week_at_most() {
        let lasting = |storage: &str, seconds: u64| Settings {
            upload_seconds: Some(seconds.to_string()),
            download_seconds: Some(seconds.to_string()),
            sweep_hours: Some("1000".into()),
            ..on(storage)
        };
        let week = LONGEST_TTL.as_secs();
        assert!(Config::from_settings(&lasting("s3://photos", week)).is_ok());
        assert!(Config::from_settings(&lasting("file:data", week + 1)).is_ok());
        let problems = Config::from_settings(&lasting("s3://photos", week + 1)).unwrap_err().0;
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("PHOTOFINISH_UPLOAD_SECONDS"), "{problems:?}");
        assert!(problems[1].contains("PHOTOFINISH_DOWNLOAD_SECONDS"), "{problems:?}");
    }

    #[test]
    fn a_public_endpoint_is_accepted() {
        let given = Settings {
            storage_public_endpoint: Some("https://photos.example".into()),
            storage_addressing: Some("virtual".into()),
            ..on("s3://photos")
        };
        let cloud = Config::from_settings(&given).unwrap().cloud;
        assert_eq!(cloud.public_endpoint.unwrap().as_str(), "https://photos.example/");
        assert_eq!(cloud.addressing, Addressing::Virtual);
    }

    #[test]
    fn cloud_variables_are_shown_without_secrets() {
        let variables = [
            ("AWS_SECRET_ACCESS_KEY", "hidden"),
            ("AWS_SESSION_TOKEN", "hidden"),
            ("AWS_ACCESS_KEY_ID", "hidden"),
            ("AWS_ENDPOINT_URL", "http://user:hidden@minio:9000"),
            ("AWS_ENDPOINT_URL_S3", "http://minio:9000/?api-key=hidden"),
            ("AWS_REGION", "eu-west-1"),
            ("AWS_REGION_KEY", "hidden"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/token"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE_TEXT", "hidden"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "hidden"),
        ];
        let mut given = on("s3://photos");
        given.cloud_variables = variables.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        let lines = Config::from_settings(&given).unwrap().cloud_lines();
        assert!(!format!("{lines:?}").contains("hidden"), "{lines:?}");
        assert!(lines.contains(&("AWS_REGION".to_owned(), "eu-west-1".to_owned())));
        assert!(lines.contains(&("AWS_WEB_IDENTITY_TOKEN_FILE".to_owned(), "/var/token".to_owned())));
        assert_eq!(lines.len(), 9);
        let variables = [
            ("GOOGLE_APPLICATION_CREDENTIALS", "/keys/robot.json"),
            ("GOOGLE_APPLICATION_CREDENTIALS_JSON", "hidden"),
            ("GOOGLE_SERVICE_ACCOUNT_KEY", "hidden"),
        ];
        given.storage_url = Some("gs://photos".into());
        given.cloud_variables = variables.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        let values = Config::from_settings(&given).unwrap().cloud_lines().into_iter().map(|(_, value)| value);
        assert_eq!(values.collect::<Vec<_>>(), ["/keys/robot.json", "masked", "masked"]);
        given.storage_url = None;
        assert!(Config::from_settings(&given).unwrap().cloud_lines().is_empty());
    }
}
