//! `/healthz`, `/readyz` and `/metrics`: for whoever runs the service, not for partners. No keys.

use bytes::Bytes;
use serde::Serialize;
use warp::http::Method;
use warp::http::header::HeaderValue;
use warp::reply::Response;

use crate::context::{Context, PartState};
use crate::error::ApiError;
use crate::reply;

/// The methods of an admin path.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// The admin paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// Alive.
    Healthz,
    /// Ready for requests.
    Readyz,
    /// Prometheus text.
    Metrics,
}

impl Page {
    /// The page at a path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        match path.strip_suffix('/').unwrap_or(path) {
            "/healthz" => Some(Self::Healthz),
            "/readyz" => Some(Self::Readyz),
            "/metrics" => Some(Self::Metrics),
            _ => None,
        }
    }

    /// The answer to a request for it.
    pub(crate) async fn respond(self, ctx: &Context, method: &Method) -> Response {
        match *method {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => return reply::options(ALLOW),
            _ => return ApiError::method(ALLOW).into_response(),
        }
        match self {
            Self::Healthz => reply::json_text(200, r#"{"alive":true}"#.to_owned()),
            Self::Readyz => readiness(ctx).await,
            Self::Metrics => {
                let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                reply::content(kind, Bytes::from((ctx.metrics)()))
            }
        }
    }
}

#[derive(Serialize)]
struct Readiness {
    ready: bool,
    parts: Vec<PartReport>,
}

#[derive(Serialize)]
struct PartReport {
    name: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// 200 when every part serves, 503 with the reasons otherwise, and from the moment the service is leaving.
async fn readiness(ctx: &Context) -> Response {
    let mut parts: Vec<PartReport> = Vec::new();
    if ctx.draining.has_begun() {
        parts.push(PartReport { name: "service", state: "draining", reason: None });
    }
    for part in ctx.health.parts().await {
        let (state, reason) = match part.state {
            PartState::Starting => ("starting", None),
            PartState::Running => ("running", None),
            PartState::Down(reason) => ("down", Some(reason)),
        };
        parts.push(PartReport { name: part.name, state, reason });
    }
    let ready = parts.iter().all(|part| part.state == "running");
    let text = serde_json::to_string(&Readiness { ready, parts });
    match text {
        Ok(text) => reply::json_text(if ready { 200 } else { 503 }, text),
        Err(error) => ApiError::internal(error).into_response(),
    }
}
