//! The console: its pages, and the operations behind the gate of sessions.
//!
//! The same operations as for partners are mounted here, beside those of the console alone. Every request must come from a page
//! of this host.

use std::collections::HashMap;
use std::sync::Arc;

use warp::filters::BoxedFilter;
use warp::path::FullPath;
use warp::reply::Response;
use warp::{Filter, reject};

use super::request::extract_request;
use crate::auth::Gate;
use crate::client_address::client_address;
use crate::errors::ApiError;
use crate::operation::console::console_operations;
use crate::operation::{self, ApiRequest, Operation, OperationContext, catalog};
use crate::same_origin;

/// The path under which the operations are.
pub(crate) const CONSOLE_API: &str = "/console/api";

/// The operations by their paths.
type Operations = Arc<HashMap<String, Operation>>;

/// Returns the route of the operations.
pub(super) fn operations_route(ctx: OperationContext) -> BoxedFilter<(Response,)> {
    let all = catalog::all_operations().into_iter().chain(console_operations());
    let operations: Operations = Arc::new(all.map(|operation| (operation.info.path(), operation)).collect());
    let known = Arc::clone(&operations);
    warp::path::full()
        .and_then(move |path: FullPath| {
            let path = path.as_str().strip_prefix(CONSOLE_API).filter(|path| known.contains_key(*path));
            let found = path.map(str::to_owned).ok_or_else(reject::not_found);
            async move { found }
        })
        .and(extract_request())
        .then(move |path: String, request: ApiRequest| {
            let (operations, ctx) = (Arc::clone(&operations), ctx.clone());
            async move { handle(&operations, &path, ctx, request).await }
        })
        .boxed()
}

async fn handle(
    operations: &Operations,
    path: &str,
    ctx: OperationContext,
    mut request: ApiRequest,
) -> Response {
    if ctx.ctx.settings.console.is_gallery_host(&request.headers) {
        return operation::respond_with_error(ApiError::not_found(), &mut request.body).await;
    }
    if let Err(error) = same_origin::check(&request.headers) {
        return operation::respond_with_error(error, &mut request.body).await;
    }
    request.gate = Gate::Session;
    request.address = client_address(request.address, &request.headers, ctx.ctx.settings.console.proxies);
    match operations.get(path) {
        Some(operation) => operation.handle(ctx, request).await,
        None => {
            let error = ApiError::not_found();
            operation::respond_with_error(error, &mut request.body).await
        }
    }
}
