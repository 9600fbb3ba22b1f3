//! The raw way out: any request, and the response as it came.

use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, Request, Response};

use crate::client::Client;
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

impl Client {
    /// Sends any request, once. A `target` that begins with `/` is a path of the service, and gets the key below
    /// `/openapi`; any other is a whole URL, and gets none.
    ///
    /// # Errors
    /// [`ClientError::Transport`] when the request cannot be built or sent, or no whole response arrives.
    pub fn raw(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<RawResponse, ClientError> {
        let is_path = target.starts_with('/');
        let url = if is_path { format!("{}{target}", self.origin()) } else { target.to_owned() };
        let mut request = Request::builder().method(method).uri(url);
        if target.starts_with("/openapi") && !self.key().is_empty() {
            request = request.header("x-api-key", self.key());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let name = || format!("{method} {target}");
        let request = request.body(body).map_err(|error| ClientError::transport(&name(), error.into()))?;
        let response = self.agent().run(request).map_err(|error| ClientError::transport(&name(), error))?;
        read_response(&name(), response)
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
