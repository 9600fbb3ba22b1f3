//! Whether pages may upload to a bucket and show its pictures: a bucket answers pages of another host only if its CORS
//! configuration says so.

use std::collections::BTreeSet;
use std::time::Duration;

use photofinish_store::Store;
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::traits::UploadConditions;
use serde_json::json;
use ureq::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
};
use ureq::http::{HeaderMap, Request};
use url::Url;
use uuid::Uuid;

/// How long a bucket may take to answer.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// What pages do with a bucket.
const METHODS: [&str; 2] = ["PUT", "GET"];
/// The header that uploads have: pages may send it only if the bucket says so.
const HEADER: &str = "content-type";

/// Asks the bucket as browsers do, with a preflight request of the console's pages and of the galleries' for each method; says
/// what came of it.
pub async fn describe(store: &Store, urls: &[&Url]) -> String {
    let nobody = (OrganizationId(Uuid::nil()), AlbumId(Uuid::nil()), PhotoId(Uuid::nil()));
    let key = ObjectKey::photo(nobody.0, nobody.1, nobody.2, ObjectRole::Original);
    let conditions =
        UploadConditions { content_type: "image/jpeg", max_bytes: 1, ttl: Duration::from_secs(60) };
    let url = match store.blobs.upload_url(&key, conditions).await {
        Ok(url) => url,
        Err(error) => return format!("not checked: {error}"),
    };
    let origins = origins(urls);
    let asked = origins.clone();
    let refused = tokio::task::spawn_blocking(move || find_refused(&url, asked));
    match refused.await {
        Ok(Ok(refused)) if refused.is_empty() => {
            format!("the bucket answers pages of {}", origins.join(" and "))
        }
        Ok(Ok(refused)) => format!(
            "the bucket does not answer pages of {}: they can neither upload to it nor show its pictures. \
             Give it this CORS configuration: {}",
            refused.join(" and "),
            configuration(&origins)
        ),
        Ok(Err(error)) => format!("not checked: {error}"),
        Err(error) => format!("not checked: {error}"),
    }
}

/// The origins of all pages: the console and galleries may have hosts of their own.
fn origins(urls: &[&Url]) -> Vec<String> {
    let origins: BTreeSet<String> = urls.iter().map(|url| url.origin().ascii_serialization()).collect();
    origins.into_iter().collect()
}

/// Returns those origins whose pages may not do everything.
fn find_refused(url: &Url, origins: Vec<String>) -> Result<Vec<String>, ureq::Error> {
    let mut refused = Vec::new();
    for origin in origins {
        for method in METHODS {
            if !permits(&ask(url, &origin, method)?, &origin, method) {
                refused.push(origin);
                break;
            }
        }
    }
    Ok(refused)
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
        .header(ACCESS_CONTROL_REQUEST_HEADERS, HEADER)
        .body(())?;
    Ok(agent.run(request)?.headers().clone())
}

/// Whether the answer to a preflight request permits a method to pages of this origin.
fn permits(answer: &HeaderMap, origin: &str, method: &str) -> bool {
    let text = |name| answer.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let allowed = text(ACCESS_CONTROL_ALLOW_ORIGIN);
    let lists = |name, wanted: &str| {
        let mut listed = text(name).split(',').map(str::trim);
        listed.any(|each| each == "*" || each.eq_ignore_ascii_case(wanted))
    };
    (allowed == "*" || allowed == origin)
        && lists(ACCESS_CONTROL_ALLOW_METHODS, method)
        && lists(ACCESS_CONTROL_ALLOW_HEADERS, HEADER)
}

/// In the form in which S3 takes it.
fn configuration(origins: &[String]) -> String {
    let rule = json!({
        "AllowedOrigins": origins,
        "AllowedMethods": METHODS,
        "AllowedHeaders": [HEADER],
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
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, "Content-Type".parse().unwrap());
            headers
        };
        let page = "https://photos.example";
        assert!(permits(&answer("*", "GET, PUT"), page, "PUT"));
        assert!(permits(&answer(page, "put"), page, "PUT"));
        assert!(!permits(&answer(page, "GET"), page, "PUT"));
        assert!(!permits(&answer("https://other.example", "PUT"), page, "PUT"));
        assert!(!permits(&HeaderMap::new(), page, "GET"));
        let mut without_header = answer(page, "PUT");
        without_header.insert(ACCESS_CONTROL_ALLOW_HEADERS, "x-other".parse().unwrap());
        assert!(!permits(&without_header, page, "PUT"));
    }

    #[test]
    fn galleries_on_a_host_of_their_own_are_in_the_configuration() {
        let url = |text: &str| text.parse::<Url>().unwrap();
        let (console, gallery) = (url("https://photos.example/"), url("https://gallery.example:8443/g"));
        let both = origins(&[&console, &gallery]);
        assert_eq!(both, ["https://gallery.example:8443", "https://photos.example"]);
        assert!(
            configuration(&both).contains(r#"["https://gallery.example:8443","https://photos.example"]"#)
        );
        assert_eq!(origins(&[&console, &url("https://photos.example/x")]), ["https://photos.example"]);
    }
}
