//! Which bucket of which cloud a storage URL names. Reads no environment and opens nothing.

use std::fmt;

use crate::blobs::object_ops::invalid_url;
use crate::traits::Result;

/// A supported cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudProvider {
    /// Amazon S3 and servers compatible with it.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl fmt::Display for CloudProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::S3 => "S3",
            Self::Gcs => "Google Cloud Storage",
            Self::Azure => "Azure Blob Storage",
        })
    }
}

/// A bucket, and the prefix of every object in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketLocation {
    /// The cloud that the bucket belongs to.
    pub provider: CloudProvider,
    /// The name of the bucket; Azure calls it container.
    pub bucket: String,
    /// Folders in the bucket, without a slash at either end; empty for none.
    pub prefix: String,
}

impl BucketLocation {
    /// Parses `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`; returns `None` for other schemes.
    ///
    /// # Errors
    /// `Invalid` for an invalid bucket name and for parts that such a URL must not have: credentials, a port, a query.
    /// The message does not repeat them, because they may contain a credential.
    pub fn parse(url: &str) -> Result<Option<Self>> {
        let Some((scheme, rest)) = url.split_once("://") else { return Ok(None) };
        let provider = match scheme {
            "s3" => CloudProvider::S3,
            "gs" => CloudProvider::Gcs,
            "az" => CloudProvider::Azure,
            _ => return Ok(None),
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if !is_valid_name(bucket) {
            return Err(invalid_url(
                &format!("{scheme}://.."),
                "a bucket's name must follow, and nothing else",
            ));
        }
        if !prefix.is_empty() && !prefix.split('/').all(is_valid_name) {
            let reason = "after the bucket only folders of letters, digits, `-`, `_` and `.` may follow";
            return Err(invalid_url(&format!("{scheme}://{bucket}/.."), reason));
        }
        Ok(Some(Self { provider, bucket: bucket.to_owned(), prefix: prefix.to_owned() }))
    }
}

fn is_valid_name(part: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(cloud: CloudProvider, bucket: &str, prefix: &str) -> Option<BucketLocation> {
        Some(BucketLocation { provider: cloud, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    #[test]
    fn a_url_names_a_bucket_and_folders() {
        assert_eq!(BucketLocation::parse("s3://photos").unwrap(), location(CloudProvider::S3, "photos", ""));
        assert_eq!(BucketLocation::parse("s3://photos/").unwrap(), location(CloudProvider::S3, "photos", ""));
        assert_eq!(
            BucketLocation::parse("gs://photos/2026/live/").unwrap(),
            location(CloudProvider::Gcs, "photos", "2026/live")
        );
        assert_eq!(
            BucketLocation::parse("az://photos/a_b.c").unwrap(),
            location(CloudProvider::Azure, "photos", "a_b.c")
        );
    }

    #[test]
    fn other_schemes_are_no_bucket() {
        for other in ["file:data", "file:///data", "data", "ftp://example", "s3:photos"] {
            assert_eq!(BucketLocation::parse(other).unwrap(), None, "{other}");
        }
    }

    #[test]
    fn an_invalid_bucket_url_is_refused_without_repeating_a_credential() {
        for wrong in [
            "s3://",
            "s3:///prefix",
            "s3://key:secret@photos",
            "s3://photos:9000/a",
            "s3://photos/../secret",
            "s3://photos//a",
            "s3://photos/a?token=secret",
            "s3://photos#secret",
        ] {
            let error = BucketLocation::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("storage url s3://") && !error.contains("secret"), "{wrong}: {error}");
        }
    }
}
