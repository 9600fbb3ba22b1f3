//! An operation of the partner API: its id and path, its input and output types, and its handler.
//!
//! The router and the OpenAPI document are both made from the same list of operations, so they cannot differ. Every
//! request to an operation passes the same steps: method, `accept` header, key and scope, limit, body, validation, handler.

pub(crate) mod accept;
pub(crate) mod body;
pub(crate) mod catalog;
pub(crate) mod console;
mod credits;
mod erasures;
mod galleries;
mod info;
mod pictures;
pub(crate) mod public;
pub(crate) mod visitors;

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use photofinish_store::model::key::Scope;
use photofinish_store::model::rate::RateClass;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use warp::http::header::{CONNECTION, HeaderValue};
use warp::http::{HeaderMap, Method};
use warp::reply::Response;

use crate::auth::{AnyScope, Authenticator, Caller, Gate, ScopedCaller};
use crate::body_budget::BodySender;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::metrics::RATE_LIMITED;
use crate::operation::accept::AcceptedFormat;
use crate::operation::body::{BodyLimits, ReadBody, RequestBody};
use crate::rate_limits::{RateClaim, RateStatus};
use crate::rate_meter::{self, Spent};
use crate::reply;
use crate::sse::LastEventId;
use crate::validate::input::Input;
use crate::validate::validators::Schemas;
use crate::wire::Output;

/// The path under which the partner API is.
pub(crate) const BASE_PATH: &str = "/openapi";

/// An operation of the partner API.
pub(crate) struct Operation {
    /// Id and texts.
    pub(crate) info: OperationInfo,
    /// Schemas and examples of its bodies.
    pub(crate) schema_fns: SchemaFns,
    /// The required scope; `None` if any valid key is enough.
    pub(crate) scope: Option<Scope>,
    /// Whether it can also respond with a stream of events.
    pub(crate) has_events: bool,
    /// Whether it needs neither key nor session.
    is_public: bool,
    json_handler: Handler,
    event_handler: Option<Handler>,
}

/// The id and the texts of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationInfo {
    /// The operation id, for example `albums.create`.
    pub(crate) id: &'static str,
    /// One line: verb and object.
    pub(crate) summary: &'static str,
    /// What a partner should know beyond the fields, in Markdown; may be empty.
    pub(crate) description: &'static str,
    /// Which limit of a key its requests spend.
    pub(crate) class: RateClass,
}

impl OperationInfo {
    /// Returns the path below [`BASE_PATH`], for example `/albums/create`.
    pub(crate) fn path(&self) -> String {
        format!("/{}", self.id.replace('.', "/"))
    }
}

/// Functions that describe an operation's bodies in the OpenAPI document, adding the schemas they name.
pub(crate) struct SchemaFns {
    /// Adds the request's schema; returns its name and whether a body is required.
    pub(crate) input: fn(&mut Schemas) -> (&'static str, bool),
    /// Returns an example of a request.
    pub(crate) input_example: fn() -> Value,
    /// Adds the response's schema and returns a reference to it.
    pub(crate) output: fn(&mut Schemas) -> RefOr<Schema>,
    /// Returns an example of a response.
    pub(crate) output_example: fn() -> serde_json::Result<Value>,
    /// Reads any body as its request, for fuzzing.
    #[cfg(feature = "fuzzing")]
    pub(crate) check_body: fn(&str) -> bool,
}

impl SchemaFns {
    /// The functions of an input and an output.
    fn of<I: Input, O: Output>() -> Self {
        Self {
            input: |schemas| (I::NAME, I::describe(schemas)),
            input_example: I::example,
            output: add_output_schema::<O>,
            output_example: || serde_json::to_value(O::example()),
            #[cfg(feature = "fuzzing")]
            check_body: crate::validate::fuzzed::check_body::<I>,
        }
    }
}

/// A request whose body has not been read.
pub(crate) struct ApiRequest {
    /// How its caller shows who it is.
    pub(crate) gate: Gate,
    /// Where it comes from; the address of no machine where that is not known.
    pub(crate) address: IpAddr,
    /// The secret part of a gallery's address.
    pub(crate) link: Option<String>,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: RequestBody,
    /// What is left of the limit that it spends; `None` while nothing was spent, and without a limit.
    pub(crate) rate: Option<RateStatus>,
}

/// The dependencies of all operations.
#[derive(Clone)]
pub(crate) struct OperationContext {
    pub(crate) ctx: Context,
    pub(crate) authenticator: Arc<Authenticator>,
}

type Handler = Arc<
    dyn for<'a> Fn(OperationContext, &'a mut ApiRequest) -> BoxFuture<'a, Result<Response, ApiError>>
        + Send
        + Sync,
>;

/// The methods of an operation.
const ALLOW: &str = "POST, OPTIONS";

impl Operation {
    /// Creates an operation: callers of type `C` (which implies the scope), requests of type `I`, responses of type `O`.
    pub(crate) fn new<C, I, O, F, Fut>(info: OperationInfo, handler: F) -> Self
    where
        C: ScopedCaller,
        I: Input + Send + 'static,
        O: Output + 'static,
        F: Fn(Context, C, I) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ApiError>> + Send + 'static,
    {
        let json_handler = build_handler(info.class, move |ctx, caller, input, _| {
            let output = handler(ctx, caller, input);
            output.map(|output| reply::json_response(&output?).map_err(ApiError::internal))
        });
        Self {
            info,
            schema_fns: SchemaFns::of::<I, O>(),
            scope: C::SCOPE,
            has_events: false,
            is_public: false,
            json_handler,
            event_handler: None,
        }
    }

    /// Adds a handler for callers that accept `text/event-stream`.
    #[must_use]
    pub(crate) fn with_events<C, I, F, Fut>(self, handler: F) -> Self
    where
        C: ScopedCaller,
        I: Input + Send + 'static,
        F: Fn(Context, C, I) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        let handler = move |ctx, caller, input, _| handler(ctx, caller, input);
        let event_handler = Some(build_handler(self.info.class, handler));
        Self { has_events: true, event_handler, ..self }
    }

    /// As [`Self::with_events`], for a stream that a client can resume.
    #[must_use]
    pub(crate) fn with_resumable_events<C, I, F, Fut>(self, handler: F) -> Self
    where
        C: ScopedCaller,
        I: Input + Send + 'static,
        F: Fn(Context, C, I, LastEventId) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        let event_handler = Some(build_handler(self.info.class, handler));
        Self { has_events: true, event_handler, ..self }
    }

    /// Responds to a request of any method.
    pub(crate) async fn handle(&self, ctx: OperationContext, mut request: ApiRequest) -> Response {
        if request.method == Method::OPTIONS {
            return respond_to_options(ALLOW, &mut request.body).await;
        }
        if request.method != Method::POST {
            return respond_with_error(ApiError::method_not_allowed(ALLOW), &mut request.body).await;
        }
        let format = accept::negotiate_format(&request.headers, self.has_events);
        let result = match (format, &self.event_handler) {
            (AcceptedFormat::Events, Some(handler)) => handler(ctx, &mut request).await,
            (AcceptedFormat::Json, _) => (self.json_handler)(ctx, &mut request).await,
            (AcceptedFormat::Events | AcceptedFormat::Neither, _) => {
                self.reject_accept_header(&ctx, request.gate, &request.headers).await
            }
        };
        let mut response = match result {
            Ok(response) => response,
            Err(error) => respond_with_error(error, &mut request.body).await,
        };
        if let Some(rate) = request.rate {
            rate.add_to(response.headers_mut());
        }
        response
    }

    /// Returns a 406, but only to callers with a valid key or session: a 401 takes precedence over every other error.
    async fn reject_accept_header(
        &self,
        ctx: &OperationContext,
        gate: Gate,
        headers: &HeaderMap,
    ) -> Result<Response, ApiError> {
        if !self.is_public {
            ctx.authenticator.authenticate::<AnyScope>(gate, headers).await?;
        }
        Err(ApiError::new(ErrorKind::NotAcceptable))
    }
}

/// Reads and discards the rest of the request body, then returns the error's response. The connection is closed if the
/// body could not be read to its end.
pub(crate) async fn respond_with_error(error: ApiError, body: &mut RequestBody) -> Response {
    let is_reusable = !error.closes_connection() && body.discard().await;
    let error = if is_reusable { error } else { error.with_connection_close() };
    error.into_response()
}

/// The same for OPTIONS: returns the methods that a path supports, in a 204.
pub(crate) async fn respond_to_options(allow: &'static str, body: &mut RequestBody) -> Response {
    let is_reusable = body.discard().await;
    let mut response = reply::options_response(allow);
    if !is_reusable {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Wraps the handler of an operation in the steps that all operations have.
fn build_handler<C, I, F, Fut>(class: RateClass, handler: F) -> Handler
where
    C: ScopedCaller,
    I: Input + Send + 'static,
    F: Fn(Context, C, I, LastEventId) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
{
    let shape = Arc::new(I::shape());
    Arc::new(move |operation_ctx: OperationContext, request: &mut ApiRequest| {
        let shape = Arc::clone(&shape);
        async move {
            let OperationContext { ctx, authenticator } = operation_ctx;
            let caller = authenticator.authenticate::<C>(request.gate, &request.headers).await?;
            spend_rate(&ctx, &caller, class, Charge::Request, &mut request.rate).await?;
            let limits = BodyLimits::new(&ctx.settings, I::SIZE);
            let (headers, body, budget) = (&request.headers, &mut request.body, &ctx.body_budget);
            let organization = caller.tenant.organization;
            let sender = BodySender::Organization(organization);
            let ReadBody { bytes, permit } = body::read(headers, body, limits, budget, sender).await?;
            let input = body::parse::<I>(bytes, &shape, budget).await?;
            let units = input.units();
            spend_rate(&ctx, &caller, class, Charge::Input(units), &mut request.rate).await?;
            let spent = caller.rate_limit(class, &ctx.settings.rate_limits).map(|limit| {
                let claim = RateClaim { key: caller.key, class, limit, units: units.min(limit) };
                Spent { claim, is_of_key: true }
            });
            let answer = handler(ctx, caller, input, LastEventId::from_headers(headers));
            let answer = photofinish_store::on_behalf_of(organization, answer);
            let answered = rate_meter::metered(spent, &mut request.rate, answer).await;
            // Not before: what the handler was given may be as large as the body.
            drop(permit);
            answered
        }
        .boxed()
    })
}

/// For what a limit is spent.
#[derive(Clone, Copy)]
enum Charge {
    /// A request, before its body is read: one above the limit costs little.
    Request,
    /// Its input, which costs so many units together with the request.
    Input(u32),
}

impl Charge {
    /// Returns what is spent of a limit: with the request no more than all of it, else no window would ever admit a batch that
    /// costs more.
    fn units(self, limit: u32) -> u32 {
        match self {
            Self::Request => 1,
            Self::Input(all) => all.min(limit).saturating_sub(1),
        }
    }
}

/// Spends the limit of the caller's key, and keeps what is left of it for the headers of the response.
///
/// # Errors
/// 429 above the limit; 503 if the database cannot be asked.
async fn spend_rate(
    ctx: &Context,
    caller: &Caller,
    class: RateClass,
    charge: Charge,
    rate: &mut Option<RateStatus>,
) -> Result<(), ApiError> {
    let Some(limit) = caller.rate_limit(class, &ctx.settings.rate_limits) else { return Ok(()) };
    let units = charge.units(limit);
    if units == 0 {
        return Ok(());
    }
    let claim = RateClaim { key: caller.key, class, limit, units };
    let spend = ctx.rate_limiter.spend(ctx.store.rate_windows.as_deref(), &claim);
    let decision = photofinish_store::on_behalf_of(caller.tenant.organization, spend).await?;
    *rate = Some(decision.status);
    if decision.is_admitted {
        return Ok(());
    }
    metrics::counter!(RATE_LIMITED, "class" => class.as_str()).increment(1);
    Err(ApiError::rate_limited(decision.status.wait()))
}

fn add_output_schema<O: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    let mut named = vec![(O::name().into_owned(), O::schema())];
    O::schemas(&mut named);
    schemas.extend(named);
    utoipa::openapi::Ref::from_schema_name(O::name()).into()
}
