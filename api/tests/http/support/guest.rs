//! A visitor of a gallery.

use serde_json::Value;

use super::{ApiResponse, Partner, TestService};

/// The URL under which the service says that it is.
pub const PUBLIC_URL: &str = "http://127.0.0.1:8080";

/// A browser on the page of a gallery.
pub struct Guest<'s> {
    service: &'s TestService,
    pub path: String,
    cookie: Option<String>,
}

impl<'s> Guest<'s> {
    /// A new visitor of the gallery at this address.
    pub fn at(service: &'s TestService, url: &Value) -> Self {
        let url = url.as_str().unwrap();
        let path = url.strip_prefix(PUBLIC_URL).unwrap().to_owned();
        Self { service, path, cookie: None }
    }

    pub fn call(&mut self, operation: &str, body: Value) -> ApiResponse {
        let mut headers = vec![("content-type", "application/json"), ("sec-fetch-site", "same-origin")];
        headers.extend(self.cookie.as_deref().map(|cookie| ("cookie", cookie)));
        let line = format!("POST {}/api/gallery/{operation}", self.path);
        let response = Partner::new(self.service, None).send(&line, &headers, body.to_string());
        let set = response.header("set-cookie").split(';').next().unwrap_or_default();
        if !set.is_empty() {
            self.cookie = Some(set.to_owned());
        }
        response
    }
}
