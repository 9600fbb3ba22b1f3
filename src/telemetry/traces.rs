//! Exports the spans of requests and photos to an OpenTelemetry collector, as OTLP over HTTP. The only module that knows
//! OpenTelemetry's names. Nothing waits for the collector: spans that it does not accept are lost, and a log line says so.

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
use crate::role::Role;

/// How long one request to the collector may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the export of the remaining spans may take at a stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest response body of a collector that is read.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// The operation of health and metrics requests, which arrive every few seconds and are not exported.
const ADMIN_OPERATION: &str = "admin";
/// Crates whose spans describe a request or a photo. Those of the models describe batches, for benchmarks.
const TRACED_CRATES: [&str; 3] = ["photofinish_api", "photofinish_pipeline", "photofinish_store"];

/// Batches spans and sends them from a thread of its own.
pub struct TraceExporter(SdkTracerProvider);

impl TraceExporter {
    /// Starts the exporter thread. Does not connect to the collector.
    ///
    /// # Errors
    /// When an `OTEL_*` variable has an invalid value.
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

    /// The subscriber layer that records spans for export.
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

    /// Exports the remaining spans. Blocks for up to [`SHUTDOWN_TIMEOUT`].
    pub fn stop(self) {
        if let Err(error) = self.0.shutdown_with_timeout(SHUTDOWN_TIMEOUT) {
            tracing::warn!(%error, "failed to export the last traces");
        }
    }
}

/// Spans of [`TRACED_CRATES`], and the events of level INFO and above inside them.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    let is_traced = metadata.target().split("::").next().is_some_and(|name| TRACED_CRATES.contains(&name));
    is_traced && (metadata.is_span() || *metadata.level() <= Level::INFO)
}

/// Makes the span of a request a child of the caller's span, where the request has a `traceparent` header.
pub fn trace_hook() -> TraceHook {
    let propagator = TraceContextPropagator::new();
    Arc::new(move |span, headers| {
        let caller = propagator.extract(&HeaderExtractor(headers));
        if caller.span().span_context().is_valid() {
            // Fails only for a span that is not sampled.
            let _unlinked = span.set_parent(caller);
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

/// Gives spans the names, kinds and statuses of OpenTelemetry, and passes them on to the exporter `E`.
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

/// Names a stage's span after the stage and a request's span after its operation; marks failures.
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

/// Sends batches to the collector, on the exporter's thread.
#[derive(Debug)]
struct OtlpHttpClient {
    agent: ureq::Agent,
    /// Whether the last request failed.
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
        let response = self.agent.run(Request::from_parts(parts, &body[..]))?;
        let (parts, mut body) = response.into_parts();
        let body = body.with_config().limit(MAX_RESPONSE_BYTES).read_to_vec()?;
        Ok(Response::from_parts(parts, Bytes::from(body)))
    }

    /// Logs only changes, so that an outage is two lines of the log.
    fn log_delivery_change(&self, failure: Option<String>) {
        let was_failing = self.is_failing.swap(failure.is_some(), Ordering::AcqRel);
        match failure {
            Some(error) if !was_failing => {
                tracing::warn!(error, "failed to export traces, dropping them until the collector responds")
            }
            None if was_failing => tracing::info!("exporting traces again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for OtlpHttpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.send(request);
        self.log_delivery_change(match &response {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("the collector responds {}", response.status())),
            Err(error) => Some(error.to_string()),
        });
        Ok(response?)
    }
}
