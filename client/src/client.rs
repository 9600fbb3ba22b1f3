//! One service with one key: how calls are sent, tried again and read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use ureq::http::Request;

use crate::error::{ClientError, ErrorBody};
use crate::raw::{RawResponse, read_response};
use crate::retry::{Exchange, RetryCounters, RetryPolicy, retry};

/// How long a TCP connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How a client waits and tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// The longest time of one request with its response.
    pub timeout: Duration,
    /// The longest time of an upload of no bytes.
    pub upload_timeout: Duration,
    /// Bytes a second of the slowest line that an upload waits for: its size adds to [`Self::upload_timeout`] accordingly.
    /// `u64::MAX` adds nothing.
    pub min_upload_rate: u64,
    /// Idle connections that are kept; 0 opens a connection for each request.
    pub idle_connections: usize,
    /// When requests are sent again.
    pub retry: RetryPolicy,
}

impl Default for ClientOptions {
    /// Two minutes a request, uploads at 32 kB/s or faster, nothing sent again.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(120),
            upload_timeout: Duration::from_secs(60),
            min_upload_rate: 32_000,
            idle_connections: 32,
            retry: RetryPolicy::NEVER,
        }
    }
}

/// A service with one key. Clones share connections and counters.
#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
    origin: String,
    key: String,
    options: ClientOptions,
    counters: Arc<RetryCounters>,
}

/// A result with the time of the service's clock at which it was sent.
pub(crate) struct Dated<T> {
    pub(crate) value: T,
    pub(crate) service_time: OffsetDateTime,
}

impl Client {
    /// A client of the service at `url`, with or without the path `/openapi`. Without a key (`""`) only what needs none
    /// succeeds.
    pub fn new(url: &str, key: &str, options: ClientOptions) -> Self {
        let origin = url.trim_end_matches('/').trim_end_matches("/openapi").to_owned();
        Self { agent: agent(options), origin, key: key.to_owned(), options, counters: Arc::default() }
    }

    /// The same service and key with other options and connections; the counters are shared.
    #[must_use]
    pub fn with_options(&self, options: ClientOptions) -> Self {
        Self { agent: agent(options), options, ..self.clone() }
    }

    /// The same service with another key; connections and counters are shared.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    /// The service's address without `/openapi`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How requests are sent.
    pub fn options(&self) -> ClientOptions {
        self.options
    }

    /// How often a request was sent again.
    pub fn retries(&self) -> usize {
        self.counters.retries.load(Ordering::SeqCst)
    }

    /// How many of the retries had a reason other than this client's timeout.
    pub fn refusals(&self) -> usize {
        self.counters.refusals.load(Ordering::SeqCst)
    }

    /// Calls an operation, for example `albums/create`. With `T` = [`serde_json::Value`] it is untyped.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the status is not 200, [`ClientError::InvalidResponse`] when the body is not a `T`,
    /// [`ClientError::Transport`] without a response; transient ones after the last attempt of the retry policy.
    pub fn call<T: DeserializeOwned>(
        &self,
        operation: &str,
        input: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.call_dated(operation, input).map(|dated| dated.value)
    }

    /// As [`Self::call`], with the time of the service's clock.
    pub(crate) fn call_dated<T: DeserializeOwned>(
        &self,
        operation: &str,
        input: &impl Serialize,
    ) -> Result<Dated<T>, ClientError> {
        let url = format!("{}/openapi/{operation}", self.origin);
        let response = self.retry(Exchange::Call, || {
            let request = self.agent.post(&url).header("x-api-key", &self.key);
            let response =
                request.send_json(input).map_err(|error| ClientError::transport(operation, error))?;
            check_status(operation, read_response(operation, response)?)
        })?;
        let invalid =
            |reason: String| ClientError::InvalidResponse { operation: operation.to_owned(), reason };
        let value = response.parse().map_err(|error| invalid(error.to_string()))?;
        Ok(Dated { value, service_time: service_time(&response) })
    }

    pub(crate) fn retry<T>(
        &self,
        exchange: Exchange,
        send: impl FnMut() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        retry(self.options.retry, &self.counters, exchange, send)
    }

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

    pub(crate) fn agent(&self) -> &ureq::Agent {
        &self.agent
    }
}

/// The response when its status is 200.
pub(crate) fn check_status(operation: &str, response: RawResponse) -> Result<RawResponse, ClientError> {
    if response.status == 200 {
        return Ok(response);
    }
    let retry_after = response.header("retry-after").and_then(|seconds| seconds.parse().ok());
    Err(ClientError::Refused {
        operation: operation.to_owned(),
        error: Box::new(ErrorBody::from_response(response.status, &response.body)),
        retry_after: retry_after.map(Duration::from_secs),
    })
}

fn agent(options: ClientOptions) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(options.timeout))
        .max_idle_connections(options.idle_connections)
        .max_idle_connections_per_host(options.idle_connections);
    config.build().into()
}

/// The service's clock (the `Date` header, whole seconds); this machine's where the response has none.
fn service_time(response: &RawResponse) -> OffsetDateTime {
    response.header("date").and_then(parse_http_date).unwrap_or_else(OffsetDateTime::now_utc)
}

/// An HTTP date is a mail date that ends with `GMT`.
fn parse_http_date(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc2822).ok()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn an_http_date_is_parsed() {
        let date = parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date, Some(datetime!(1994-11-06 08:49:37 UTC)));
        assert_eq!(parse_http_date("yesterday"), None);
    }

    #[test]
    fn an_address_may_end_with_a_slash_and_the_path_of_the_api() {
        for url in ["http://a:1", "http://a:1/", "http://a:1/openapi", "http://a:1/openapi/"] {
            assert_eq!(Client::new(url, "", ClientOptions::default()).origin(), "http://a:1", "{url}");
        }
    }
}
