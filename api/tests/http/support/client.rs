//! A client that checks every response against the wire rules of the contract and against the OpenAPI document.

use std::sync::LazyLock;

use photofinish_store::model::ids::{AlbumId, OrganizationId};
use serde_json::{Value, json};

use super::{TestService, schema};

static DOCUMENT: LazyLock<Value> = LazyLock::new(photofinish_api::openapi_document);

/// Returns the OpenAPI document of this build.
pub fn document() -> &'static Value {
    &DOCUMENT
}

/// A caller, with or without a key.
pub struct Partner {
    pub origin: String,
    pub key: Option<String>,
    agent: ureq::Agent,
}

/// A complete response.
#[derive(Debug)]
pub struct ApiResponse {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub bytes: Vec<u8>,
}

impl ApiResponse {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Asserts a 200 and returns the body.
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.bytes));
        self.json()
    }

    /// Asserts a defined error (`defined: true`) and returns the body.
    pub fn defined_error(self, status: u16, code: &str) -> Value {
        let body = self.check_error(status, code);
        assert_eq!(body["defined"], json!(true), "{body}");
        body
    }

    /// Asserts an undefined error (`defined: false`) and returns the body.
    pub fn undefined_error(self, status: u16, code: &str) -> Value {
        let body = self.check_error(status, code);
        assert_eq!(body["defined"], json!(false), "{body}");
        body
    }

    /// Asserts a 400 for invalid input and returns the path and code of each issue.
    pub fn issues(self) -> Vec<(String, String)> {
        let body = self.undefined_error(400, "BAD_REQUEST");
        assert_eq!(body["message"], json!("Input validation failed"));
        assert!(body["data"].get("code").is_none(), "{body}");
        let issues = body["data"]["issues"].as_array().unwrap();
        let issue = |issue: &Value| {
            assert!(!issue["message"].as_str().unwrap().is_empty());
            (issue["path"].to_string(), issue["code"].as_str().unwrap().to_owned())
        };
        issues.iter().map(issue).collect()
    }

    fn check_error(self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.bytes));
        self.check_envelope();
        let body = self.json();
        assert_eq!(body["code"], json!(code), "{body}");
        body
    }

    /// Asserts the rules of every error response.
    pub fn check_envelope(&self) {
        self.check_headers();
        let body = self.json();
        for (key, value) in body.as_object().unwrap() {
            assert!(
                ["defined", "code", "status", "message", "data"].contains(&key.as_str()),
                "{key}: {body}"
            );
            assert!(key != "data" || !value.is_null(), "data is null: {body}");
        }
        assert_eq!(body["status"], json!(self.status), "{body}");
        assert!(body["message"].is_string(), "{body}");
    }

    /// Asserts the rules of every JSON response.
    pub fn check_headers(&self) {
        assert_eq!(self.header("content-type"), "application/json");
        assert!(!self.headers.contains_key("content-disposition"));
        assert!(!self.header("x-request-id").is_empty());
    }
}

impl Partner {
    pub fn new(service: &TestService, key: Option<String>) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(super::DEADLINE))
            .build()
            .into();
        Self { origin: format!("http://{}", service.address), key, agent }
    }

    /// Calls an operation and checks the response against the document.
    pub fn call(&self, path: &str, body: &Value) -> ApiResponse {
        let response = self.send(
            &format!("POST /openapi{path}"),
            &[("content-type", "application/json")],
            body.to_string(),
        );
        response.check_headers();
        if let Some(operation) = document()["paths"].get(path) {
            let documented = &operation["post"]["responses"][response.status.to_string()];
            schema::check_response(document(), documented, &response.json());
        }
        response
    }

    /// Sends a request (`GET /path` or `GET http://..`). Requests to the API have the key, if there is one.
    pub fn send(&self, line: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> ApiResponse {
        let (method, path) = line.split_once(' ').unwrap();
        let url = if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.origin) };
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        if let Some(key) = self.key.as_ref().filter(|_| path.starts_with("/openapi")) {
            request = request.header("x-api-key", key);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.as_ref()).unwrap();
        let mut response = self.agent.run(request).unwrap();
        ApiResponse {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            bytes: response.body_mut().read_to_vec().unwrap(),
        }
    }

    pub fn put(&self, url: &str, content_type: &str, body: &[u8]) -> ApiResponse {
        self.send(&format!("PUT {url}"), &[("content-type", content_type)], body)
    }

    /// Creates an album; returns its id as JSON and as the store's type.
    pub fn create_album(&self) -> (Value, AlbumId) {
        self.create_album_with(json!({ "title": "Lake Marathon" }))
    }

    pub fn create_album_with(&self, body: Value) -> (Value, AlbumId) {
        let id = self.call("/albums/create", &body).ok()["id"].clone();
        let album_id = id.as_str().unwrap().parse().unwrap();
        (id, album_id)
    }

    /// Uploads a selfie; returns its `imageId`.
    pub fn upload_selfie(&self, album: &Value, bytes: &[u8]) -> Value {
        let ticket = self.call("/photos/search/face/signed", &json!({ "albumId": album })).ok();
        assert_eq!(self.put(ticket["uploadUrl"].as_str().unwrap(), "image/png", bytes).status, 200);
        ticket["imageId"].clone()
    }

    /// Returns the organization of the key.
    pub async fn organization_id(&self, service: &TestService) -> OrganizationId {
        let key = photofinish_api::key::KeyText::parse(self.key.as_ref().unwrap()).unwrap();
        service.store.keys.find(&key.digest()).await.unwrap().unwrap().tenant.organization
    }
}
