//! What a request fails with, and the only writer of error bodies.
//!
//! Handlers return `Result<_, ApiError>`; domain errors are never warp rejections.

pub(crate) mod schemas;
pub mod table;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::traits::Decline;
use serde::Serialize;
use serde_json::{Value, json};
use warp::http::header::{ALLOW, CONNECTION, HeaderValue, RETRY_AFTER};
use warp::reply::Response;

use crate::errors::table::{DeclineCode, ErrorKind};
use crate::reply;
use crate::validate::issues::Issue;

/// An error response: a row of the contract's error table, and what this occurrence adds to it.
#[derive(Clone)]
pub struct ApiError(Box<ErrorDetails>);

#[derive(Clone)]
struct ErrorDetails {
    kind: ErrorKind,
    /// The envelope's `defined`: false for invalid input and for internal errors.
    defined: bool,
    message: Option<String>,
    data: Option<Value>,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
    close_connection: bool,
    cause: Option<Cause>,
}

type Cause = Arc<dyn Error + Send + Sync>;

/// The body of every error response: these keys and no others.
#[derive(Serialize)]
struct Envelope<'a> {
    defined: bool,
    code: &'static str,
    status: u16,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a Value>,
}

/// Returns the body of an undefined error with a status that the contract's table does not have.
pub(crate) fn undefined_json(status: u16, code: &'static str, message: &str) -> String {
    Envelope { defined: false, code, status, message, data: None }.to_json()
}

impl Envelope<'_> {
    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and JSON values are always JSON")
    }
}

impl ApiError {
    /// Returns a defined error with its default message.
    pub(crate) fn new(kind: ErrorKind) -> Self {
        Self(Box::new(ErrorDetails {
            kind,
            defined: true,
            message: None,
            data: None,
            retry_after: None,
            allow: None,
            close_connection: false,
            cause: None,
        }))
    }

    /// Returns a 404: the object does not exist or belongs to another tenant.
    pub(crate) fn not_found() -> Self {
        Self::new(ErrorKind::NotFound)
    }

    /// Returns a 400 with every issue of an invalid input.
    pub(crate) fn invalid(issues: &[Issue]) -> Self {
        let error = Self::undefined(ErrorKind::BadRequest, "Input validation failed");
        error.with_data(json!({ "issues": issues }))
    }

    /// Returns a 400 for a body that cannot be read.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::undefined(ErrorKind::BadRequest, message)
    }

    /// Returns a 500; `cause` is logged and not part of the response.
    pub(crate) fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let mut error = Self::undefined(ErrorKind::InternalServerError, "Internal server error");
        error.0.cause = Some(Arc::from(cause.into()));
        error
    }

    /// Returns a 422 for a valid request that this selfie or this album cannot serve.
    pub(crate) fn declined(code: DeclineCode) -> Self {
        Self::new(ErrorKind::UnprocessableContent).with_data(json!({ "declineCode": code.as_str() }))
    }

    /// Returns a 422 for something that the balance does not cover.
    pub(crate) fn insufficient_credits(decline: &Decline) -> Self {
        let Decline { balance, price } = decline;
        let code = DeclineCode::InsufficientCredits.as_str();
        let data = json!({ "declineCode": code, "balance": balance, "price": price });
        Self::new(ErrorKind::UnprocessableContent).with_data(data)
    }

    /// Returns a 429; the wait is in the body (milliseconds precision) and in `retry-after`.
    pub(crate) fn rate_limited(try_again_in: Duration) -> Self {
        let seconds = (try_again_in.as_secs_f64() * 1000.0).round() / 1000.0;
        let error = Self::new(ErrorKind::TooManyRequests).with_data(json!({ "tryAgainIn": seconds }));
        error.with_retry_after(Some(try_again_in))
    }

    /// Returns a 405 with the methods that the path supports.
    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        let mut error = Self::new(ErrorKind::MethodNotSupported);
        error.0.allow = Some(allow);
        error
    }

    fn undefined(kind: ErrorKind, message: impl Into<String>) -> Self {
        let mut error = Self::new(kind);
        error.0.defined = false;
        error.0.message = Some(message.into());
        error
    }

    /// Sets `data.code`, which says more precisely what the row means here.
    #[must_use]
    pub(crate) fn with_code(self, code: &'static str) -> Self {
        self.with_data(json!({ "code": code }))
    }

    /// Sets `data`.
    #[must_use]
    pub(crate) fn with_data(mut self, data: Value) -> Self {
        self.0.data = Some(data);
        self
    }

    /// Sets the `retry-after` header.
    #[must_use]
    pub(crate) fn with_retry_after(mut self, after: Option<Duration>) -> Self {
        self.0.retry_after = after;
        self
    }

    /// Closes the connection after the response, because the rest of the request body is not read.
    #[must_use]
    pub(crate) fn with_connection_close(mut self) -> Self {
        self.0.close_connection = true;
        self
    }

    /// Whether the connection is closed after the response.
    pub(crate) fn closes_connection(&self) -> bool {
        self.0.close_connection
    }

    fn with_cause(mut self, cause: Cause) -> Self {
        self.0.cause = Some(cause);
        self
    }

    /// The row of the error table.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The envelope's `message`.
    pub(crate) fn message(&self) -> &str {
        self.0.message.as_deref().unwrap_or(self.0.kind.message())
    }

    /// The envelope's `data`.
    pub(crate) fn data(&self) -> Option<&Value> {
        self.0.data.as_ref()
    }

    /// Returns the error body.
    pub(crate) fn to_json(&self) -> String {
        let envelope = Envelope {
            defined: self.0.defined,
            code: self.0.kind.code(),
            status: self.0.kind.status(),
            message: self.message(),
            data: self.data(),
        };
        envelope.to_json()
    }

    /// Logs an error of the service; errors of the caller are not logged, and refusals, such as of a service that is full or
    /// stops, only in detail.
    pub(crate) fn log(&self) {
        let status = self.0.kind.status();
        match self.fault_causes() {
            Some(cause) => tracing::error!(status, cause, "request failed"),
            None if status >= 500 => tracing::debug!(status, "request refused"),
            None => {}
        }
    }

    /// Logs the errors of a batch's entries in one line: they mostly have one cause.
    pub(crate) fn log_entries<'a>(errors: impl Iterator<Item = &'a Self>) {
        let mut failed = errors.filter_map(|error| Some((error, error.fault_causes()?)));
        if let Some((first, cause)) = failed.next() {
            let entries = 1 + failed.count();
            tracing::error!(status = first.0.kind.status(), cause, entries, "batch entries failed");
        }
    }

    /// Returns the chain of causes if the service is at fault: of a status of 500 and above, unless it refuses what it could do.
    fn fault_causes(&self) -> Option<String> {
        let status = self.0.kind.status();
        let causes = self.0.cause.as_deref().map(join_causes);
        // Nothing refuses with a 500.
        if status == 500 { Some(causes.unwrap_or_default()) } else { causes.filter(|_| status > 500) }
    }

    /// Logs an error of the service and returns the response.
    pub(crate) fn into_response(self) -> Response {
        self.log();
        let mut response = reply::json_text_response(self.0.kind.status(), self.to_json());
        let headers = response.headers_mut();
        if let Some(after) = self.0.retry_after {
            // Whole seconds, rounded up: an earlier retry would be refused again.
            let seconds = after.as_millis().div_ceil(1000).max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX)));
        }
        if let Some(allow) = self.0.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if self.0.close_connection {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let retry_after = error.retry_after;
        let api_error = match error.kind {
            StoreErrorKind::NotFound => return Self::not_found(),
            StoreErrorKind::Conflict => return Self::new(ErrorKind::Conflict),
            StoreErrorKind::InsufficientCredits => {
                return Self::declined(DeclineCode::InsufficientCredits);
            }
            StoreErrorKind::TooLarge => return Self::new(ErrorKind::PayloadTooLarge),
            StoreErrorKind::Unavailable => {
                Self::new(ErrorKind::ServiceUnavailable).with_retry_after(retry_after)
            }
            StoreErrorKind::Corrupt | StoreErrorKind::Invalid => {
                Self::undefined(ErrorKind::InternalServerError, "Internal server error")
            }
        };
        api_error.with_cause(Arc::new(error))
    }
}

impl fmt::Debug for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

fn join_causes(error: &(dyn Error + Send + Sync + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(error: &ApiError) -> Value {
        serde_json::from_str(&error.to_json()).unwrap()
    }

    #[test]
    fn a_plain_error_has_four_keys_and_no_data() {
        let expected = json!({"defined": true, "code": "NOT_FOUND", "status": 404, "message": "Not Found"});
        assert_eq!(body(&ApiError::not_found()), expected);
    }

    #[test]
    fn an_internal_error_hides_its_cause() {
        let expected = json!({"defined": false, "code": "INTERNAL_SERVER_ERROR", "status": 500,
            "message": "Internal server error"});
        assert_eq!(body(&ApiError::internal("a secret detail of the disk")), expected);
    }

    #[test]
    fn a_rate_limited_error_gives_the_wait_in_body_and_header() {
        let error = ApiError::rate_limited(Duration::from_millis(1500));
        assert_eq!(body(&error)["data"], json!({"tryAgainIn": 1.5}));
        assert_eq!(error.into_response().headers()["retry-after"], "2");
    }

    #[test]
    fn store_errors_map_to_statuses_by_kind() {
        let status_of = |kind| ApiError::from(StoreError::new(kind, "photo x")).kind().status();
        assert_eq!(status_of(StoreErrorKind::NotFound), 404);
        assert_eq!(status_of(StoreErrorKind::Conflict), 409);
        assert_eq!(status_of(StoreErrorKind::TooLarge), 413);
        assert_eq!(status_of(StoreErrorKind::InsufficientCredits), 422);
        assert_eq!(status_of(StoreErrorKind::Unavailable), 503);
        assert_eq!(status_of(StoreErrorKind::Corrupt), 500);
        assert_eq!(status_of(StoreErrorKind::Invalid), 500);
    }
}
