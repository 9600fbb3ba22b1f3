//! What came back over HTTP, and the rules that every error body keeps.

use serde_json::Value;

/// Status, code and default message of every row of the contract's error table.
pub const ERROR_TABLE: [(u16, &str, &str); 19] = [
    (400, "BAD_REQUEST", "Bad Request"),
    (401, "UNAUTHORIZED", "Unauthorized"),
    (403, "FORBIDDEN", "Forbidden"),
    (404, "NOT_FOUND", "Not Found"),
    (405, "METHOD_NOT_SUPPORTED", "Method Not Supported"),
    (406, "NOT_ACCEPTABLE", "Not Acceptable"),
    (408, "TIMEOUT", "Request Timeout"),
    (409, "CONFLICT", "Conflict"),
    (412, "PRECONDITION_FAILED", "Precondition Failed"),
    (413, "PAYLOAD_TOO_LARGE", "Payload Too Large"),
    (415, "UNSUPPORTED_MEDIA_TYPE", "Unsupported Media Type"),
    (422, "UNPROCESSABLE_CONTENT", "Unprocessable Content"),
    (429, "TOO_MANY_REQUESTS", "Too Many Requests"),
    (499, "CLIENT_CLOSED_REQUEST", "Client Closed Request"),
    (500, "INTERNAL_SERVER_ERROR", "Internal Server Error"),
    (501, "NOT_IMPLEMENTED", "Not Implemented"),
    (502, "BAD_GATEWAY", "Bad Gateway"),
    (503, "SERVICE_UNAVAILABLE", "Service Unavailable"),
    (504, "GATEWAY_TIMEOUT", "Gateway Timeout"),
];

/// An HTTP answer, read whole.
#[derive(Clone, Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of this name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("status {}, body is not JSON ({error}): {}", self.status, self.text()),
        }
    }

    /// The body of a success.
    ///
    /// # Panics
    /// When the answer is not a 200 of JSON with a request id.
    #[track_caller]
    pub fn expect_ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert!(self.header("x-request-id").is_some(), "no x-request-id: {:?}", self.headers);
        self.json()
    }

    /// Checks that the answer is the table's row of this status in the envelope, a defined error; answers its `data`
    /// (`Null` when there is none).
    ///
    /// # Panics
    /// When it is anything else.
    #[track_caller]
    pub fn expect_defined_error(&self, status: u16) -> Value {
        let body = self.check_envelope(status);
        let message = ERROR_TABLE.iter().find(|row| row.0 == status).expect("a row of the table").2;
        assert_eq!(body["defined"], true, "{body}");
        assert_eq!(body["message"], message, "{body}");
        body["data"].clone()
    }

    /// Checks that the answer is the table's row of this status, an undefined error; answers message and `data`.
    ///
    /// # Panics
    /// When it is anything else.
    #[track_caller]
    pub fn expect_undefined_error(&self, status: u16) -> (String, Value) {
        let body = self.check_envelope(status);
        assert_eq!(body["defined"], false, "{body}");
        (body["message"].as_str().unwrap_or_default().to_owned(), body["data"].clone())
    }

    /// Checks an input validation error; answers the paths of its issues, each joined by dots.
    ///
    /// # Panics
    /// When it is anything else.
    #[track_caller]
    pub fn expect_issues(&self) -> Vec<String> {
        let (message, data) = self.expect_undefined_error(400);
        assert_eq!(message, "Input validation failed");
        assert!(data.get("code").is_none(), "no data.code with issues: {data}");
        let issues = data["issues"].as_array().unwrap_or_else(|| panic!("no data.issues: {data}"));
        assert!(!issues.is_empty(), "{data}");
        let mut paths: Vec<String> = issues.iter().map(join_issue_path).collect();
        paths.sort();
        paths
    }

    /// Checks what all error bodies have in common; answers the body.
    #[track_caller]
    fn check_envelope(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/json"), "{:?}", self.headers);
        assert!(self.header("content-disposition").is_none(), "{:?}", self.headers);
        assert!(self.header("location").is_none(), "{:?}", self.headers);
        assert!(self.header("x-request-id").is_some_and(|id| !id.is_empty()), "{:?}", self.headers);
        let body = self.json();
        let object = body.as_object().unwrap_or_else(|| panic!("not an object: {body}"));
        for (key, value) in object {
            let known = ["defined", "code", "status", "message", "data"].contains(&key.as_str());
            assert!(known && !value.is_null(), "{key} does not belong into the envelope: {body}");
        }
        let code = ERROR_TABLE.iter().find(|row| row.0 == status).expect("a row of the table").1;
        assert_eq!(body["code"], code, "{body}");
        assert_eq!(body["status"], status, "{body}");
        assert!(body["defined"].is_boolean() && body["message"].is_string(), "{body}");
        body
    }
}

#[track_caller]
fn join_issue_path(issue: &Value) -> String {
    assert!(issue["code"].is_string() && issue["message"].is_string(), "{issue}");
    let path = issue["path"].as_array().unwrap_or_else(|| panic!("no path: {issue}"));
    let parts: Vec<String> =
        path.iter().map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned)).collect();
    parts.join(".")
}
