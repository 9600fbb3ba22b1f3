//! Refuses requests that another site makes a browser send (cross-site request forgery), without tokens: by the metadata
//! that browsers send, as Go's `http.CrossOriginProtection` does.

use warp::http::HeaderMap;
use warp::http::header::{CONTENT_TYPE, HOST, ORIGIN};

use crate::errors::ApiError;
use crate::errors::table::ErrorKind;

/// Checks that a request which changes something comes from a page of this very host. `sec-fetch-site` says so; browsers that
/// do not send it (old ones, and all over plain http) name the page's `origin`, whose host must be the one that was asked.
/// A form of another site cannot have the content type of JSON either.
///
/// # Errors
/// 403 `CROSS_SITE`.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), ApiError> {
    let refused = || Err(ApiError::new(ErrorKind::Forbidden).with_code("CROSS_SITE"));
    let is_same = match headers.get("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => is_same_host(headers),
    };
    if is_same && is_json(headers) { Ok(()) } else { refused() }
}

fn is_same_host(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &warp::http::HeaderValue| value.to_str().ok());
    let Some((origin, host)) = text(ORIGIN).zip(text(HOST)) else { return false };
    let after_scheme = origin.split_once("://").map(|(_, host)| host);
    after_scheme.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
}

fn is_json(headers: &HeaderMap) -> bool {
    let declared = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let declared = declared.and_then(|text| text.parse::<mime::Mime>().ok());
    declared.is_some_and(|declared| declared.essence_str() == "application/json")
}

#[cfg(test)]
mod tests {
    use warp::http::HeaderName;
    use warp::http::header::HeaderValue;

    use super::*;

    fn is_accepted(sent: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        check(&headers).is_ok()
    }

    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
    const HOST_HERE: (&str, &str) = ("host", "photos.example:8080");

    #[test]
    fn only_pages_of_this_host_are_accepted() {
        assert!(is_accepted(&[("sec-fetch-site", "same-origin"), JSON]));
        for site in ["cross-site", "same-site", "none", ""] {
            let origin = ("origin", "http://photos.example:8080");
            assert!(!is_accepted(&[("sec-fetch-site", site), JSON, HOST_HERE, origin]), "{site}");
        }
        assert!(is_accepted(&[JSON, HOST_HERE, ("origin", "http://photos.example:8080")]));
        for origin in ["http://photos.example", "http://evil.example", "null", "photos.example:8080", ""] {
            assert!(!is_accepted(&[JSON, HOST_HERE, ("origin", origin)]), "{origin}");
        }
        assert!(!is_accepted(&[JSON, HOST_HERE]), "neither header");
        assert!(!is_accepted(&[]));
    }

    #[test]
    fn a_form_is_refused() {
        for form in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
        {
            assert!(!is_accepted(&[("sec-fetch-site", "same-origin"), ("content-type", form)]), "{form}");
        }
        assert!(!is_accepted(&[("sec-fetch-site", "same-origin")]));
    }
}
