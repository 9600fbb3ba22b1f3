//! Builds the clients of a cloud from the operator's settings. Accesses neither network nor environment.
//!
//! S3 is tested against a server that verifies signatures. Google Cloud Storage and Azure compile and share all code
//! outside this file; they have not been run yet.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::signer::Signer;
use rustls::crypto::CryptoProvider;
use url::Url;

use crate::blobs::cloud::location::{BucketLocation, CloudProvider};
use crate::blobs::cloud::timeouts::Timeouts;
use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// The settings of a bucket beyond its URL.
#[derive(Clone, Default)]
pub struct CloudSettings {
    /// The cloud's own variables as its tools read them: `AWS_*`, `GOOGLE_*`, `AZURE_*`; others are ignored.
    pub variables: Vec<(String, String)>,
    /// How presigned URLs begin, if browsers reach S3 at another address than this service.
    pub public_endpoint: Option<Url>,
    /// Where S3's URLs contain the bucket.
    pub addressing: Addressing,
    /// Time limits of the calls.
    pub timeouts: Timeouts,
}

/// Shows only the names of the variables, because their values are secrets.
impl fmt::Debug for CloudSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.variables.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("CloudSettings")
            .field("variables", &names)
            .field("public_endpoint", &self.public_endpoint.as_ref().map(Url::as_str))
            .field("addressing", &self.addressing)
            .field("timeouts", &self.timeouts)
            .finish()
    }
}

/// Where S3's URLs contain the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// In the host at Amazon, unless the name contains dots, which no certificate matches; in the path at other
    /// endpoints.
    #[default]
    Auto,
    /// `https://endpoint/bucket/key`.
    Path,
    /// `https://bucket.endpoint/key`.
    Virtual,
}

/// The clients of one bucket.
pub(crate) struct BucketClients {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) signer: Arc<dyn Signer>,
    /// Whether a signature can cover headers and further parameters; Azure's covers neither.
    pub(crate) binds_parameters: bool,
}

/// Builds the clients of a bucket.
///
/// # Errors
/// `Invalid` if the settings do not fit the cloud; the message or the cause says which.
pub(crate) fn build_clients(location: &BucketLocation, settings: &CloudSettings) -> Result<BucketClients> {
    install_crypto_provider();
    if settings.public_endpoint.is_some() && location.provider != CloudProvider::S3 {
        return Err(invalid_settings(location, "a public endpoint is for s3:// alone"));
    }
    match location.provider {
        CloudProvider::S3 => build_s3(location, settings),
        CloudProvider::Gcs => {
            build_gcs(location, settings).map_err(|cause| invalid_settings(location, "").with_source(cause))
        }
        CloudProvider::Azure => {
            build_azure(location, settings).map_err(|cause| invalid_settings(location, "").with_source(cause))
        }
    }
}

/// Installs the cryptography of the HTTP client, which is one for the whole process, unless another part of the process
/// has installed one already.
fn install_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

fn build_s3(location: &BucketLocation, settings: &CloudSettings) -> Result<BucketClients> {
    let mut builder = AmazonS3Builder::new()
        .with_client_options(settings.timeouts.client_options())
        .with_retry(settings.timeouts.retry_config());
    for (key, value) in known_variables::<AmazonS3ConfigKey>(settings, "AWS_") {
        builder = builder.with_config(key, value);
    }
    let builder = builder.with_bucket_name(&location.bucket);
    let configured = |key| builder.get_config_value(&key);
    let endpoint =
        configured(AmazonS3ConfigKey::S3Endpoint).or_else(|| configured(AmazonS3ConfigKey::Endpoint));
    let endpoint = endpoint.map(|text| parse_endpoint(location, &text)).transpose()?;
    let bucket = S3Bucket { location, addressing: settings.addressing };
    let build = |builder: AmazonS3Builder| {
        builder.build().map_err(|cause| invalid_settings(location, "").with_source(cause))
    };
    let objects = Arc::new(build(bucket.with_endpoint(builder.clone(), endpoint)?)?);
    let signer: Arc<dyn Signer> = match &settings.public_endpoint {
        None => Arc::clone(&objects) as _,
        Some(public) => {
            // The same credentials, so that they are fetched and renewed once.
            let builder = builder.with_credentials(Arc::clone(objects.credentials()));
            Arc::new(build(bucket.with_endpoint(builder, Some(public.clone()))?)?)
        }
    };
    Ok(BucketClients { objects, signer, binds_parameters: true })
}

/// Parses the endpoint. `minio:9000`, the most common mistake, is also a URL, with the scheme `minio`.
fn parse_endpoint(location: &BucketLocation, endpoint: &str) -> Result<Url> {
    let url = endpoint.parse::<Url>().ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some());
    url.ok_or_else(|| invalid_settings(location, "AWS_ENDPOINT_URL must begin with http:// or https://"))
}

/// A bucket and where URLs contain its name.
#[derive(Clone, Copy)]
struct S3Bucket<'a> {
    location: &'a BucketLocation,
    addressing: Addressing,
}

impl S3Bucket<'_> {
    /// Sets the endpoint of a builder; Amazon's own if there is none. Plain HTTP is permitted if the operator wrote it.
    fn with_endpoint(self, builder: AmazonS3Builder, endpoint: Option<Url>) -> Result<AmazonS3Builder> {
        let bucket = &self.location.bucket;
        let is_in_host = match self.addressing {
            Addressing::Auto => endpoint.is_none() && !bucket.contains('.'),
            Addressing::Path => false,
            Addressing::Virtual => true,
        };
        let builder = builder.with_virtual_hosted_style_request(is_in_host);
        let Some(mut endpoint) = endpoint else { return Ok(builder) };
        if is_in_host {
            // The builder does not add the bucket to such an endpoint.
            let host = endpoint.host_str().map(|host| format!("{bucket}.{host}"));
            endpoint.set_host(host.as_deref()).map_err(|cause| {
                invalid_settings(self.location, "the endpoint's host takes no bucket").with_source(cause)
            })?;
        }
        let builder = builder.with_allow_http(endpoint.scheme() == "http");
        Ok(builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint.as_str().trim_end_matches('/')))
    }
}

fn build_gcs(location: &BucketLocation, settings: &CloudSettings) -> object_store::Result<BucketClients> {
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_client_options(settings.timeouts.client_options())
        .with_retry(settings.timeouts.retry_config());
    for (key, value) in known_variables::<GoogleConfigKey>(settings, "GOOGLE_") {
        builder = builder.with_config(key, value);
    }
    let objects = Arc::new(builder.with_bucket_name(&location.bucket).build()?);
    Ok(BucketClients { signer: Arc::clone(&objects) as _, objects, binds_parameters: true })
}

fn build_azure(location: &BucketLocation, settings: &CloudSettings) -> object_store::Result<BucketClients> {
    let mut builder = MicrosoftAzureBuilder::new()
        .with_client_options(settings.timeouts.client_options())
        .with_retry(settings.timeouts.retry_config());
    for (key, value) in known_variables::<AzureConfigKey>(settings, "AZURE_") {
        builder = builder.with_config(key, value);
    }
    let objects = Arc::new(builder.with_container_name(&location.bucket).build()?);
    Ok(BucketClients { signer: Arc::clone(&objects) as _, objects, binds_parameters: false })
}

/// Returns the variables that the builder of a cloud knows, selected as its own `from_env` does.
fn known_variables<K: FromStr>(settings: &CloudSettings, prefix: &str) -> Vec<(K, String)> {
    let variables = settings.variables.iter().filter(|(name, _)| name.starts_with(prefix));
    variables
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value.clone())))
        .collect()
}

fn invalid_settings(location: &BucketLocation, reason: &str) -> StoreError {
    let BucketLocation { provider, bucket, .. } = location;
    let separator = if reason.is_empty() { "" } else { ": " };
    let what = format!("settings of bucket {bucket} in {provider}{separator}{reason}");
    StoreError::new(StoreErrorKind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::path::Path;
    use object_store::signer::Method;

    use super::*;

    const SECRET: &str = "very-secret";

    fn settings(more: &[(&str, &str)]) -> CloudSettings {
        let keys =
            [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_REGION", "eu-west-1")];
        let variables = keys.iter().chain(more).map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        CloudSettings { variables, ..CloudSettings::default() }
    }

    async fn presigned_url(bucket: &str, settings: &CloudSettings) -> Url {
        let location = BucketLocation::parse(&format!("s3://{bucket}")).unwrap().unwrap();
        let clients = build_clients(&location, settings).unwrap();
        let ttl = Duration::from_secs(60);
        clients.signer.signed_url(Method::GET, &Path::from("a/b"), ttl).await.unwrap()
    }

    async fn presigned_address(bucket: &str, settings: &CloudSettings) -> String {
        let mut url = presigned_url(bucket, settings).await;
        url.set_query(None);
        url.into()
    }

    #[tokio::test]
    async fn amazon_has_the_bucket_in_the_host_and_others_in_the_path() {
        assert_eq!(
            presigned_address("photos", &settings(&[])).await,
            "https://photos.s3.eu-west-1.amazonaws.com/a/b"
        );
        assert_eq!(
            presigned_address("my.photos", &settings(&[])).await,
            "https://s3.eu-west-1.amazonaws.com/my.photos/a/b"
        );
        let own = settings(&[("AWS_ENDPOINT_URL", "http://minio:9000")]);
        assert_eq!(presigned_address("photos", &own).await, "http://minio:9000/photos/a/b");
        let both = settings(&[("AWS_ENDPOINT_URL_S3", "http://s3/"), ("AWS_ENDPOINT_URL", "http://other")]);
        assert_eq!(presigned_address("photos", &both).await, "http://s3/photos/a/b");
    }

    #[tokio::test]
    async fn the_configured_addressing_is_used() {
        let mut own = settings(&[("AWS_ENDPOINT_URL", "http://s3.example:9000")]);
        own.addressing = Addressing::Virtual;
        assert_eq!(presigned_address("photos", &own).await, "http://photos.s3.example:9000/a/b");
        let amazon = CloudSettings { addressing: Addressing::Path, ..settings(&[]) };
        assert_eq!(
            presigned_address("photos", &amazon).await,
            "https://s3.eu-west-1.amazonaws.com/photos/a/b"
        );
    }

    #[tokio::test]
    async fn presigned_urls_begin_with_the_public_endpoint() {
        let mut own = settings(&[("AWS_ENDPOINT_URL", "http://minio:9000")]);
        own.public_endpoint = Some("https://photos.example".parse().unwrap());
        assert_eq!(presigned_address("photos", &own).await, "https://photos.example/photos/a/b");
        own.addressing = Addressing::Virtual;
        assert_eq!(presigned_address("photos", &own).await, "https://photos.photos.example/a/b");
    }

    #[tokio::test]
    async fn a_session_token_is_part_of_what_is_signed() {
        let url = presigned_url("photos", &settings(&[("AWS_SESSION_TOKEN", "passing")])).await;
        assert!(url.query().unwrap().contains("X-Amz-Security-Token=passing"), "{url}");
    }

    #[test]
    fn invalid_settings_are_refused_with_a_reason() {
        let location = |url: &str| BucketLocation::parse(url).unwrap().unwrap();
        let refused = |url: &str, settings: &CloudSettings| {
            let error = build_clients(&location(url), settings).err().unwrap();
            assert_eq!(error.kind, StoreErrorKind::Invalid);
            error.to_string()
        };
        let error = refused("s3://photos", &settings(&[("AWS_ENDPOINT_URL", "minio:9000")]));
        assert!(error.contains("AWS_ENDPOINT_URL"), "{error}");
        let mut public = settings(&[]);
        public.public_endpoint = Some("https://photos.example".parse().unwrap());
        assert!(refused("gs://photos", &public).contains("s3://"));
        assert!(refused("az://photos", &settings(&[])).contains("photos"));
        let half = CloudSettings {
            variables: vec![("AWS_ACCESS_KEY_ID".to_owned(), "key".to_owned())],
            ..CloudSettings::default()
        };
        refused("s3://photos", &half);
    }

    #[test]
    fn debug_output_contains_no_secrets() {
        let text = format!("{:?}", settings(&[]));
        assert!(text.contains("AWS_SECRET_ACCESS_KEY") && !text.contains(SECRET), "{text}");
    }

    #[test]
    fn the_other_clouds_are_built_from_their_own_variables() {
        let azure = CloudSettings {
            variables: vec![
                ("AZURE_STORAGE_ACCOUNT_NAME".to_owned(), "account".to_owned()),
                ("AZURE_STORAGE_ACCOUNT_KEY".to_owned(), "a2V5".to_owned()),
            ],
            ..CloudSettings::default()
        };
        assert!(
            !build_clients(&BucketLocation::parse("az://photos").unwrap().unwrap(), &azure)
                .unwrap()
                .binds_parameters
        );
        let gcs = CloudSettings {
            variables: vec![("GOOGLE_SKIP_SIGNATURE".to_owned(), "true".to_owned())],
            ..CloudSettings::default()
        };
        assert!(
            build_clients(&BucketLocation::parse("gs://photos").unwrap().unwrap(), &gcs)
                .unwrap()
                .binds_parameters
        );
    }
}
