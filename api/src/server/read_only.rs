//! What is only read: pages, documents, keys, health. None of it needs a key.

use std::future::Future;

use warp::filters::BoxedFilter;
use warp::http::Method;
use warp::reply::Response;
use warp::{Filter, Rejection};

use crate::errors::ApiError;
use crate::operation::{self, ApiRequest};
use crate::server::request::extract_request;

/// The methods of what is only read.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// Responds with `respond` to GET and HEAD of what `matched` found, and with 405 to other methods. The body of these is read
/// nevertheless: left unread, it would close the connection, and the client's next request on it would fail without a response.
pub(super) fn read_only<T, F, Fut>(
    matched: impl Filter<Extract = (T,), Error = Rejection> + Clone + Send + Sync + 'static,
    respond: F,
) -> BoxedFilter<(Response,)>
where
    T: Send + 'static,
    F: Fn(T, ApiRequest) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    matched
        .and(extract_request())
        .then(move |what: T, mut request: ApiRequest| {
            let respond = respond.clone();
            async move {
                match request.method {
                    Method::GET | Method::HEAD => respond(what, request).await,
                    Method::OPTIONS => operation::respond_to_options(ALLOW, &mut request.body).await,
                    _ => {
                        let error = ApiError::method_not_allowed(ALLOW);
                        operation::respond_with_error(error, &mut request.body).await
                    }
                }
            }
        })
        .boxed()
}
