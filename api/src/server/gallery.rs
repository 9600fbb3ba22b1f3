//! Galleries: the page of each, and what its visitors call, below the secret address `/g/{link}`.

use std::collections::HashMap;
use std::sync::Arc;

use warp::filters::BoxedFilter;
use warp::path::FullPath;
use warp::reply::Response;
use warp::{Filter, reject};

use super::request::extract_request;
use crate::client_address::client_address;
use crate::errors::ApiError;
use crate::operation::visitors::visitor_operations;
use crate::operation::{self, ApiRequest, Operation, OperationContext};
use crate::same_origin;

/// The path under which galleries are.
pub(crate) const GALLERY_PREFIX: &str = "/g/";

/// A call below a gallery's address.
struct GalleryCall {
    link: String,
    /// Of the operation.
    path: String,
}

impl GalleryCall {
    /// Splits `/g/{link}/api/{path}`.
    fn from_path(path: &str) -> Option<Self> {
        let (link, path) = path.strip_prefix(GALLERY_PREFIX)?.split_once("/api/")?;
        let is_link = !link.is_empty() && link.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_link.then(|| Self { link: link.to_owned(), path: format!("/{path}") })
    }
}

/// Returns the metric label of a path below galleries, without the link, which is a secret.
pub(crate) fn route_label(path: &str) -> Option<&'static str> {
    let call = GalleryCall::from_path(path)?;
    visitor_operations().into_iter().find(|operation| operation.info.path() == call.path).map(|it| it.info.id)
}

/// Returns the routes of what visitors call.
pub(super) fn routes(ctx: OperationContext) -> BoxedFilter<(Response,)> {
    let all = visitor_operations().into_iter();
    let operations: HashMap<String, Operation> =
        all.map(|operation| (operation.info.path(), operation)).collect();
    let operations = Arc::new(operations);
    warp::path::full()
        .and_then(|path: FullPath| {
            let call = GalleryCall::from_path(path.as_str()).ok_or_else(reject::not_found);
            async move { call }
        })
        .and(extract_request())
        .then(move |call: GalleryCall, request: ApiRequest| {
            let (operations, ctx) = (Arc::clone(&operations), ctx.clone());
            async move { handle(&operations, call, ctx, request).await }
        })
        .boxed()
}

async fn handle(
    operations: &HashMap<String, Operation>,
    call: GalleryCall,
    ctx: OperationContext,
    mut request: ApiRequest,
) -> Response {
    if let Err(error) = same_origin::check(&request.headers) {
        return operation::respond_with_error(error, &mut request.body).await;
    }
    request.address = client_address(request.address, &request.headers, ctx.ctx.settings.console.proxies);
    request.link = Some(call.link);
    match operations.get(&call.path) {
        Some(operation) => operation.handle(ctx, request).await,
        None => operation::respond_with_error(ApiError::not_found(), &mut request.body).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_in_no_label() {
        assert_eq!(route_label("/g/4fQ2aBc8/api/gallery/search/text"), Some("gallery.search.text"));
        assert_eq!(route_label("/g/4fQ2aBc8/api/4fQ2aBc8"), None);
        assert_eq!(route_label("/g/4fQ2aBc8"), None);
        assert!(GalleryCall::from_path("/g/../api/gallery/get").is_none());
        assert!(GalleryCall::from_path("/g//api/gallery/get").is_none());
    }
}
