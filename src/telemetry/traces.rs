//! Sends the spans of requests and photos to an OpenTelemetry collector, as OTLP over HTTP. What OpenTelemetry calls
//! things is known here alone. Nothing waits for the collector: spans that it does not take are lost, and a line says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, TracerProvider};
use opentelemetry::{KeyValue, Value};
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
use photofinish_api::context::TraceHook;
use tracing::{Level, Metadata, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::registry::LookupSpan;

use crate::config::{Sampling, TraceSettings};
use crate::run::Role;

/// How long one request to the collector may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the last spans may take to be sent.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer of a collector that is read.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// The operation of requests for health and metrics: every few seconds one that nobody wants to look at.
const ADMIN_OPERATION: &str = "admin";
/// Crates whose spans are of a request or of a photo. Those of the networks are of batches, for measuring.
const TRACED_CRATES: [&str; 3] = ["photofinish_api", "photofinish_pipeline", "photofinish_store"];

/// The spans on their way.
pub struct TraceExporter(SdkTracerProvider);

impl TraceExporter {
    /// Starts the thread that sends. Does not look for the collector.
    ///
    /// # Errors
    /// When one of OpenTelemetry's variables cannot be used.
    pub fn start(settings: &TraceSettings, role: Role) -> anyhow::Result<Self> {
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(OtlpHttpClient::new())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(settings.endpoint.as_str())
            .build()
            .context("setting up traces (OTEL_* variables)")?;
        let resource = Resource::builder()
            .with_service_name(settings.service_name.clone())
            .with_attributes([
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("role", role.as_str()),
            ])
            .build();
        let provider = SdkTracerProvider::builder()
            .with_sampler(build_sampler(settings.sampling))
            .with_resource(resource)
            .with_batch_exporter(NormalizingExporter(exporter))
            .build();
        Ok(Self(provider))
    }

    /// What turns spans into traces.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("photofinish"))
            .with_location(false)
            .with_tracked_inactivity(false)
            .with_filter(LevelFilter::DEBUG.and(filter_fn(is_exported)))
    }

    /// Sends what is left.
    pub fn stop(self) {
        if let Err(error) = self.0.shutdown_with_timeout(SHUTDOWN_TIMEOUT) {
            tracing::warn!(%error, "the last traces were not delivered");
        }
    }
}

/// Spans of ours, and what is logged in them.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    let is_ours = metadata.target().split("::").next().is_some_and(|name| TRACED_CRATES.contains(&name));
    is_ours && (metadata.is_span() || *metadata.level() <= Level::INFO)
}

/// Makes the span of a request a child of the caller's, where it comes with a `traceparent`.
pub fn trace_hook() -> TraceHook {
    let propagator = TraceContextPropagator::new();
    Arc::new(move |span, headers| {
        let caller = propagator.extract(&HeaderExtractor(headers));
        if caller.span().span_context().is_valid() {
            // Only fails for a span that is not kept.
            let _untied = span.set_parent(caller);
        }
    })
}

fn build_sampler(sampling: Sampling) -> Sampler {
    let sampler = match sampling.ratio {
        ratio if ratio >= 1.0 => Sampler::AlwaysOn,
        ratio if ratio <= 0.0 => Sampler::AlwaysOff,
        ratio => Sampler::TraceIdRatioBased(ratio),
    };
    if sampling.by_parent { Sampler::ParentBased(Box::new(sampler)) } else { sampler }
}

/// Gives spans the names, kinds and states that OpenTelemetry knows, and passes them on.
#[derive(Debug)]
struct NormalizingExporter<E>(E);

impl<E: SpanExporter> SpanExporter for NormalizingExporter<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        batch.retain_mut(|span| {
            normalize_span(span);
            span.name != ADMIN_OPERATION
        });
        if batch.is_empty() { Ok(()) } else { self.0.export(batch).await }
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.0.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// A stage's span is called like the stage, a request's like its operation.
fn normalize_span(span: &mut SpanData) {
    let value = |name: &str| {
        let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
        found.map(|attribute| attribute.value.clone())
    };
    match span.name.as_ref() {
        "stage" => {
            if let Some(stage) = value("stage") {
                span.name = stage.as_str().into_owned().into();
            }
        }
        "request" => {
            let operation = value("operation");
            if matches!(value("status"), Some(Value::I64(500..))) {
                span.status = Status::error("");
            }
            span.span_kind = SpanKind::Server;
            if let Some(operation) = operation {
                span.name = operation.as_str().into_owned().into();
            }
        }
        "photo" if value("outcome").is_some_and(|outcome| outcome.as_str() == "failed") => {
            span.status = Status::error("");
        }
        _ => {}
    }
}

/// Carries batches to the collector, on the exporter's own thread.
#[derive(Debug)]
struct OtlpHttpClient {
    agent: ureq::Agent,
    is_failing: AtomicBool,
}

impl OtlpHttpClient {
    fn new() -> Self {
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(REQUEST_TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .build();
        Self { agent: agent.into(), is_failing: AtomicBool::new(false) }
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (parts, body) = request.into_parts();
        let answer = self.agent.run(Request::from_parts(parts, &body[..]))?;
        let (parts, mut body) = answer.into_parts();
        let body = body.with_config().limit(MAX_RESPONSE_BYTES).read_to_vec()?;
        Ok(Response::from_parts(parts, Bytes::from(body)))
    }

    /// Once per change, so that an outage is two lines of the log.
    fn log_delivery_change(&self, refused: Option<String>) {
        let was_refused = self.is_failing.swap(refused.is_some(), Ordering::AcqRel);
        match refused {
            Some(cause) if !was_refused => {
                tracing::warn!(cause, "traces are not delivered; those of this time are lost")
            }
            None if was_refused => tracing::info!("traces are delivered again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for OtlpHttpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.send(request);
        self.log_delivery_change(match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("the collector answers {}", answer.status())),
            Err(error) => Some(error.to_string()),
        });
        Ok(answer?)
    }
}
