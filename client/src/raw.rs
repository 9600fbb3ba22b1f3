//! Responses as they came, for [`Client::raw`](crate::Client::raw).

use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, Response};

use crate::error::ClientError;

/// The largest response body that is read, in bytes.
const MAX_BODY_BYTES: u64 = 1 << 30;

/// A response, read whole. Its status is data: 404 is no error here.
#[derive(Clone, Debug)]
pub struct RawResponse {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

impl RawResponse {
    /// The first header of this name, when it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as text; invalid UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is not JSON of this type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

/// Reads a response whole.
pub(crate) fn read_response(
    operation: &str,
    mut response: Response<ureq::Body>,
) -> Result<RawResponse, ClientError> {
    let body = response.body_mut().with_config().limit(MAX_BODY_BYTES).read_to_vec();
    let body = body.map_err(|error| ClientError::transport(operation, error))?;
    Ok(RawResponse { status: response.status().as_u16(), headers: response.headers().clone(), body })
}
