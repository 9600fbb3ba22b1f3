//! What is only read: pages, documents, keys, health. None of it needs a key.

use std::future::Future;

use warp::filters::BoxedFilter;
use warp::http::{HeaderMap, Method};
use warp::reply::Response;
use warp::{Filter, Rejection};

use crate::errors::ApiError;
use crate::operation::{self, ApiRequest};
use crate::reply;
use crate::server::request::extract_request;

/// The methods of what is only read.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// A request with GET or HEAD.
pub(super) struct ReadRequest {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
}

/// Responds with `respond` to those who read what `matched` found, and with 405 to other methods. The body of these is read
/// nevertheless: left unread, it would close the connection, and the client's next request on it would fail without a response.
pub(super) fn read_only<T, F, Fut>(
    matched: impl Filter<Extract = (T,), Error = Rejection> + Clone + Send + Sync + 'static,
    respond: F,
) -> BoxedFilter<(Response,)>
where
    T: Send + 'static,
    F: Fn(T, ReadRequest) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    matched
        .and(extract_request())
        .then(move |what: T, request: ApiRequest| {
            let respond = respond.clone();
            async move {
                let ApiRequest { method, headers, mut body, .. } = request;
                match method {
                    Method::GET | Method::HEAD => respond(what, ReadRequest { method, headers }).await,
                    Method::OPTIONS => reply::options_response(ALLOW),
                    _ => operation::respond_with_error(ApiError::method_not_allowed(ALLOW), &mut body).await,
                }
            }
        })
        .boxed()
}
