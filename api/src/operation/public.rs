//! Operations that need neither key nor session: signing in, and what visitors of a gallery do.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::FutureExt;
use photofinish_store::model::ids::KeyId;
use photofinish_store::model::rate::RateClass;
use time::OffsetDateTime;
use uuid::Uuid;
use warp::http::header::SET_COOKIE;

use super::{ApiRequest, Charge, Handler, Operation, OperationContext, OperationInfo, SchemaFns};
use crate::body_budget::BodySender;
use crate::client_address::network_digest;
use crate::context::Context;
use crate::errors::ApiError;
use crate::operation::body::{self, BodyLimits, ReadBody};
use crate::rate_limits::RateClaim;
use crate::rate_meter::{self, Spent};
use crate::reply;
use crate::validate::input::Input;
use crate::visitor::{Answer, Visitor};
use crate::wire::Output;

/// How many requests of each class a network may make in a minute: visitors of one mobile provider share it.
const PUBLIC_LIMIT: u32 = 600;

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
            json_handler: build_public_handler(info.class, handler),
            event_handler: None,
        }
    }
}

/// Spends units of the limit of a network, given by its digest: there is no key that has one. Processes that share a database
/// share it, as those of keys.
///
/// # Errors
/// 429 above the limit.
pub(crate) async fn spend_public_rate(
    ctx: &Context,
    class: RateClass,
    units: u32,
    network: &[u8; 32],
    request: &mut ApiRequest,
) -> Result<(), ApiError> {
    if units == 0 {
        return Ok(());
    }
    let claim = claim_of_network(class, units, network);
    let decision = ctx.rate_limiter.spend(ctx.store.rate_windows.as_deref(), &claim).await?;
    request.rate = Some(decision.status);
    if decision.is_admitted { Ok(()) } else { Err(ApiError::rate_limited(decision.status.wait())) }
}

fn claim_of_network(class: RateClass, units: u32, network: &[u8; 32]) -> RateClaim {
    let (key, _) = network.split_first_chunk::<16>().expect("a digest has 32 bytes");
    RateClaim { key: KeyId(Uuid::from_bytes(*key)), class, limit: PUBLIC_LIMIT, units }
}

fn build_public_handler<I, O, F, Fut>(class: RateClass, handler: F) -> Handler
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
            let network = network_digest(&ctx.visitor_secret, request.address, OffsetDateTime::now_utc());
            spend_public_rate(&ctx, class, 1, &network, request).await?;
            let limits = BodyLimits::new(&ctx.settings, I::SIZE);
            let (headers, body, budget) = (&request.headers, &mut request.body, &ctx.body_budget);
            let sender = BodySender::Visitor(network);
            let ReadBody { bytes, permit } = body::read(headers, body, limits, budget, sender).await?;
            let input = body::parse::<I>(bytes, &shape, budget).await?;
            let units = input.units();
            let further = Charge::Input(units).units(PUBLIC_LIMIT);
            spend_public_rate(&ctx, class, further, &network, request).await?;
            let claim = claim_of_network(class, units.min(PUBLIC_LIMIT), &network);
            let spent = Some(Spent { claim, is_of_key: false });
            let link = request.link.take();
            let visitor = Visitor { headers: request.headers.clone(), address: request.address, link };
            let answer = photofinish_store::on_behalf_of_later_known(handler(ctx, visitor, input));
            let Answer { body, cookies } = rate_meter::metered(spent, &mut request.rate, answer).await?;
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
