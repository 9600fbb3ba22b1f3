//! What handlers are given. The pipeline and the networks are known here only by what the API asks of them;
//! `src` connects the two.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use photofinish_store::Store;
use photofinish_store::model::album::AlbumConfig;
use photofinish_store::model::photo::Embedding;
use photofinish_store::search::calibration::Calibration;
use tokio::sync::watch;
use tracing::Span;
use warp::http::HeaderMap;

/// What every handler may use. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Rows, bytes and the face index.
    pub store: Store,
    /// Turns selfies into vectors.
    pub probe_embedder: Arc<dyn ProbeEmbedder>,
    /// How the parts of the service are.
    pub health: Arc<dyn Health>,
    /// What the operator decided.
    pub settings: Arc<ApiSettings>,
    /// The Prometheus text of all metrics of this process.
    pub render_metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Called after photos were queued: a pipeline in this process then looks at once.
    pub on_queued: Arc<dyn Fn() + Send + Sync>,
    /// Called with each request's span and headers before anything is done: ties it to the trace of who sent it, where
    /// traces are kept.
    pub trace_hook: TraceHook,
    /// Whether the service is leaving; `Draining::default()` at start.
    pub draining: Draining,
}

/// What is told of each request's span and headers.
pub type TraceHook = Arc<dyn Fn(&Span, &HeaderMap) + Send + Sync>;

/// Whether the service is leaving: readiness is false, event streams end, connections close after their answer.
/// [`crate::serve`] begins it; whoever wants balancers to look away first begins it earlier. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Draining(Arc<watch::Sender<bool>>);

impl Draining {
    /// From now on the service is leaving.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Whether it is leaving.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is leaving.
    pub async fn wait_until_begun(&self) {
        let mut receiver = self.0.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        drop(receiver.wait_for(|begun| *begun).await);
    }
}

/// What the operator decided.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// Which keys are taken.
    pub environment: Environment,
    /// What a new album starts with.
    pub album_defaults: AlbumConfig,
    /// Largest JSON body, bytes.
    pub max_body_bytes: u64,
    /// How long the head of a request may take, from the connection or from the answer before.
    pub head_timeout: Duration,
    /// How long a body may take.
    pub body_timeout: Duration,
    /// Largest photo, bytes.
    pub max_photo_bytes: u64,
    /// Largest selfie, bytes.
    pub max_probe_bytes: u64,
    /// How long upload URLs hold.
    pub upload_ttl: Duration,
    /// How long preview and thumbnail URLs hold.
    pub download_ttl: Duration,
    /// How long an `imageId` lives.
    pub probe_ttl: Duration,
    /// Media types a photo or selfie may be declared as.
    pub media_types: Vec<String>,
    /// What a cosine is worth, by model identity (`name@version`).
    pub calibrations: HashMap<String, Calibration>,
    /// Whether health and metrics are on this port too.
    pub admin_on_api_port: bool,
}

/// Where the service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// Live keys only.
    Production,
    /// Test keys only.
    Sandbox,
    /// Both.
    Local,
}

/// Turns a selfie into a vector.
#[async_trait]
pub trait ProbeEmbedder: Send + Sync {
    /// The largest face of the selfie as a vector.
    async fn embed(&self, selfie: Bytes) -> Result<Embedding, ProbeError>;
}

/// Why a selfie has no vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeError {
    /// No face in it.
    NoFace,
    /// Not an image, or a damaged one.
    Unreadable,
    /// The desk is full.
    Busy {
        /// When to come again.
        try_again_in: Duration,
    },
    /// The networks do not serve now.
    Unavailable,
}

/// How the parts of the service are.
#[async_trait]
pub trait Health: Send + Sync {
    /// Every part that requests or photos need, checked now: database, storage, queue, models, pipeline.
    async fn check_components(&self) -> Vec<ComponentHealth>;
    /// The stage that holds the pipeline up, while it works.
    fn bottleneck(&self) -> Option<String>;
}

/// One part of the service.
#[derive(Clone, Debug)]
pub struct ComponentHealth {
    /// `database`, `storage`, `queue`, `models`, `pipeline`.
    pub name: &'static str,
    /// Whether it serves; why not otherwise.
    pub state: ComponentState,
}

/// Whether a part serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComponentState {
    /// Coming up.
    Starting,
    /// Serving.
    Running,
    /// Not serving.
    Down(String),
}
