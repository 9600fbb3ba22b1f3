//! `/healthz`, `/readyz` and `/metrics`, for operators. They need no key.

use bytes::Bytes;
use serde::Serialize;
use warp::http::header::HeaderValue;
use warp::reply::Response;

use crate::context::{ComponentState, Context};
use crate::errors::ApiError;
use crate::{reply, seats};

/// The admin endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminEndpoint {
    /// `/healthz`: the process is alive.
    Healthz,
    /// `/readyz`: every component works.
    Readyz,
    /// `/metrics`, in the Prometheus text format.
    Metrics,
}

impl AdminEndpoint {
    /// Returns the endpoint of a path, with or without a trailing slash.
    pub(crate) fn from_path(path: &str) -> Option<Self> {
        match path.strip_suffix('/').unwrap_or(path) {
            "/healthz" => Some(Self::Healthz),
            "/readyz" => Some(Self::Readyz),
            "/metrics" => Some(Self::Metrics),
            _ => None,
        }
    }

    pub(crate) async fn handle(self, ctx: &Context) -> Response {
        match self {
            Self::Healthz => reply::json_text_response(200, r#"{"alive":true}"#.to_owned()),
            Self::Readyz => check_readiness(ctx).await,
            Self::Metrics => {
                seats::report(&ctx.seats);
                let media_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                reply::body_response(media_type, Bytes::from((ctx.render_metrics)()))
            }
        }
    }
}

#[derive(Serialize)]
struct Readiness {
    ready: bool,
    parts: Vec<ComponentReport>,
}

#[derive(Serialize)]
struct ComponentReport {
    name: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Returns 200 if every component works, else 503 with the reasons; always 503 while the service is draining.
async fn check_readiness(ctx: &Context) -> Response {
    let mut parts: Vec<ComponentReport> = Vec::new();
    if ctx.draining.has_begun() {
        parts.push(ComponentReport { name: "service", state: "draining", reason: None });
    }
    if let Some(full_for) = ctx.seats.full_for() {
        let (total, seconds) = (ctx.seats.limits().total, full_for.as_secs());
        let reason = Some(format!("all {total} connections have been at work for {seconds} s"));
        parts.push(ComponentReport { name: "connections", state: "down", reason });
    }
    for component in ctx.health.check_components().await {
        let (state, reason) = match component.state {
            ComponentState::Starting => ("starting", None),
            ComponentState::Running => ("running", None),
            ComponentState::RunningWith(note) => ("running", Some(note)),
            ComponentState::Down(reason) => ("down", Some(reason)),
        };
        parts.push(ComponentReport { name: component.name, state, reason });
    }
    let ready = parts.iter().all(|part| part.state == "running");
    match serde_json::to_string(&Readiness { ready, parts }) {
        Ok(text) => reply::json_text_response(if ready { 200 } else { 503 }, text),
        Err(error) => ApiError::internal(error).into_response(),
    }
}
