//! Signatures of local URLs: HMAC-SHA256 over everything that a request is bound to. Knows no files and no HTTP types.
//!
//! The signed text has one line per field. No field can contain a line break (keys are checked, such content types are
//! refused), so two different requests never have the same signed text.

use std::collections::HashMap;
use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use time::OffsetDateTime;
use url::{Url, form_urlencoded};

use crate::model::object_key::ObjectKey;

/// Permission to upload one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadGrant {
    key: ObjectKey,
    max_bytes: u64,
    expires: i64,
}

impl UploadGrant {
    /// The object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The size limit of the body in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// The last second in which the URL is valid, as Unix time.
    pub(crate) fn expires(&self) -> i64 {
        self.expires
    }
}

/// Permission to download one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadGrant {
    key: ObjectKey,
}

impl DownloadGrant {
    /// The object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }
}

/// Why a signed URL is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A parameter is missing, repeated, unreadable, additional, in another place or spelled in another way.
    #[error("the url is not one that this service signs")]
    Malformed,
    /// The URL was changed, or signed with another secret.
    #[error("the signature does not match")]
    Wrong,
    /// The URL has expired.
    #[error("the url has expired")]
    Expired,
    /// The request declares a different content type than the URL.
    #[error("the content type is not the one the url is bound to")]
    ContentType,
}

#[derive(Clone, Copy)]
pub(crate) enum SignedMethod {
    Put,
    Get,
}

/// What an upload is bound to.
#[derive(Clone, Copy)]
pub(crate) struct UploadLimits<'a> {
    pub(crate) content_type: &'a str,
    pub(crate) max_bytes: u64,
}

/// What a URL is bound to.
pub(crate) struct SignedFields<'a> {
    pub(crate) method: SignedMethod,
    pub(crate) key: &'a str,
    /// Unix time in seconds.
    pub(crate) expires: i64,
    /// Set for uploads.
    pub(crate) upload_limits: Option<UploadLimits<'a>>,
}

/// A request whose signature has not been checked.
#[derive(Clone, Copy)]
pub(crate) struct UnverifiedRequest<'a> {
    /// The decoded path after `/storage/`.
    pub(crate) key: &'a str,
    /// The raw query string.
    pub(crate) query: &'a str,
    pub(crate) received_at: OffsetDateTime,
}

/// What the signature of a URL confirms.
struct VerifiedUrl {
    key: ObjectKey,
    expires: i64,
}

/// Signs and verifies local URLs with one secret.
pub(crate) struct UrlSigner {
    public_url: Url,
    secret: [u8; 32],
}

impl UrlSigner {
    pub(crate) fn new(public_url: Url, secret: [u8; 32]) -> Self {
        Self { public_url, secret }
    }

    /// Returns `{public_url}/storage/{key}?expires=..[&type=..&max=..]&signature=..`
    pub(crate) fn sign_url(&self, fields: &SignedFields<'_>) -> Url {
        let mut url = self.public_url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/storage/{}", fields.key));
        let signature = self.compute_mac(fields).finalize().into_bytes();
        url.set_query(Some(&canonical_query(fields, &signature)));
        url
    }

    pub(crate) fn verify_upload(
        &self,
        request: UnverifiedRequest<'_>,
        content_type: Option<&str>,
    ) -> Result<UploadGrant, SignatureError> {
        let parameters = parse_query(request.query)?;
        let bound_type = parameters.get("type").ok_or(SignatureError::Malformed)?;
        let max_bytes = parse_number(&parameters, "max")?;
        let limits = UploadLimits { content_type: bound_type, max_bytes };
        let VerifiedUrl { key, expires } = self.verify(request, &parameters, Some(limits))?;
        if content_type != Some(bound_type) {
            return Err(SignatureError::ContentType);
        }
        Ok(UploadGrant { key, max_bytes, expires })
    }

    pub(crate) fn verify_download(
        &self,
        request: UnverifiedRequest<'_>,
    ) -> Result<DownloadGrant, SignatureError> {
        let VerifiedUrl { key, .. } = self.verify(request, &parse_query(request.query)?, None)?;
        Ok(DownloadGrant { key })
    }

    /// Checks the signature, then the spelling, then the time, so that a forged URL reveals nothing about expiry.
    fn verify(
        &self,
        request: UnverifiedRequest<'_>,
        parameters: &HashMap<String, String>,
        upload_limits: Option<UploadLimits<'_>>,
    ) -> Result<VerifiedUrl, SignatureError> {
        let key = ObjectKey::parse(request.key).ok_or(SignatureError::Malformed)?;
        let expires = parse_number(parameters, "expires")?;
        let signature = parameters.get("signature").ok_or(SignatureError::Malformed)?;
        let signature = hex::decode(signature).map_err(|_| SignatureError::Malformed)?;
        let method = if upload_limits.is_some() { SignedMethod::Put } else { SignedMethod::Get };
        let fields = SignedFields { method, key: key.as_str(), expires, upload_limits };
        // Takes constant time.
        self.compute_mac(&fields).verify_slice(&signature).map_err(|_| SignatureError::Wrong)?;
        // One URL has one spelling: caches, logs and limits in front of the service see as many URLs as were signed.
        if canonical_query(&fields, &signature) != request.query {
            return Err(SignatureError::Malformed);
        }
        if request.received_at.unix_timestamp() > expires {
            return Err(SignatureError::Expired);
        }
        Ok(VerifiedUrl { key, expires })
    }

    fn compute_mac(&self, fields: &SignedFields<'_>) -> Hmac<Sha256> {
        let method = match fields.method {
            SignedMethod::Put => "PUT",
            SignedMethod::Get => "GET",
        };
        let mut text = format!("photofinish-local-1\n{method}\n{}\n{}\n", fields.key, fields.expires);
        if let Some(UploadLimits { content_type, max_bytes }) = fields.upload_limits {
            write!(text, "{content_type}\n{max_bytes}\n").expect("writing to a string cannot fail");
        }
        let mut mac = Hmac::new_from_slice(&self.secret).expect("hmac takes keys of any length");
        mac.update(text.as_bytes());
        mac
    }
}

/// Returns the only query string with which a URL is accepted: these parameters in this order, in this spelling.
fn canonical_query(fields: &SignedFields<'_>, signature: &[u8]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("expires", &fields.expires.to_string());
    if let Some(UploadLimits { content_type, max_bytes }) = fields.upload_limits {
        query.append_pair("type", content_type).append_pair("max", &max_bytes.to_string());
    }
    query.append_pair("signature", &hex::encode(signature));
    query.finish()
}

fn parse_query(query: &str) -> Result<HashMap<String, String>, SignatureError> {
    let mut parameters = HashMap::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let is_repeated = parameters.insert(name.into_owned(), value.into_owned()).is_some();
        if is_repeated {
            return Err(SignatureError::Malformed);
        }
    }
    Ok(parameters)
}

fn parse_number<T: std::str::FromStr>(
    parameters: &HashMap<String, String>,
    name: &str,
) -> Result<T, SignatureError> {
    parameters.get(name).and_then(|value| value.parse().ok()).ok_or(SignatureError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::other_spellings;

    const KEY: &str = "o/1/a/2/p/3/original";
    const NOW: i64 = 1_800_000_000;

    fn signer() -> UrlSigner {
        UrlSigner::new(Url::parse("http://127.0.0.1:8080").unwrap(), [7; 32])
    }

    fn timestamp(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap()
    }

    fn unverified_request(query: &str) -> UnverifiedRequest<'_> {
        UnverifiedRequest { key: KEY, query, received_at: timestamp(NOW) }
    }

    fn upload_query() -> String {
        let fields = SignedFields {
            method: SignedMethod::Put,
            key: KEY,
            expires: NOW + 900,
            upload_limits: Some(UploadLimits { content_type: "image/jpeg", max_bytes: 1000 }),
        };
        let url = signer().sign_url(&fields);
        assert_eq!(url.path(), format!("/storage/{KEY}"));
        url.query().unwrap().to_owned()
    }

    fn verify_upload(
        key: &str,
        query: &str,
        content_type: Option<&str>,
    ) -> Result<UploadGrant, SignatureError> {
        signer().verify_upload(UnverifiedRequest { key, query, received_at: timestamp(NOW) }, content_type)
    }

    #[test]
    fn a_signed_upload_is_granted_with_its_limit() {
        let grant = verify_upload(KEY, &upload_query(), Some("image/jpeg")).unwrap();
        assert_eq!((grant.key().as_str(), grant.max_bytes()), (KEY, 1000));
    }

    #[test]
    fn every_change_of_a_signed_upload_is_refused() {
        let query = upload_query();
        let wrong = Err(SignatureError::Wrong);
        assert_eq!(verify_upload("o/1/a/2/p/4/original", &query, Some("image/jpeg")), wrong);
        assert_eq!(verify_upload(KEY, &query.replace("max=1000", "max=1001"), Some("image/jpeg")), wrong);
        assert_eq!(verify_upload(KEY, &query.replace("jpeg", "png"), Some("image/png")), wrong);
        let later = query.replace(&(NOW + 900).to_string(), &(NOW + 901).to_string());
        assert_eq!(verify_upload(KEY, &later, Some("image/jpeg")), wrong);
        let other = UrlSigner::new(Url::parse("http://127.0.0.1:8080").unwrap(), [8; 32]);
        assert_eq!(other.verify_upload(unverified_request(&query), Some("image/jpeg")), wrong);
    }

    #[test]
    fn another_content_type_than_the_bound_one_is_refused() {
        let query = upload_query();
        assert_eq!(verify_upload(KEY, &query, Some("text/html")), Err(SignatureError::ContentType));
        assert_eq!(verify_upload(KEY, &query, None), Err(SignatureError::ContentType));
    }

    #[test]
    fn a_url_is_valid_until_its_last_second_and_no_longer() {
        let query = upload_query();
        let at_second = |seconds| {
            let claim = UnverifiedRequest { received_at: timestamp(seconds), ..unverified_request(&query) };
            signer().verify_upload(claim, Some("image/jpeg")).map(drop)
        };
        assert_eq!(at_second(NOW + 900), Ok(()));
        assert_eq!(at_second(NOW + 901), Err(SignatureError::Expired));
    }

    #[test]
    fn an_upload_url_does_not_download_and_the_other_way_round() {
        assert_eq!(signer().verify_download(unverified_request(&upload_query())), Err(SignatureError::Wrong));
        let fields =
            SignedFields { method: SignedMethod::Get, key: KEY, expires: NOW + 900, upload_limits: None };
        let query = signer().sign_url(&fields).query().unwrap().to_owned();
        assert!(signer().verify_download(unverified_request(&query)).is_ok());
        assert_eq!(verify_upload(KEY, &query, Some("image/jpeg")), Err(SignatureError::Malformed));
        let with_upload_parameters = format!("{query}&type=image/jpeg&max=1000");
        assert_eq!(
            verify_upload(KEY, &with_upload_parameters, Some("image/jpeg")),
            Err(SignatureError::Wrong)
        );
    }

    #[test]
    fn missing_repeated_and_unreadable_parameters_are_refused() {
        let query = upload_query();
        let malformed = Err(SignatureError::Malformed);
        assert_eq!(verify_upload(KEY, "", Some("image/jpeg")), malformed);
        assert_eq!(verify_upload(KEY, &format!("{query}&max=5"), Some("image/jpeg")), malformed);
        assert_eq!(verify_upload(KEY, &query.replace("max=1000", "max=many"), Some("image/jpeg")), malformed);
        assert_eq!(verify_upload("o/../secret", &query, Some("image/jpeg")), malformed);
    }

    #[test]
    fn every_other_spelling_of_a_signed_query_is_refused() {
        let query = upload_query();
        for other in other_spellings(&query) {
            assert_eq!(
                verify_upload(KEY, &other, Some("image/jpeg")),
                Err(SignatureError::Malformed),
                "{other}"
            );
        }
        assert!(verify_upload(KEY, &query, Some("image/jpeg")).is_ok());
    }

    #[test]
    fn content_types_of_every_spelling_are_granted_as_they_were_signed() {
        for content_type in ["image/jpeg; charset=\"a b\"", "image/*", "Image/JPEG;q=1+2%3"] {
            let limits = Some(UploadLimits { content_type, max_bytes: 5 });
            let fields =
                SignedFields { method: SignedMethod::Put, key: KEY, expires: NOW, upload_limits: limits };
            let query = signer().sign_url(&fields).query().unwrap().to_owned();
            assert!(verify_upload(KEY, &query, Some(content_type)).is_ok(), "{query}");
        }
    }

    #[test]
    fn a_public_url_with_a_path_keeps_it() {
        let signer = UrlSigner::new(Url::parse("https://photos.example/service/").unwrap(), [7; 32]);
        let fields = SignedFields { method: SignedMethod::Get, key: KEY, expires: NOW, upload_limits: None };
        assert!(signer.sign_url(&fields).as_str().starts_with("https://photos.example/service/storage/o/1/"));
    }
}
