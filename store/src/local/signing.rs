//! Signatures of local URLs: HMAC-SHA256 over everything the request is bound to. Knows no files and no HTTP types.
//!
//! The signed text is one line per field. No field can hold a line break (keys are checked, content types refused),
//! so two different requests never sign the same text.

use std::collections::HashMap;
use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use time::OffsetDateTime;
use url::{Url, form_urlencoded};

use crate::object::ObjectKey;

/// Leave to put one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadGrant {
    key: ObjectKey,
    max_bytes: u64,
}

impl UploadGrant {
    /// The object.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The largest body, bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }
}

/// Leave to fetch one object.
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
    /// A parameter is missing, twice there or unreadable.
    #[error("the url is not one that this service signs")]
    Malformed,
    /// Something was changed, or another secret signed it.
    #[error("the signature does not match")]
    Wrong,
    /// Its time is over.
    #[error("the url has expired")]
    Expired,
    /// The request declares another content type than the URL.
    #[error("the content type is not the one the url is bound to")]
    ContentType,
}

#[derive(Clone, Copy)]
pub(super) enum Method {
    Put,
    Get,
}

/// What a URL is bound to.
pub(super) struct Terms<'a> {
    pub(super) method: Method,
    pub(super) key: &'a str,
    /// Unix seconds.
    pub(super) expires: i64,
    /// Content type and largest body of an upload.
    pub(super) bound: Option<(&'a str, u64)>,
}

/// A request as it came, before anything about it is known to be true.
#[derive(Clone, Copy)]
pub(super) struct Claim<'a> {
    /// The decoded path after `/storage/`.
    pub(super) key: &'a str,
    /// The raw query string.
    pub(super) query: &'a str,
    /// When it came.
    pub(super) at: OffsetDateTime,
}

pub(super) struct Signer {
    public_url: Url,
    secret: [u8; 32],
}

impl Signer {
    pub(super) fn new(public_url: Url, secret: [u8; 32]) -> Self {
        Self { public_url, secret }
    }

    /// `{public_url}/storage/{key}?expires=..[&type=..&max=..]&signature=..`
    pub(super) fn url(&self, terms: &Terms<'_>) -> Url {
        let mut url = self.public_url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/storage/{}", terms.key));
        let signature = hex::encode(self.mac(terms).finalize().into_bytes());
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("expires", &terms.expires.to_string());
            if let Some((content_type, max_bytes)) = terms.bound {
                query.append_pair("type", content_type).append_pair("max", &max_bytes.to_string());
            }
            query.append_pair("signature", &signature);
        }
        url
    }

    pub(super) fn verify_upload(
        &self,
        claim: Claim<'_>,
        content_type: Option<&str>,
    ) -> Result<UploadGrant, SignatureError> {
        let parameters = parameters(claim.query)?;
        let bound_type = parameters.get("type").ok_or(SignatureError::Malformed)?;
        let max_bytes = number(&parameters, "max")?;
        let key = self.verify(claim, &parameters, Some((bound_type, max_bytes)))?;
        if content_type != Some(bound_type) {
            return Err(SignatureError::ContentType);
        }
        Ok(UploadGrant { key, max_bytes })
    }

    pub(super) fn verify_download(&self, claim: Claim<'_>) -> Result<DownloadGrant, SignatureError> {
        let key = self.verify(claim, &parameters(claim.query)?, None)?;
        Ok(DownloadGrant { key })
    }

    /// The signature first, then the time: who did not get this URL from us learns nothing by it.
    fn verify(
        &self,
        claim: Claim<'_>,
        parameters: &HashMap<String, String>,
        bound: Option<(&str, u64)>,
    ) -> Result<ObjectKey, SignatureError> {
        let key = ObjectKey::parse(claim.key).ok_or(SignatureError::Malformed)?;
        let expires = number(parameters, "expires")?;
        let signature = parameters.get("signature").ok_or(SignatureError::Malformed)?;
        let signature = hex::decode(signature).map_err(|_| SignatureError::Malformed)?;
        let method = if bound.is_some() { Method::Put } else { Method::Get };
        let terms = Terms { method, key: key.as_str(), expires, bound };
        // Constant time.
        self.mac(&terms).verify_slice(&signature).map_err(|_| SignatureError::Wrong)?;
        if claim.at.unix_timestamp() > expires {
            return Err(SignatureError::Expired);
        }
        Ok(key)
    }

    fn mac(&self, terms: &Terms<'_>) -> Hmac<Sha256> {
        let method = match terms.method {
            Method::Put => "PUT",
            Method::Get => "GET",
        };
        let mut text = format!("photofinish-local-1\n{method}\n{}\n{}\n", terms.key, terms.expires);
        if let Some((content_type, max_bytes)) = terms.bound {
            write!(text, "{content_type}\n{max_bytes}\n").expect("writing to a string cannot fail");
        }
        let mut mac = Hmac::new_from_slice(&self.secret).expect("hmac takes keys of any length");
        mac.update(text.as_bytes());
        mac
    }
}

fn parameters(query: &str) -> Result<HashMap<String, String>, SignatureError> {
    let mut parameters = HashMap::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let repeated = parameters.insert(name.into_owned(), value.into_owned()).is_some();
        if repeated {
            return Err(SignatureError::Malformed);
        }
    }
    Ok(parameters)
}

fn number<T: std::str::FromStr>(
    parameters: &HashMap<String, String>,
    name: &str,
) -> Result<T, SignatureError> {
    parameters.get(name).and_then(|value| value.parse().ok()).ok_or(SignatureError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "o/1/a/2/p/3/original";
    const NOW: i64 = 1_800_000_000;

    fn signer() -> Signer {
        Signer::new(Url::parse("http://127.0.0.1:8080").unwrap(), [7; 32])
    }

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap()
    }

    fn claim(query: &str) -> Claim<'_> {
        Claim { key: KEY, query, at: at(NOW) }
    }

    fn upload_query() -> String {
        let terms =
            Terms { method: Method::Put, key: KEY, expires: NOW + 900, bound: Some(("image/jpeg", 1000)) };
        let url = signer().url(&terms);
        assert_eq!(url.path(), format!("/storage/{KEY}"));
        url.query().unwrap().to_owned()
    }

    fn upload(key: &str, query: &str, content_type: Option<&str>) -> Result<UploadGrant, SignatureError> {
        signer().verify_upload(Claim { key, query, at: at(NOW) }, content_type)
    }

    #[test]
    fn a_signed_upload_is_granted_with_its_limit() {
        let grant = upload(KEY, &upload_query(), Some("image/jpeg")).unwrap();
        assert_eq!((grant.key().as_str(), grant.max_bytes()), (KEY, 1000));
    }

    #[test]
    fn every_change_of_a_signed_upload_is_refused() {
        let query = upload_query();
        let wrong = Err(SignatureError::Wrong);
        assert_eq!(upload("o/1/a/2/p/4/original", &query, Some("image/jpeg")), wrong);
        assert_eq!(upload(KEY, &query.replace("max=1000", "max=1001"), Some("image/jpeg")), wrong);
        assert_eq!(upload(KEY, &query.replace("jpeg", "png"), Some("image/png")), wrong);
        let later = query.replace(&(NOW + 900).to_string(), &(NOW + 901).to_string());
        assert_eq!(upload(KEY, &later, Some("image/jpeg")), wrong);
        let other = Signer::new(Url::parse("http://127.0.0.1:8080").unwrap(), [8; 32]);
        assert_eq!(other.verify_upload(claim(&query), Some("image/jpeg")), wrong);
    }

    #[test]
    fn another_content_type_than_the_bound_one_is_refused() {
        let query = upload_query();
        assert_eq!(upload(KEY, &query, Some("text/html")), Err(SignatureError::ContentType));
        assert_eq!(upload(KEY, &query, None), Err(SignatureError::ContentType));
    }

    #[test]
    fn a_url_holds_to_its_last_second_and_not_longer() {
        let query = upload_query();
        let at_second = |seconds| {
            let claim = Claim { at: at(seconds), ..claim(&query) };
            signer().verify_upload(claim, Some("image/jpeg")).map(drop)
        };
        assert_eq!(at_second(NOW + 900), Ok(()));
        assert_eq!(at_second(NOW + 901), Err(SignatureError::Expired));
    }

    #[test]
    fn an_upload_url_does_not_download_and_the_other_way_round() {
        assert_eq!(signer().verify_download(claim(&upload_query())), Err(SignatureError::Wrong));
        let terms = Terms { method: Method::Get, key: KEY, expires: NOW + 900, bound: None };
        let query = signer().url(&terms).query().unwrap().to_owned();
        assert!(signer().verify_download(claim(&query)).is_ok());
        assert_eq!(upload(KEY, &query, Some("image/jpeg")), Err(SignatureError::Malformed));
        let dressed_up = format!("{query}&type=image/jpeg&max=1000");
        assert_eq!(upload(KEY, &dressed_up, Some("image/jpeg")), Err(SignatureError::Wrong));
    }

    #[test]
    fn missing_repeated_and_unreadable_parameters_are_refused() {
        let query = upload_query();
        let malformed = Err(SignatureError::Malformed);
        assert_eq!(upload(KEY, "", Some("image/jpeg")), malformed);
        assert_eq!(upload(KEY, &format!("{query}&max=5"), Some("image/jpeg")), malformed);
        assert_eq!(upload(KEY, &query.replace("max=1000", "max=many"), Some("image/jpeg")), malformed);
        assert_eq!(upload("o/../secret", &query, Some("image/jpeg")), malformed);
    }

    #[test]
    fn a_public_url_with_a_path_keeps_it() {
        let signer = Signer::new(Url::parse("https://photos.example/service/").unwrap(), [7; 32]);
        let terms = Terms { method: Method::Get, key: KEY, expires: NOW, bound: None };
        assert!(signer.url(&terms).as_str().starts_with("https://photos.example/service/storage/o/1/"));
    }
}
