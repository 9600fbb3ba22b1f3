//! Operations that need neither key nor session: signing in, and what visitors of a gallery do.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::FutureExt;
use photofinish_store::model::ids::OrganizationId;
use uuid::Uuid;
use warp::http::HeaderMap;
use warp::http::header::{HeaderValue, SET_COOKIE};

use super::{ApiRequest, Handler, Operation, OperationContext, OperationInfo, SchemaFns};
use crate::context::Context;
use crate::errors::ApiError;
use crate::operation::body::{self, BodyLimits, ReadBody};
use crate::reply;
use crate::validate::input::Input;
use crate::wire::Output;

/// Whose part of the memory for bodies they use: that of nobody else.
const NOBODY: OrganizationId = OrganizationId(Uuid::nil());

/// Who sends a request without key and session.
pub(crate) struct Visitor {
    /// The headers of the request.
    pub(crate) headers: HeaderMap,
    /// Where it comes from.
    pub(crate) address: IpAddr,
    /// The secret part of the address of the gallery in which it is.
    pub(crate) link: Option<String>,
}

/// The body of a response, and the cookies that it sets.
pub(crate) struct Answer<O> {
    body: O,
    cookies: Vec<HeaderValue>,
}

impl<O> Answer<O> {
    /// An answer that sets a cookie.
    pub(crate) fn with_cookie(body: O, cookie: HeaderValue) -> Self {
        Self { body, cookies: vec![cookie] }
    }
}

impl<O> From<O> for Answer<O> {
    fn from(body: O) -> Self {
        Self { body, cookies: Vec::new() }
    }
}

impl Operation {
    /// Creates an operation that anybody may call.
    pub(crate) fn new_public<I, O, F, Fut>(info: OperationInfo, handler: F) -> Self
    where
        I: Input + Send + 'static,
        O: Output + 'static,
        F: Fn(Context, Visitor, I) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<Answer<O>, ApiError>> + Send + 'static,
    {
        Self {
            info,
            schema_fns: SchemaFns::of::<I, O>(),
            scope: None,
            has_events: false,
            is_public: true,
            json_handler: build_public_handler(handler),
            event_handler: None,
        }
    }
}

fn build_public_handler<I, O, F, Fut>(handler: F) -> Handler
where
    I: Input + Send + 'static,
    O: Output + 'static,
    F: Fn(Context, Visitor, I) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer<O>, ApiError>> + Send + 'static,
{
    let shape = Arc::new(I::shape());
    Arc::new(move |OperationContext { ctx, .. }: OperationContext, request: &mut ApiRequest| {
        let shape = Arc::clone(&shape);
        async move {
            let limits = BodyLimits::new(&ctx.settings, I::SIZE);
            let (headers, body, budget) = (&request.headers, &mut request.body, &ctx.body_budget);
            let ReadBody { bytes, permit } = body::read(headers, body, limits, budget, NOBODY).await?;
            let input = body::parse::<I>(bytes, &shape, budget).await?;
            let link = request.link.take();
            let visitor = Visitor { headers: request.headers.clone(), address: request.address, link };
            let Answer { body, cookies } = handler(ctx, visitor, input).await?;
            let mut response = reply::json_response(&body).map_err(ApiError::internal)?;
            for cookie in cookies {
                response.headers_mut().append(SET_COOKIE, cookie);
            }
            drop(permit);
            Ok(response)
        }
        .boxed()
    })
}
