//! Routes requests by path. The operations are one filter, which looks for the path in a table; everything is mounted with
//! `.then`, and a single `recover` at the root turns warp's rejections into error bodies.

use std::convert::Infallible;
use std::sync::Arc;

use warp::filters::BoxedFilter;
use warp::path::FullPath;
use warp::reply::Response;
use warp::{Filter, Rejection, reject};

use crate::auth::Authenticator;
use crate::context::Context;
use crate::downloads::DOWNLOADS_PREFIX;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::openapi::{Document, Documents};
use crate::operation::catalog;
use crate::operation::{self, ApiRequest, BASE_PATH, Operation, OperationContext};
use crate::server::admin::AdminEndpoint;
use crate::server::operation_table::OperationTable;
use crate::server::pages::{self, Audience};
use crate::server::read_only::read_only;
use crate::server::receipt_keys::{self, RECEIPT_KEYS_PATH};
use crate::server::request::extract_request;
use crate::server::storage::{self, ObjectUrl, STORAGE_PREFIX};
use crate::server::{console, downloads, gallery};

/// Returns the whole service as one filter that never rejects. [`crate::serve`] adds request ids, time limits, metrics
/// and the response to panics.
pub fn routes(ctx: Context) -> BoxedFilter<(Response,)> {
    let operation_ctx =
        OperationContext { authenticator: Arc::new(Authenticator::new(&ctx)), ctx: ctx.clone() };
    let mut all = operations_route(operation_ctx.clone());
    all = all.or(document_route()).unify().boxed();
    all = all.or(receipt_keys_route(ctx.clone())).unify().boxed();
    all = all.or(downloads_route(ctx.clone())).unify().boxed();
    let people = &ctx.settings.console;
    if people.is_enabled {
        let audience = if people.is_on_api_port { Audience::Everybody } else { Audience::Visitors };
        if people.is_on_api_port {
            all = all.or(console::operations_route(operation_ctx.clone(), people.proxies)).unify().boxed();
        }
        all = all.or(pages::routes(&ctx, audience)).unify().boxed();
        all = all.or(gallery::routes(operation_ctx)).unify().boxed();
    }
    if ctx.store.local.is_some() {
        all = all.or(storage_route(ctx.clone())).unify().boxed();
    }
    if ctx.settings.admin_on_api_port {
        all = all.or(admin_route(ctx)).unify().boxed();
    }
    all.or(unknown_route()).unify().recover(recover_rejection).unify().boxed()
}

/// Returns the routes of the console, for a port of its own.
pub fn console_routes(ctx: Context) -> BoxedFilter<(Response,)> {
    let operation_ctx =
        OperationContext { authenticator: Arc::new(Authenticator::new(&ctx)), ctx: ctx.clone() };
    let operations = console::operations_route(operation_ctx, ctx.settings.console.console_proxies);
    let all = operations.or(pages::routes(&ctx, Audience::Accounts)).unify();
    all.or(unknown_route()).unify().recover(recover_rejection).unify().boxed()
}

/// Returns the routes of health and metrics, for a port of their own.
pub fn admin_routes(ctx: Context) -> BoxedFilter<(Response,)> {
    admin_route(ctx).or(unknown_route()).unify().recover(recover_rejection).unify().boxed()
}

fn operations_route(ctx: OperationContext) -> BoxedFilter<(Response,)> {
    OperationTable::new(catalog::all_operations())
        .below(BASE_PATH)
        .and(extract_request())
        .then(move |operation: Arc<Operation>, request| {
            let ctx = ctx.clone();
            async move { operation.handle(ctx, request).await }
        })
        .boxed()
}

fn document_route() -> BoxedFilter<(Response,)> {
    let documents = Documents::shared();
    let matched = warp::path::full().and_then(move |path: FullPath| {
        let document = path.as_str().strip_prefix(BASE_PATH).and_then(|rest| documents.get(rest)).cloned();
        async move { document.ok_or_else(reject::not_found) }
    });
    read_only(matched, |document: Document, _| async move { document.respond() })
}

fn receipt_keys_route(ctx: Context) -> BoxedFilter<(Response,)> {
    let matched = match_path(RECEIPT_KEYS_PATH).map(move || ctx.clone());
    read_only(matched, |ctx: Context, _| async move { receipt_keys::handle(&ctx).await })
}

fn downloads_route(ctx: Context) -> BoxedFilter<(Response,)> {
    let matched = warp::path::full().and_then(|path: FullPath| async move {
        path.as_str().strip_prefix(DOWNLOADS_PREFIX).map(str::to_owned).ok_or_else(reject::not_found)
    });
    read_only(matched, move |ticket: String, request| {
        let ctx = ctx.clone();
        async move { downloads::handle(&ctx, &ticket, request).await }
    })
}

fn storage_route(ctx: Context) -> BoxedFilter<(Response,)> {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    warp::path::full()
        .and_then(|path: FullPath| async move {
            path.as_str().strip_prefix(STORAGE_PREFIX).map(str::to_owned).ok_or_else(reject::not_found)
        })
        .and(query)
        .and(extract_request())
        .then(move |key: String, query: String, request| {
            let ctx = ctx.clone();
            async move {
                match &ctx.store.local {
                    Some(local) => {
                        storage::handle(&ctx, local, ObjectUrl { key: &key, query: &query }, request).await
                    }
                    None => ApiError::not_found().into_response(),
                }
            }
        })
        .boxed()
}

fn admin_route(ctx: Context) -> BoxedFilter<(Response,)> {
    let matched = warp::path::full().and_then(|path: FullPath| async move {
        AdminEndpoint::from_path(path.as_str()).ok_or_else(reject::not_found)
    });
    read_only(matched, move |endpoint: AdminEndpoint, _| {
        let ctx = ctx.clone();
        async move { endpoint.handle(&ctx).await }
    })
}

/// Matches every path that no other route matches, and responds with 404. The body is read nevertheless: left unread,
/// it would close the connection, and the client's next request on it would fail without a response.
fn unknown_route() -> BoxedFilter<(Response,)> {
    extract_request()
        .then(|mut request: ApiRequest| async move {
            operation::respond_with_error(ApiError::not_found(), &mut request.body).await
        })
        .boxed()
}

/// Matches one path, with or without a trailing slash.
fn match_path(path: &'static str) -> impl Filter<Extract = (), Error = Rejection> + Clone {
    warp::path::full()
        .and_then(move |requested: FullPath| {
            let without_slash = requested.as_str().strip_suffix('/').unwrap_or(requested.as_str());
            let matched = if without_slash == path { Ok(()) } else { Err(reject::not_found()) };
            async move { matched }
        })
        .untuple_one()
}

/// Turns warp's own rejections into error responses. Handlers never reject.
async fn recover_rejection(rejection: Rejection) -> Result<Response, Infallible> {
    let error = if rejection.is_not_found() {
        ApiError::not_found()
    } else if rejection.find::<reject::MethodNotAllowed>().is_some() {
        ApiError::new(ErrorKind::MethodNotSupported)
    } else if rejection.find::<reject::PayloadTooLarge>().is_some() {
        ApiError::new(ErrorKind::PayloadTooLarge).with_connection_close()
    } else if rejection.find::<reject::UnsupportedMediaType>().is_some() {
        ApiError::new(ErrorKind::UnsupportedMediaType).with_connection_close()
    } else if rejection.find::<reject::InvalidHeader>().is_some()
        || rejection.find::<reject::InvalidQuery>().is_some()
        || rejection.find::<reject::MissingHeader>().is_some()
    {
        ApiError::new(ErrorKind::BadRequest)
    } else {
        ApiError::internal(format!("unexpected rejection: {rejection:?}"))
    };
    Ok(error.into_response())
}
