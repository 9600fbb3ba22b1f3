//! Whether pages may upload to a bucket and show its pictures: a bucket answers pages of another host only if its CORS
//! configuration says so.

use std::time::Duration;

use photofinish_store::Store;
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::traits::UploadConditions;
use serde_json::json;
use ureq::http::header::{
    ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
};
use ureq::http::{HeaderMap, Request};
use url::Url;
use uuid::Uuid;

/// How long a bucket may take to answer.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// What pages do with a bucket.
const METHODS: [&str; 2] = ["PUT", "GET"];

/// Asks the bucket as browsers do, with a preflight request for each method; says what came of it.
pub async fn describe(store: &Store, public_url: &Url) -> String {
    let nobody = (OrganizationId(Uuid::nil()), AlbumId(Uuid::nil()), PhotoId(Uuid::nil()));
    let key = ObjectKey::photo(nobody.0, nobody.1, nobody.2, ObjectRole::Original);
    let conditions =
        UploadConditions { content_type: "image/jpeg", max_bytes: 1, ttl: Duration::from_secs(60) };
    let url = match store.blobs.upload_url(&key, conditions).await {
        Ok(url) => url,
        Err(error) => return format!("not checked: {error}"),
    };
    let origin = public_url.origin().ascii_serialization();
    let asked = origin.clone();
    let answers = tokio::task::spawn_blocking(move || {
        METHODS.map(|method| ask(&url, &asked, method).map(|headers| permits(&headers, &asked, method)))
    });
    match answers.await {
        Ok([Ok(true), Ok(true)]) => format!("the bucket answers pages of {origin}"),
        Ok([Err(error), _] | [_, Err(error)]) => format!("not checked: {error}"),
        Ok(_) => format!(
            "the bucket does not answer pages of {origin}: the console can neither upload to it nor show its pictures. \
             Give it this CORS configuration: {}",
            configuration(&origin)
        ),
        Err(error) => format!("not checked: {error}"),
    }
}

fn ask(url: &Url, origin: &str, method: &str) -> Result<HeaderMap, ureq::Error> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(TIME_LIMIT))
        .build()
        .into();
    let request = Request::builder()
        .method("OPTIONS")
        .uri(url.as_str())
        .header(ORIGIN, origin)
        .header(ACCESS_CONTROL_REQUEST_METHOD, method)
        .header(ACCESS_CONTROL_REQUEST_HEADERS, "content-type")
        .body(())?;
    Ok(agent.run(request)?.headers().clone())
}

/// Whether the answer to a preflight request permits a method to pages of this origin.
fn permits(answer: &HeaderMap, origin: &str, method: &str) -> bool {
    let text = |name| answer.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let allowed = text(ACCESS_CONTROL_ALLOW_ORIGIN);
    let mut methods = text(ACCESS_CONTROL_ALLOW_METHODS).split(',').map(str::trim);
    (allowed == "*" || allowed == origin)
        && methods.any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(method))
}

/// In the form in which S3 takes it.
fn configuration(origin: &str) -> String {
    let rule = json!({
        "AllowedOrigins": [origin],
        "AllowedMethods": METHODS,
        "AllowedHeaders": ["content-type"],
        "MaxAgeSeconds": 3600,
    });
    json!({ "CORSRules": [rule] }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preflight_is_read_as_browsers_read_it() {
        let answer = |origin: &str, methods: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.parse().unwrap());
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods.parse().unwrap());
            headers
        };
        let page = "https://photos.example";
        assert!(permits(&answer("*", "GET, PUT"), page, "PUT"));
        assert!(permits(&answer(page, "put"), page, "PUT"));
        assert!(!permits(&answer(page, "GET"), page, "PUT"));
        assert!(!permits(&answer("https://other.example", "PUT"), page, "PUT"));
        assert!(!permits(&HeaderMap::new(), page, "GET"));
    }
}
