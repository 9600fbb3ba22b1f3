//! One operation of the partner API: its name, its path, the types that it takes and gives, and its handler.
//! Router and document are both made from it, so neither can have what the other lacks.
//!
//! Every operation goes the same way: method, key and scope, `accept`, body, validation, handler, answer.

pub(crate) mod accept;
pub(crate) mod body;
pub(crate) mod catalog;

use std::future::Future;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use photofinish_store::model::key::Scope;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use warp::http::{HeaderMap, Method};
use warp::reply::Response;

use crate::auth::{AnyScope, Authenticator, ScopedCaller};
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::operation::accept::AcceptedFormat;
use crate::operation::body::{BodyLimits, RequestBody};
use crate::reply;
use crate::validate::input::{self, Input, Schemas};
use crate::wire::Output;

/// An operation.
pub(crate) struct Operation {
    /// What it is called.
    pub(crate) info: OperationInfo,
    /// What its body and its answer look like.
    pub(crate) schema_fns: SchemaFns,
    /// The scope that it takes; `None` when any key will do.
    pub(crate) scope: Option<Scope>,
    /// Whether it also answers a stream of events.
    pub(crate) has_events: bool,
    json_handler: Handler,
    event_handler: Option<Handler>,
}

/// What an operation is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationInfo {
    /// The operation id, for example `albums.create`.
    pub(crate) id: &'static str,
    /// One line.
    pub(crate) summary: &'static str,
    /// What a partner should know beyond the fields; may be empty.
    pub(crate) description: &'static str,
}

impl OperationInfo {
    /// The path below `/openapi`, for example `/albums/create`.
    pub(crate) fn path(&self) -> String {
        format!("/{}", self.id.replace('.', "/"))
    }
}

/// Describes a body, naming its schemas in the document.
pub(crate) struct SchemaFns {
    /// The request's schema; whether a body is required.
    pub(crate) input: fn(&mut Schemas) -> (&'static str, bool),
    /// A request.
    pub(crate) input_example: fn() -> Value,
    /// The answer's schema.
    pub(crate) output: fn(&mut Schemas) -> RefOr<Schema>,
    /// An answer.
    pub(crate) output_example: fn() -> serde_json::Result<Value>,
}

/// A request that has found its operation.
pub(crate) struct ApiRequest {
    /// How it came.
    pub(crate) method: Method,
    /// Its headers.
    pub(crate) headers: HeaderMap,
    /// Its body, unread.
    pub(crate) body: RequestBody,
}

/// What operations share.
#[derive(Clone)]
pub(crate) struct OperationContext {
    /// What handlers are given.
    pub(crate) ctx: Context,
    /// Judges keys.
    pub(crate) authenticator: Arc<Authenticator>,
}

type Handler = Arc<
    dyn for<'a> Fn(OperationContext, &'a mut ApiRequest) -> BoxFuture<'a, Result<Response, ApiError>>
        + Send
        + Sync,
>;

/// The methods of an operation's path.
const ALLOW: &str = "POST, OPTIONS";

impl Operation {
    /// An operation whose handler takes a caller of type `C` and a body of type `I`, and answers JSON of type `O`.
    pub(crate) fn new<C, I, O, F, Fut>(info: OperationInfo, handler: F) -> Self
    where
        C: ScopedCaller,
        I: Input + Send + 'static,
        O: Output + 'static,
        F: Fn(Context, C, I) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ApiError>> + Send + 'static,
    {
        let json_handler = build_handler(move |ctx, caller, input| {
            handler(ctx, caller, input).map(|answer| reply::json_response(&answer?))
        });
        let schema_fns = SchemaFns {
            input: |schemas| (I::NAME, I::describe(schemas)),
            input_example: I::example,
            output: add_output_schema::<O>,
            output_example: || serde_json::to_value(O::example()),
        };
        Self { info, schema_fns, scope: C::SCOPE, has_events: false, json_handler, event_handler: None }
    }

    /// Also answers a stream of events, to callers who accept `text/event-stream`.
    #[must_use]
    pub(crate) fn with_events<C, I, F, Fut>(self, handler: F) -> Self
    where
        C: ScopedCaller,
        I: Input + Send + 'static,
        F: Fn(Context, C, I) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        Self { has_events: true, event_handler: Some(build_handler(handler)), ..self }
    }

    /// The answer to a request, whatever it is.
    pub(crate) async fn handle(&self, desk: OperationContext, mut call: ApiRequest) -> Response {
        if call.method == Method::OPTIONS {
            return reply::options_response(ALLOW);
        }
        if call.method != Method::POST {
            return respond_with_error(ApiError::method_not_allowed(ALLOW), &mut call.body).await;
        }
        let answered = match (accept::negotiate_format(&call.headers, self.has_events), &self.event_handler) {
            (AcceptedFormat::Events, Some(events)) => events(desk, &mut call).await,
            (AcceptedFormat::Json, _) => (self.json_handler)(desk, &mut call).await,
            (AcceptedFormat::Events | AcceptedFormat::Neither, _) => {
                reject_accept_header(&desk, &call.headers).await
            }
        };
        match answered {
            Ok(response) => response,
            Err(error) => respond_with_error(error, &mut call.body).await,
        }
    }
}

/// 406, but only to callers with a valid key: authentication is judged first.
async fn reject_accept_header(desk: &OperationContext, headers: &HeaderMap) -> Result<Response, ApiError> {
    desk.authenticator.authenticate::<AnyScope>(headers).await?;
    Err(ApiError::new(ErrorKind::NotAcceptable))
}

/// An error's answer, once the client has sent the body that nobody wants.
pub(crate) async fn respond_with_error(error: ApiError, body: &mut RequestBody) -> Response {
    let reusable = !error.closes_connection() && body.discard().await;
    let error = if reusable { error } else { error.with_connection_close() };
    error.into_response()
}

/// The way of every operation, with one handler at its end.
fn build_handler<C, I, F, Fut>(handler: F) -> Handler
where
    C: ScopedCaller,
    I: Input + Send + 'static,
    F: Fn(Context, C, I) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
{
    Arc::new(move |desk: OperationContext, call: &mut ApiRequest| {
        async move {
            let caller = desk.authenticator.authenticate::<C>(&call.headers).await?;
            let limits = BodyLimits::from_settings(&desk.ctx.settings);
            let body = body::read_json(&call.headers, &mut call.body, limits).await?;
            let input = input::parse::<I>(body.as_ref()).map_err(|issues| ApiError::invalid(&issues))?;
            handler(desk.ctx, caller, input).await
        }
        .boxed()
    })
}

fn add_output_schema<O: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    let mut named = vec![(O::name().into_owned(), O::schema())];
    O::schemas(&mut named);
    schemas.extend(named);
    utoipa::openapi::Ref::from_schema_name(O::name()).into()
}
