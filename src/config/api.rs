//! Settings of the API.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use photofinish_store::model::album::RetentionConfig;
use url::Url;

use super::parsers;

/// Settings of the API.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "API (roles all, serve)")]
pub struct ApiArguments {
    /// Base of links to galleries, invitations and downloads, and of presigned URLs of a local storage [default: http:// and the address of the API]
    #[arg(long, env = "PHOTOFINISH_PUBLIC_URL", value_name = "URL", value_parser = parsers::public_url)]
    pub public_url: Option<Url>,
    /// Face embeddings cached in memory, megabytes
    #[arg(long = "face-index-mb", env = "PHOTOFINISH_FACE_INDEX_MB", value_name = "MEGABYTES")]
    #[arg(default_value = "1024", value_parser = parsers::megabytes)]
    pub face_index_bytes: u64,
    /// GPU memory for the face embeddings of albums that are searched often, megabytes; 0 searches on the CPU alone [default: 4096 with CUDA, else 0]
    #[arg(long = "face-device-mb", env = "PHOTOFINISH_FACE_DEVICE_MB", value_name = "MEGABYTES")]
    #[arg(value_parser = parsers::megabytes_or_none)]
    pub face_device_bytes: Option<u64>,
    /// Largest selfie, megabytes
    #[arg(long = "max-selfie-mb", env = "PHOTOFINISH_MAX_SELFIE_MB", value_name = "MEGABYTES")]
    #[arg(default_value = "10", value_parser = parsers::megabytes)]
    pub max_probe_bytes: u64,
    /// Face confidence threshold of a new album, percent
    #[arg(long, env = "PHOTOFINISH_FACE_THRESHOLD", value_name = "CONFIDENCE", default_value = "50")]
    #[arg(value_parser = parsers::confidence)]
    pub face_threshold: f64,
    /// The same for an album that reads no bibs, percent
    #[arg(long, env = "PHOTOFINISH_FACE_THRESHOLD_WITHOUT_BIBS", value_name = "CONFIDENCE")]
    #[arg(default_value = "60", value_parser = parsers::confidence)]
    pub face_threshold_without_bibs: f64,
    /// Bib confidence threshold of a new album, percent
    #[arg(long, env = "PHOTOFINISH_TEXT_THRESHOLD", value_name = "CONFIDENCE", default_value = "0")]
    #[arg(value_parser = parsers::confidence)]
    pub text_threshold: f64,
    /// Lifetime of an upload URL, seconds
    #[arg(long = "upload-seconds", env = "PHOTOFINISH_UPLOAD_SECONDS", value_name = "SECONDS")]
    #[arg(default_value = "900", value_parser = parsers::seconds)]
    pub upload_ttl: Duration,
    /// Lifetime of a preview or thumbnail URL, seconds
    #[arg(long = "download-seconds", env = "PHOTOFINISH_DOWNLOAD_SECONDS", value_name = "SECONDS")]
    #[arg(default_value = "3600", value_parser = parsers::seconds)]
    pub download_ttl: Duration,
    /// Lifetime of a selfie's imageId, seconds
    #[arg(long = "probe-seconds", env = "PHOTOFINISH_PROBE_SECONDS", value_name = "SECONDS")]
    #[arg(default_value = "3600", value_parser = parsers::seconds)]
    pub probe_ttl: Duration,
    /// How long a request body may take, seconds
    #[arg(long = "body-seconds", env = "PHOTOFINISH_BODY_SECONDS", value_name = "SECONDS")]
    #[arg(default_value = "30", value_parser = parsers::seconds)]
    pub body_timeout: Duration,
    /// How long events are kept, days
    #[arg(long = "event-days", env = "PHOTOFINISH_EVENT_DAYS", value_name = "DAYS")]
    #[arg(default_value = "7", value_parser = parsers::event_days)]
    pub event_retention: Duration,
    /// For how long faces and photos of a new album are kept after its last photo was confirmed [default: for ever]
    #[arg(long = "retention-days", env = "PHOTOFINISH_RETENTION_DAYS", value_name = "DAYS", value_parser = parsers::retention)]
    pub retention: Option<RetentionConfig>,
    /// For how long those of any album are kept at most [default: as its settings say]
    #[arg(long, env = "PHOTOFINISH_RETENTION_MAX", value_name = "DAYS", value_parser = parsers::retention)]
    pub retention_max: Option<RetentionConfig>,
}

impl ApiArguments {
    /// The configured base of links and presigned URLs, or the address of the API; this machine where it listens on all addresses.
    pub fn public_url(&self, listen: SocketAddr) -> Url {
        let localhost: IpAddr =
            if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let host = if listen.ip().is_unspecified() { localhost } else { listen.ip() };
        let reachable = SocketAddr::new(host, listen.port());
        let default = || Url::parse(&format!("http://{reachable}")).expect("a socket address makes a URL");
        self.public_url.clone().unwrap_or_else(default)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use crate::config::tests::{config, problems};
    use crate::config::{Config, ForeignVariables};

    #[test]
    fn a_public_url_has_no_credentials_and_none_are_printed() {
        for wrong in [
            "https://user:hidden@photos.example",
            "https://hidden@photos.example",
            "https://:hidden@photos.example",
            "https://photos.example/?key=hidden",
            "https://photos.example/?hidden",
            "https://photos.example/#hidden",
            "https://user:hi#hidden@photos.example",
            "ftp://user:hidden@photos.example",
        ] {
            for name in ["PHOTOFINISH_PUBLIC_URL", "PHOTOFINISH_STORAGE_PUBLIC_ENDPOINT"] {
                let problems = problems(&[(name, wrong), ("PHOTOFINISH_STORAGE_URL", "s3://photos")]);
                assert_eq!(problems.len(), 1, "{problems:?}");
                assert!(problems[0].starts_with(name), "{problems:?}");
                let is_fragment = wrong.ends_with("/#hidden");
                assert!(is_fragment || !problems[0].contains("hidden"), "{problems:?}");
            }
        }
        let problems = problems(&[("PHOTOFINISH_PUBLIC_URL", "https://user:hidden@photos.example")]);
        assert!(problems[0].contains("without user name, password"), "{problems:?}");
        let config = config(&[("PHOTOFINISH_PUBLIC_URL", "https://photos.example/service")]).unwrap();
        assert_eq!(config.public_url.as_str(), "https://photos.example/service");
    }

    #[test]
    fn the_default_public_url_is_a_reachable_address() {
        let given = |listen, environment| {
            vec![("PHOTOFINISH_LISTEN", listen), ("PHOTOFINISH_ENVIRONMENT", environment)]
        };
        for (listen, url) in [("0.0.0.0:8080", "http://127.0.0.1:8080/"), ("[::]:81", "http://[::1]:81/")] {
            assert_eq!(config(&given(listen, "local")).unwrap().public_url.as_str(), url);
            let problems = problems(&given(listen, "production"));
            assert!(problems.len() == 1 && problems[0].contains("PUBLIC_URL"), "{problems:?}");
            let mut given = given(listen, "production");
            given.push(("PHOTOFINISH_PUBLIC_URL", "https://photos.example"));
            config(&given).unwrap();
        }
        config(&given("10.0.0.1:80", "production")).unwrap();
    }

    #[test]
    fn with_a_bucket_only_what_makes_links_needs_a_public_url() {
        let given = |environment| {
            [
                ("PHOTOFINISH_LISTEN", "0.0.0.0:8080"),
                ("PHOTOFINISH_ENVIRONMENT", environment),
                ("PHOTOFINISH_STORAGE_URL", "s3://photos"),
            ]
        };
        for environment in ["production", "sandbox"] {
            let problems = problems(&given(environment));
            assert!(problems.len() == 1 && problems[0].contains("PUBLIC_URL"), "{problems:?}");
            let texts = given(environment).map(|(name, text)| (name.to_owned(), OsString::from(text)));
            Config::new(texts.into(), ForeignVariables::default(), false).unwrap();
        }
        config(&given("local")).unwrap();
    }
}
