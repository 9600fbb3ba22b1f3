//! Why a call failed. The variants are what a caller can do about it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::types::Progress;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No response arrived, or it broke off. The service may have carried out the operation.
    #[error("{operation}: {source}")]
    Transport {
        /// The operation, for example `albums/create`.
        operation: String,
        /// What the HTTP client says.
        source: Box<ureq::Error>,
    },
    /// The response has a status other than 200.
    #[error("{operation}: {error}")]
    Refused {
        /// The operation, for example `albums/create`.
        operation: String,
        /// The error body of the contract, or what the response had in its place.
        error: Box<ErrorBody>,
        /// The `Retry-After` header.
        retry_after: Option<Duration>,
    },
    /// The response has status 200 and a body that is not what the contract says.
    #[error("{operation}: unexpected response: {reason}")]
    InvalidResponse {
        /// The operation, for example `albums/create`.
        operation: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file to upload cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// No photo of an album became ready or failed for as long as the caller was willing to wait.
    #[error("no photo was processed for {limit:?}: {progress}")]
    Stalled {
        /// The longest wait without a change.
        limit: Duration,
        /// The progress that did not change.
        progress: Box<Progress>,
    },
}

/// The body of an error: of a response, or of one entry of a batch.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct ErrorBody {
    /// The HTTP status that the error has, or would have as a response.
    pub status: u16,
    /// The code of the contract's error table, for example `NOT_FOUND`; empty when the body was not the contract's.
    pub code: String,
    /// For people.
    pub message: String,
    /// What the code says about the case; `null` when nothing.
    pub data: Value,
}

impl fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if !self.code.is_empty() {
            write!(f, " {}", self.code)?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if self.data.is_null() { Ok(()) } else { write!(f, " {}", self.data) }
    }
}

impl ErrorBody {
    /// The error of a response. A body that is not the contract's (a gateway's) becomes the message, cut to its first 300
    /// characters; of a storage's, only code and message: the rest may contain the signature of the request.
    pub(crate) fn from_response(status: u16, body: &[u8]) -> Self {
        if let Ok(error) = serde_json::from_slice::<Self>(body)
            && !error.message.is_empty()
        {
            return Self { status, ..error };
        }
        let text = String::from_utf8_lossy(body);
        let message = storage_message(&text).unwrap_or_else(|| text.trim().to_owned());
        let message = message.chars().take(300).collect();
        Self { status, message, ..Self::default() }
    }
}

/// Code and message in the XML error of a storage.
fn storage_message(body: &str) -> Option<String> {
    let element = |name: &str| {
        let (_, rest) = body.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    let code = element("Code")?;
    Some(element("Message").map_or_else(|| code.to_owned(), |message| format!("{code}: {message}")))
}

/// Masks the query of a URL at the beginning of a text: that of a presigned URL is a permission, which is not for logs.
fn mask_query(text: &str) -> String {
    let Some((before, query)) = text.split_once('?') else { return text.to_owned() };
    let after = query.find(' ').map_or("", |end| &query[end..]);
    format!("{before}?masked{after}")
}

impl ClientError {
    pub(crate) fn transport(operation: &str, source: ureq::Error) -> Self {
        let source = match source {
            ureq::Error::BadUri(text) => ureq::Error::BadUri(mask_query(&text)),
            other => other,
        };
        Self::Transport { operation: mask_query(operation), source: Box::new(source) }
    }

    /// The status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { error, .. } => Some(error.status),
            _ => None,
        }
    }

    /// Whether no response came within the timeout.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Transport { source, .. } if matches!(**source, ureq::Error::Timeout(_)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_error_contains_the_query_of_a_presigned_url() {
        let bad = ureq::Error::BadUri("/storage/o/1?signature=secret is missing scheme".to_owned());
        let error = ClientError::transport("PUT http://a/storage/o/1?signature=secret", bad).to_string();
        assert_eq!(error, "PUT http://a/storage/o/1?masked: bad uri: /storage/o/1?masked is missing scheme");
        let error = ClientError::transport("upload", ureq::Error::HostNotFound).to_string();
        assert!(error.starts_with("upload: "), "{error}");
    }

    #[test]
    fn an_error_of_the_contract_is_read_and_any_other_body_becomes_the_message() {
        let body = json!({
            "defined": true, "code": "FORBIDDEN", "status": 403, "message": "Forbidden",
            "data": { "code": "INSUFFICIENT_SCOPE" },
        });
        let error = ErrorBody::from_response(403, body.to_string().as_bytes());
        assert_eq!(error.to_string(), r#"403 FORBIDDEN: Forbidden {"code":"INSUFFICIENT_SCOPE"}"#);
        assert_eq!(ErrorBody::from_response(502, b"<html>").to_string(), "502: <html>");
        assert_eq!(ErrorBody::from_response(502, b"").to_string(), "502");
        let storage = b"<?xml?><Error><Code>SignatureDoesNotMatch</Code><SignatureProvided>secret\
            </SignatureProvided><Message>Check your key.</Message></Error>";
        assert_eq!(
            ErrorBody::from_response(403, storage).to_string(),
            "403: SignatureDoesNotMatch: Check your key."
        );
    }
}
