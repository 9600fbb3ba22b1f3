//! One operation of the partner API: its name, its path, the types that it takes and gives, and its handler.
//! Router and document are both made from it, so neither can have what the other lacks.
//!
//! Every operation goes the same way: method, key and scope, `accept`, body, validation, handler, answer.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use photofinish_store::key::Scope;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use warp::http::{HeaderMap, Method};
use warp::reply::Response;

use crate::accept::{self, Wanted};
use crate::auth::{AnyCaller, Gate, Permitted};
use crate::body::{self, Body, BodyLimits};
use crate::context::Context;
use crate::error::ApiError;
use crate::error_table::ErrorKind;
use crate::input::{self, Input, Schemas};
use crate::reply;
use crate::wire::Output;

/// An operation.
pub(crate) struct Operation {
    /// What it is called.
    pub(crate) about: About,
    /// What its body and its answer look like.
    pub(crate) shapes: Shapes,
    /// The scope that it takes; `None` when any key will do.
    pub(crate) scope: Option<Scope>,
    /// Whether it also answers a stream of events.
    pub(crate) streams: bool,
    answer: Answer,
    events: Option<Answer>,
}

/// What an operation is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// The operation id, for example `albums.create`.
    pub(crate) id: &'static str,
    /// One line.
    pub(crate) summary: &'static str,
    /// What a partner should know beyond the fields; may be empty.
    pub(crate) description: &'static str,
}

impl About {
    /// The path below `/openapi`, for example `/albums/create`.
    pub(crate) fn path(&self) -> String {
        format!("/{}", self.id.replace('.', "/"))
    }
}

/// Describes a body, naming its schemas in the document.
pub(crate) struct Shapes {
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
pub(crate) struct Call {
    /// How it came.
    pub(crate) method: Method,
    /// Its headers.
    pub(crate) headers: HeaderMap,
    /// Its body, unread.
    pub(crate) body: Body,
}

/// What operations share.
#[derive(Clone)]
pub(crate) struct Desk {
    /// What handlers are given.
    pub(crate) ctx: Context,
    /// Judges keys.
    pub(crate) gate: Arc<Gate>,
}

type Answer =
    Arc<dyn for<'a> Fn(Desk, &'a mut Call) -> BoxFuture<'a, Result<Response, ApiError>> + Send + Sync>;

/// The methods of an operation's path.
const ALLOW: &str = "POST, OPTIONS";

impl Operation {
    /// An operation whose handler takes a caller of type `C` and a body of type `I`, and answers JSON of type `O`.
    pub(crate) fn new<C, I, O, F, Fut>(about: About, handler: F) -> Self
    where
        C: Permitted,
        I: Input + Send + 'static,
        O: Output + 'static,
        F: Fn(Context, C, I) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ApiError>> + Send + 'static,
    {
        let answer =
            answer(move |ctx, caller, input| handler(ctx, caller, input).map(|answer| reply::json(&answer?)));
        let shapes = Shapes {
            input: |schemas| (I::NAME, I::describe(schemas)),
            input_example: I::example,
            output: schema_of::<O>,
            output_example: || serde_json::to_value(O::example()),
        };
        Self { about, shapes, scope: C::SCOPE, streams: false, answer, events: None }
    }

    /// Also answers a stream of events, to callers who accept `text/event-stream`.
    #[must_use]
    pub(crate) fn or_events<C, I, F, Fut>(self, handler: F) -> Self
    where
        C: Permitted,
        I: Input + Send + 'static,
        F: Fn(Context, C, I) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
    {
        Self { streams: true, events: Some(answer(handler)), ..self }
    }

    /// The answer to a request, whatever it is.
    pub(crate) async fn respond(&self, desk: Desk, mut call: Call) -> Response {
        if call.method == Method::OPTIONS {
            return reply::options(ALLOW);
        }
        if call.method != Method::POST {
            return refusal(ApiError::method(ALLOW), &mut call.body).await;
        }
        let answered = match (accept::wanted(&call.headers, self.streams), &self.events) {
            (Wanted::Events, Some(events)) => events(desk, &mut call).await,
            (Wanted::Json, _) => (self.answer)(desk, &mut call).await,
            (Wanted::Events | Wanted::Neither, _) => refuse_accept(&desk, &call.headers).await,
        };
        match answered {
            Ok(response) => response,
            Err(error) => refusal(error, &mut call.body).await,
        }
    }
}

/// 406, but only to callers with a valid key: authentication is judged first.
async fn refuse_accept(desk: &Desk, headers: &HeaderMap) -> Result<Response, ApiError> {
    desk.gate.admit::<AnyCaller>(headers).await?;
    Err(ApiError::of(ErrorKind::NotAcceptable))
}

/// An error's answer, once the client has sent the body that nobody wants.
pub(crate) async fn refusal(error: ApiError, body: &mut Body) -> Response {
    let reusable = !error.closes() && body.discard().await;
    let error = if reusable { error } else { error.closing() };
    error.into_response()
}

/// The way of every operation, with one handler at its end.
fn answer<C, I, F, Fut>(handler: F) -> Answer
where
    C: Permitted,
    I: Input + Send + 'static,
    F: Fn(Context, C, I) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
{
    Arc::new(move |desk: Desk, call: &mut Call| {
        async move {
            let caller = desk.gate.admit::<C>(&call.headers).await?;
            let limits = BodyLimits::of(&desk.ctx.settings);
            let body = body::json(&call.headers, &mut call.body, limits).await?;
            let input = input::parse::<I>(body.as_ref()).map_err(|issues| ApiError::invalid(&issues))?;
            handler(desk.ctx, caller, input).await
        }
        .boxed()
    })
}

fn schema_of<O: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    let mut named = vec![(O::name().into_owned(), O::schema())];
    O::schemas(&mut named);
    schemas.extend(named);
    utoipa::openapi::Ref::from_schema_name(O::name()).into()
}
