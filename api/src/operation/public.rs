//! Operations that need neither key nor session: signing in, and what visitors of a gallery do.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::FutureExt;
use photofinish_store::model::ids::OrganizationId;
use uuid::Uuid;
use warp::http::header::SET_COOKIE;

use super::{ApiRequest, Handler, Operation, OperationContext, OperationInfo, SchemaFns};
use crate::context::Context;
use crate::errors::ApiError;
use crate::operation::body::{self, BodyLimits, ReadBody};
use crate::reply;
use crate::validate::input::Input;
use crate::visitor::{Answer, Visitor};
use crate::wire::Output;

/// Whose part of the memory for bodies they use: that of nobody else.
const NOBODY: OrganizationId = OrganizationId(Uuid::nil());

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
