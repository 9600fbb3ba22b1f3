//! Settings of the storage. Credentials have the names that the clouds' own tools use, so that whatever injects them into
//! a pod or a machine works unchanged.

use std::path::Path;

use photofinish_store::blobs::cloud::{Addressing, CloudSettings, Timeouts};
use url::Url;

use super::parsers::{self, Choice, ON_OFF};
use super::redact::redact_url;
use super::variables::read_variables;

const ADDRESSING: Choice<Addressing> =
    Choice(&[("auto", Addressing::Auto), ("path", Addressing::Path), ("virtual", Addressing::Virtual)]);

/// Media types that every build accepts.
const MEDIA_TYPES: [&str; 3] = ["image/jpeg", "image/png", "image/webp"];
/// Those of HEIC: cameras and browsers use either.
const HEIC_MEDIA_TYPES: [&str; 2] = ["image/heic", "image/heif"];

/// The prefix of each cloud's variables, by scheme of the storage URL.
const CLOUD_PREFIXES: [(&str, &str); 3] = [("s3://", "AWS_"), ("gs://", "GOOGLE_"), ("az://", "AZURE_")];

/// Variables whose values are not secret, by full name: `GOOGLE_APPLICATION_CREDENTIALS` is a path, but a name that
/// continues with `_JSON` is a private key.
const PUBLIC_VARIABLES: [&str; 5] = [
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ROLE_ARN",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

/// Settings of the storage.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Storage (roles all, serve, work)")]
pub struct StorageArguments {
    /// Storage: file:FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX [default: a folder in the data folder]
    #[arg(long, env = "PHOTOFINISH_STORAGE_URL", value_name = "URL", hide_env_values = true)]
    #[arg(value_parser = parsers::storage_url)]
    pub storage_url: Option<String>,
    /// S3: origin of presigned URLs, where browsers reach the storage at another address [default: the service's own endpoint]
    #[arg(long, env = "PHOTOFINISH_STORAGE_PUBLIC_ENDPOINT", value_name = "URL")]
    #[arg(value_parser = parsers::http_origin)]
    pub storage_public_endpoint: Option<Url>,
    /// S3: where URLs name the bucket
    #[arg(long, env = "PHOTOFINISH_STORAGE_ADDRESSING", value_name = "NAME", default_value = "auto")]
    #[arg(value_parser = ADDRESSING)]
    pub storage_addressing: Addressing,
    /// Largest photo, megabytes
    #[arg(long = "max-photo-mb", env = "PHOTOFINISH_MAX_PHOTO_MB", value_name = "MEGABYTES")]
    #[arg(default_value = "50", value_parser = parsers::photo_megabytes)]
    pub max_photo_bytes: u64,
    /// Most pixels of a photo, megapixels
    #[arg(long = "max-megapixels", env = "PHOTOFINISH_MAX_MEGAPIXELS", value_name = "MEGAPIXELS")]
    #[arg(default_value = "200", value_parser = parsers::megabytes)]
    pub max_pixels: u64,
    /// Whether HEIC photos are accepted and read, in a build with the feature heic [default: on where it is built in]
    #[arg(long, env = "PHOTOFINISH_HEIC", value_name = "ON_OFF", value_parser = ON_OFF)]
    pub heic: Option<bool>,
}

impl StorageArguments {
    /// The configured URL, or that of a folder in the data folder.
    pub fn url(&self, data_dir: &Path) -> String {
        let default = || format!("file:{}", data_dir.join("objects").display());
        self.storage_url.clone().unwrap_or_else(default)
    }

    /// Whether HEIC is accepted and read. To demand it of a build that cannot is a problem, see [`super::rules`].
    pub fn reads_heic(&self) -> bool {
        self.heic.unwrap_or(cfg!(feature = "heic"))
    }

    /// The media types of photos that are accepted.
    pub fn media_types(&self) -> Vec<String> {
        let heic: &[&str] = if self.reads_heic() { &HEIC_MEDIA_TYPES } else { &[] };
        MEDIA_TYPES.iter().chain(heic).map(|name| (*name).to_owned()).collect()
    }

    /// What a bucket needs beside its URL; `variables` are the clouds' own.
    pub fn cloud(&self, variables: Vec<(String, String)>) -> CloudSettings {
        CloudSettings {
            variables,
            public_endpoint: self.storage_public_endpoint.clone(),
            addressing: self.storage_addressing,
            timeouts: Timeouts::SERVICE,
        }
    }
}

/// Reads the clouds' own variables.
pub fn cloud_variables() -> Vec<(String, String)> {
    read_variables(|name| CLOUD_PREFIXES.iter().any(|(_, prefix)| name.starts_with(prefix)))
}

/// The variables of the cloud that the storage URL names, secrets redacted.
pub fn redacted_variables(storage_url: &str, cloud: &CloudSettings) -> Vec<(String, String)> {
    let found = CLOUD_PREFIXES.iter().find(|(scheme, _)| storage_url.starts_with(scheme));
    let Some((_, prefix)) = found else { return Vec::new() };
    let variables = cloud.variables.iter().filter(|(name, _)| name.starts_with(prefix));
    let mut lines: Vec<(String, String)> =
        variables.map(|(name, value)| (name.clone(), redact_variable(name, value))).collect();
    lines.sort();
    lines
}

/// Whether the URL names a bucket.
pub fn is_bucket(storage_url: &str) -> bool {
    CLOUD_PREFIXES.iter().any(|(scheme, _)| storage_url.starts_with(scheme))
}

/// A variable's value without its secrets: URLs are redacted, paths and public values are kept.
fn redact_variable(name: &str, value: &str) -> String {
    if name.ends_with("_ENDPOINT") || name.starts_with("AWS_ENDPOINT_URL") {
        redact_url(value)
    } else if name.ends_with("_FILE") || PUBLIC_VARIABLES.contains(&name) {
        value.to_owned()
    } else {
        "masked".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use photofinish_store::blobs::cloud::LONGEST_TTL;

    use super::*;
    use crate::config::tests::{config, config_with, problems};

    const URL: &str = "PHOTOFINISH_STORAGE_URL";
    const ENDPOINT: &str = "PHOTOFINISH_STORAGE_PUBLIC_ENDPOINT";

    #[test]
    fn every_kind_of_storage_url_is_accepted() {
        for url in ["file:data", "s3://photos/live", "gs://photos", "az://photos/a"] {
            assert_eq!(config(&[(URL, url)]).unwrap().storage_url, url);
        }
    }

    #[test]
    fn settings_that_do_not_fit_the_storage_are_refused() {
        for wrong in ["ftp://key:secret@example", "s3://", "s3://key:secret@photos", "file:"] {
            let problems = problems(&[(URL, wrong)]);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].starts_with(URL) && !problems[0].contains("secret"));
        }
        for (storage, endpoint) in [
            ("file:data", "https://photos.example"),
            ("gs://photos", "https://photos.example"),
            ("s3://photos", "photos.example"),
            ("s3://photos", "https://photos.example/s3"),
            ("s3://photos", "https://photos.example/?a=b"),
        ] {
            let problems = problems(&[(URL, storage), (ENDPOINT, endpoint)]);
            assert!(problems[0].contains("PUBLIC_ENDPOINT"), "{storage} {endpoint}");
        }
        let problems = problems(&[(URL, "s3://photos"), ("PHOTOFINISH_STORAGE_ADDRESSING", "host")]);
        assert!(problems[0].contains("auto, path, virtual"));
    }

    const HEIC: &str = "PHOTOFINISH_HEIC";

    /// The media types that are accepted with this setting of HEIC, and what `config` shows of it.
    fn accepted(setting: &[(&str, &str)]) -> (Vec<String>, String) {
        let config = config(setting).unwrap();
        let line = config.lines().into_iter().find(|(name, _)| name == HEIC);
        (config.settings.storage.media_types(), line.unwrap().1)
    }

    #[test]
    fn heic_switched_off_is_not_accepted() {
        assert_eq!(accepted(&[(HEIC, "off")]), (MEDIA_TYPES.map(str::to_owned).to_vec(), "off".to_owned()));
    }

    #[cfg(feature = "heic")]
    #[test]
    fn heic_is_accepted_where_it_is_built_in() {
        let (types, line) = accepted(&[]);
        assert_eq!(types[3..], ["image/heic", "image/heif"]);
        assert_eq!(line, "on");
        assert_eq!(accepted(&[(HEIC, "on")]).0, types);
    }

    #[cfg(not(feature = "heic"))]
    #[test]
    fn heic_is_not_accepted_where_it_is_not_built_in() {
        assert_eq!(accepted(&[]), accepted(&[(HEIC, "off")]));
        let problems = problems(&[(HEIC, "on")]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("feature heic"), "{problems:?}");
    }

    #[test]
    fn a_bucket_signs_for_a_week_at_most() {
        let week = LONGEST_TTL.as_secs();
        let given = |storage, seconds: u64| {
            let seconds = seconds.to_string();
            [
                (URL, String::from(storage)),
                ("PHOTOFINISH_UPLOAD_SECONDS", seconds.clone()),
                ("PHOTOFINISH_DOWNLOAD_SECONDS", seconds),
                ("PHOTOFINISH_SWEEP_HOURS", "1000".to_owned()),
            ]
        };
        assert!(config(&given("s3://photos", week)).is_ok());
        assert!(config(&given("file:data", week + 1)).is_ok());
        let problems = problems(&given("s3://photos", week + 1));
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("PHOTOFINISH_UPLOAD_SECONDS"), "{problems:?}");
        assert!(problems[1].contains("PHOTOFINISH_DOWNLOAD_SECONDS"), "{problems:?}");
    }

    #[test]
    fn a_public_endpoint_is_accepted() {
        let given = [
            (URL, "s3://photos"),
            (ENDPOINT, "https://photos.example"),
            ("PHOTOFINISH_STORAGE_ADDRESSING", "virtual"),
        ];
        let cloud = config(&given).unwrap().cloud;
        assert_eq!(cloud.public_endpoint.unwrap().as_str(), "https://photos.example/");
        assert_eq!(cloud.addressing, Addressing::Virtual);
    }

    #[test]
    fn cloud_variables_are_shown_without_secrets() {
        let lines = |url: &str, variables: &[(&str, &str)]| {
            config_with(&[(URL, url)], variables, &[]).unwrap().cloud_lines()
        };
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
        let shown = lines("s3://photos", &variables);
        assert!(!format!("{shown:?}").contains("hidden"), "{shown:?}");
        assert!(shown.contains(&("AWS_REGION".to_owned(), "eu-west-1".to_owned())));
        assert!(shown.contains(&("AWS_WEB_IDENTITY_TOKEN_FILE".to_owned(), "/var/token".to_owned())));
        assert_eq!(shown.len(), 9);
        let variables = [
            ("GOOGLE_APPLICATION_CREDENTIALS", "/keys/robot.json"),
            ("GOOGLE_APPLICATION_CREDENTIALS_JSON", "hidden"),
            ("GOOGLE_SERVICE_ACCOUNT_KEY", "hidden"),
        ];
        let values = lines("gs://photos", &variables).into_iter().map(|(_, value)| value);
        assert_eq!(values.collect::<Vec<_>>(), ["/keys/robot.json", "masked", "masked"]);
        assert!(lines("file:data", &variables).is_empty());
    }
}
