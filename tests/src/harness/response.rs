//! A response of the service, with the checks that most tests need. The wire rules themselves are tested in
//! `api/tests/http`.

use std::ops::Deref;

use photofinish_client::RawResponse;
use serde_json::Value;

/// An HTTP response, read whole.
#[derive(Clone, Debug)]
pub struct Response(pub RawResponse);

impl Deref for Response {
    type Target = RawResponse;

    fn deref(&self) -> &RawResponse {
        &self.0
    }
}

impl Response {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        match self.parse() {
            Ok(value) => value,
            Err(error) => panic!("status {}, body is not JSON ({error}): {}", self.status, self.text()),
        }
    }

    /// The body of a success.
    ///
    /// # Panics
    /// When the response is not a 200 of JSON with a request id.
    #[track_caller]
    pub fn expect_ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert!(self.header("x-request-id").is_some(), "no x-request-id: {:?}", self.headers);
        self.json()
    }

    /// Checks that this is an error of this status that the contract defines. Returns its `data` (`Null` when there is
    /// none).
    ///
    /// # Panics
    /// When it is anything else.
    #[track_caller]
    pub fn expect_defined_error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert!(self.header("x-request-id").is_some(), "no x-request-id: {:?}", self.headers);
        let body = self.json();
        assert_eq!((&body["defined"], &body["status"]), (&true.into(), &status.into()), "{body}");
        body["data"].clone()
    }
}
