//! Galleries: the page of each, and what its visitors call, below the secret address `/g/{link}`.

use warp::filters::BoxedFilter;
use warp::path::FullPath;
use warp::reply::Response;
use warp::{Filter, reject};

use super::operation_table::OperationTable;
use super::request::extract_request;
use crate::client_address::client_address;
use crate::errors::ApiError;
use crate::operation::visitors::visitor_operations;
use crate::operation::{self, ApiRequest, OperationContext};
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
        is_link(link).then(|| Self { link: link.to_owned(), path: format!("/{path}") })
    }
}

/// Whether a text could be the secret part of an address.
pub(super) fn is_link(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns the path of an operation below galleries without the link, which is a secret.
pub(crate) fn path_without_link(path: &str) -> Option<String> {
    GalleryCall::from_path(path).map(|call| format!("{GALLERY_PREFIX}api{}", call.path))
}

/// Returns the routes of what visitors call.
pub(super) fn routes(ctx: OperationContext) -> BoxedFilter<(Response,)> {
    let operations = OperationTable::new(visitor_operations());
    warp::path::full()
        .and_then(|path: FullPath| {
            let call = GalleryCall::from_path(path.as_str()).ok_or_else(reject::not_found);
            async move { call }
        })
        .and(extract_request())
        .then(move |call: GalleryCall, request: ApiRequest| {
            let (operations, ctx) = (operations.clone(), ctx.clone());
            async move { handle(&operations, call, ctx, request).await }
        })
        .boxed()
}

async fn handle(
    operations: &OperationTable,
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
    fn a_link_is_in_no_path() {
        let path = path_without_link("/g/4fQ2aBc8/api/gallery/search/text");
        assert_eq!(path.as_deref(), Some("/g/api/gallery/search/text"));
        assert_eq!(path_without_link("/g/4fQ2aBc8"), None);
        assert!(GalleryCall::from_path("/g/../api/gallery/get").is_none());
        assert!(GalleryCall::from_path("/g//api/gallery/get").is_none());
    }
}
