//! The console: its pages, and the operations behind the gate of sessions.
//!
//! The same operations as for partners are mounted here, beside those of the console alone. Every request must come from a page
//! of this host.

use std::sync::Arc;

use warp::Filter;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use super::operation_table::OperationTable;
use super::request::extract_request;
use crate::auth::Gate;
use crate::client_address::client_address;
use crate::errors::ApiError;
use crate::operation::console::console_operations;
use crate::operation::{self, ApiRequest, Operation, OperationContext, catalog};
use crate::same_origin;

/// The path under which the operations are.
pub(crate) const CONSOLE_API: &str = "/console/api";

/// Returns the route of the operations, behind so many proxies of ours.
pub(super) fn operations_route(ctx: OperationContext, proxies: usize) -> BoxedFilter<(Response,)> {
    OperationTable::new(catalog::all_operations().into_iter().chain(console_operations()))
        .below(CONSOLE_API)
        .and(extract_request())
        .then(move |operation: Arc<Operation>, mut request: ApiRequest| {
            let ctx = ctx.clone();
            request.address = client_address(request.address, &request.headers, proxies);
            async move { handle(&operation, ctx, request).await }
        })
        .boxed()
}

async fn handle(operation: &Operation, ctx: OperationContext, mut request: ApiRequest) -> Response {
    if ctx.ctx.settings.console.is_gallery_host(&request.headers) {
        return operation::respond_with_error(ApiError::not_found(), &mut request.body).await;
    }
    if let Err(error) = same_origin::check(&request.headers) {
        return operation::respond_with_error(error, &mut request.body).await;
    }
    request.gate = Gate::Session;
    operation.handle(ctx, request).await
}
