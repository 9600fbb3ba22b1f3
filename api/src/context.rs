//! What handlers depend on: the store, settings, and traits for what the API needs of the rest of the service.
//!
//! This crate knows the pipeline and the neural networks only by [`ProbeEmbedder`] and [`Health`]; the binary
//! implements both.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use photofinish_store::blobs::local::uploads::UploadPace;
use photofinish_store::model::album::{AlbumConfig, RetentionConfig};
use photofinish_store::model::cost::CostMeter;
use photofinish_store::model::ids::OrganizationId;
use photofinish_store::model::key::KeyMode;
use photofinish_store::model::photo::Embedding;
use photofinish_store::model::process::Process;
use photofinish_store::model::rate::RateLimits;
use photofinish_store::model::watermark::Watermark;
use photofinish_store::model::webhook::{Delivery, DueDelivery};
use photofinish_store::search::calibration::Calibration;
use photofinish_store::{Store, StoreError, VisitorSecret};
use tokio::sync::watch;
use tracing::Span;
use warp::http::HeaderMap;

pub use crate::album_cache::AlbumCache;
pub use crate::body_budget::BodyBudget;
pub use crate::console_settings::{ConsoleSettings, StorageOrigin};
pub use crate::downloads::DownloadPlaces;
use crate::errors::ApiError;
use crate::errors::table::{DeclineCode, ErrorKind};
pub use crate::event_feed::EventFeed;
pub use crate::list_places::ListPlaces;
pub use crate::page_places::PagePlaces;
pub use crate::password::Passwords;
pub use crate::rate_limits::RateLimiter;
pub use crate::seats::{SeatLimits, Seats};
pub use crate::selfie_locks::SelfieLocks;
pub use crate::stream_places::StreamPlaces;

/// The dependencies of every handler. A pointer: each request has several clones, and cores that answer requests at the same
/// time would contend for a counter of every dependency.
#[derive(Clone)]
pub struct Context(Arc<Dependencies>);

/// The dependencies of a [`Context`].
pub struct Dependencies {
    /// The database, object storage and the face index.
    pub store: Store,
    /// Computes the embeddings of selfies.
    pub probe_embedder: Arc<dyn ProbeEmbedder>,
    /// Sends events to webhooks.
    pub webhooks: Arc<dyn WebhookGateway>,
    /// Reports the health of the service's components.
    pub health: Arc<dyn Health>,
    /// The settings of the API.
    pub settings: Arc<ApiSettings>,
    /// Returns all metrics of this process in the Prometheus text format.
    pub render_metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Called after photos were queued, to wake a pipeline in this process before its next poll.
    pub on_queued: Arc<dyn Fn() + Send + Sync>,
    /// Called with each request's span and headers before the request is handled.
    pub trace_hook: TraceHook,
    /// Whether the service is shutting down; `Draining::default()` at start.
    pub draining: Draining,
    /// Measurements that all who watch an album share; `AlbumCache::default()` at start.
    pub album_cache: AlbumCache,
    /// The selfies that are examined now.
    pub selfie_locks: SelfieLocks,
    /// The newest events, for all streams; `EventFeed::for_seats` at start.
    pub event_feed: EventFeed,
    /// The streams of albums' progress and of the pipeline; `StreamPlaces::of_progress` at start.
    pub progress_streams: StreamPlaces,
    /// The pages that are made for visitors; `PagePlaces::default()` at start.
    pub page_places: PagePlaces,
    /// The start lists that are imported or checked; `ListPlaces::default()` at start.
    pub list_places: ListPlaces,
    /// The memory of all request bodies; `BodyBudget::default()` at start.
    pub body_budget: BodyBudget,
    /// How much of their limits keys have spent; `RateLimiter::default()` at start.
    pub rate_limiter: RateLimiter,
    /// The seats for connections of the API.
    pub seats: Seats,
    /// The places of downloads of many photos; `DownloadPlaces::default()` at start.
    pub download_places: DownloadPlaces,
    /// Hashes the passwords of accounts.
    pub passwords: Passwords,
    /// The secret of digests that are counted in place of visitors and networks.
    pub visitor_secret: VisitorSecret,
}

impl From<Dependencies> for Context {
    fn from(dependencies: Dependencies) -> Self {
        Self(Arc::new(dependencies))
    }
}

impl Deref for Context {
    type Target = Dependencies;

    fn deref(&self) -> &Dependencies {
        &self.0
    }
}

/// Makes a request's span a child of the caller's trace, which the headers may name.
pub type TraceHook = Arc<dyn Fn(&Span, &HeaderMap) + Send + Sync>;

/// Whether the service is shutting down. Then readiness is false, event streams end, and connections close after their
/// response.
///
/// [`crate::serve`] begins it on shutdown. A caller may begin it earlier, so that load balancers stop sending requests
/// first. Cheap to clone; clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Draining(Arc<watch::Sender<bool>>);

impl Draining {
    /// Begins draining; cannot be undone.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Whether draining has begun.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until draining has begun.
    pub async fn wait_until_begun(&self) {
        let mut receiver = self.0.subscribe();
        // The sender is owned by `self`, so waiting cannot fail.
        drop(receiver.wait_for(|begun| *begun).await);
    }
}

/// What processing costs, in a currency of the operator's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostPrices {
    /// An hour of a CPU core.
    pub cpu_hour: f64,
    /// An hour of a device.
    pub gpu_hour: f64,
    /// A gigabyte (10^9 bytes) stored for a month.
    pub gb_month: f64,
}

impl CostPrices {
    /// What time of CPU and of a device costs.
    pub fn of_time(&self, cpu: Duration, device: Duration) -> f64 {
        let hours = |time: Duration| time.as_secs_f64() / 3600.0;
        hours(cpu) * self.cpu_hour + hours(device) * self.gpu_hour
    }

    /// What storing bytes for a month costs.
    pub fn of_month(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e9 * self.gb_month
    }
}

/// Says why a picture cannot be drawn as a watermark.
pub type WatermarkCheck = fn(&Watermark) -> Result<(), String>;

/// The settings of the API.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// Which keys are accepted.
    pub environment: Environment,
    /// How many requests a key may make in a minute that has no limits of its own.
    pub rate_limits: RateLimits,
    /// The configuration of a new album.
    pub album_defaults: AlbumConfig,
    /// For how long any album keeps anything at most.
    pub retention_max: RetentionConfig,
    /// What processing costs in money; `None` where nobody said.
    pub cost_prices: Option<CostPrices>,
    /// The face threshold of a new album that reads no bibs, which then tell no strangers apart, 0 to 100.
    pub face_threshold_without_bibs: f64,
    /// Largest JSON body, bytes, except for batches.
    pub max_body_bytes: u64,
    /// Largest JSON body of a batch, bytes.
    pub max_batch_bytes: u64,
    /// Time limit for a request head, counted from its first byte; for the first one from the connection.
    pub head_timeout: Duration,
    /// How long a connection waits for its next request.
    pub idle_timeout: Duration,
    /// How long a response waits for a client that does not read it.
    pub stall_timeout: Duration,
    /// Time limit for a JSON body.
    pub body_timeout: Duration,
    /// Largest photo, bytes.
    pub max_photo_bytes: u64,
    /// Largest selfie, bytes.
    pub max_probe_bytes: u64,
    /// Lifetime of upload URLs.
    pub upload_ttl: Duration,
    /// How slow an upload to the local storage may be.
    pub upload_pace: UploadPace,
    /// Lifetime of preview and thumbnail URLs.
    pub download_ttl: Duration,
    /// Lifetime of an `imageId`.
    pub probe_ttl: Duration,
    /// Media types that a photo may be declared as.
    pub media_types: Vec<String>,
    /// How cosines become scores and confidences, by model identity (`name@version`).
    pub calibrations: HashMap<String, Calibration>,
    /// Whether health and metrics are served on the API's port too.
    pub admin_on_api_port: bool,
    /// Whether a picture can be drawn as a watermark; else why not.
    pub check_watermark: WatermarkCheck,
    /// The console and the galleries.
    pub console: ConsoleSettings,
}

/// The environment of a deployment: it decides which keys are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// Live keys only.
    Production,
    /// Test keys only.
    Sandbox,
    /// Live and test keys.
    Local,
}

impl Environment {
    /// The modes whose keys are accepted; the first is that of an account which asks for none.
    pub const fn modes(self) -> &'static [KeyMode] {
        match self {
            Self::Production => &[KeyMode::Live],
            Self::Sandbox => &[KeyMode::Test],
            Self::Local => &[KeyMode::Test, KeyMode::Live],
        }
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Production => "production",
            Self::Sandbox => "sandbox",
            Self::Local => "local",
        }
    }
}

/// Computes the embeddings of selfies. Organizations take turns, so that one with many selfies delays no other.
#[async_trait]
pub trait ProbeEmbedder: Send + Sync {
    /// Waits for a turn of the organization. The caller reads the selfie only then: selfies that wait are not in memory.
    ///
    /// # Errors
    /// `Busy` when too many of the organization wait already.
    async fn take_turn(&self, organization: OrganizationId) -> Result<Box<dyn ProbeTurn>, ProbeError>;
}

/// A turn to have one selfie embedded; given back when it is dropped.
#[async_trait]
pub trait ProbeTurn: Send + Sync {
    /// Returns the embedding of the largest face in an encoded image, and adds what that costs, whatever its outcome.
    async fn embed(self: Box<Self>, selfie: Bytes, spent: Arc<CostMeter>) -> Result<Embedding, ProbeError>;
}

/// Why a selfie has no embedding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeError {
    /// The image shows no face.
    NoFace,
    /// The bytes are not an image, a damaged one, or one that takes too much memory or time.
    Unreadable,
    /// Too many selfies of the organization wait.
    Busy {
        /// When a retry is likely to succeed.
        try_again_in: Duration,
    },
    /// The models cannot run at the moment.
    Unavailable,
}

/// A failed models runtime is restarted after a second at first.
const MODELS_RETRY_AFTER: Duration = Duration::from_secs(5);

impl From<ProbeError> for ApiError {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::NoFace => Self::declined(DeclineCode::NoFace),
            ProbeError::Unreadable => Self::declined(DeclineCode::UnreadableImage),
            ProbeError::Busy { try_again_in } => Self::rate_limited(try_again_in),
            ProbeError::Unavailable => {
                Self::new(ErrorKind::ServiceUnavailable).with_retry_after(Some(MODELS_RETRY_AFTER))
            }
        }
    }
}

/// Sends events to webhooks.
#[async_trait]
pub trait WebhookGateway: Send + Sync {
    /// Judges the URL of a webhook: whether events may be sent there.
    async fn check_url(&self, url: &str) -> Result<(), RefusedUrl>;
    /// Sends a test, which is attempted once, and returns the finished delivery.
    async fn send_test(&self, due: DueDelivery) -> Result<Delivery, StoreError>;
}

/// What is wrong with a URL, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedUrl(pub String);

/// Reports the health of the service.
#[async_trait]
pub trait Health: Send + Sync {
    /// Checks every component that requests or photos need: database, storage, queue, models, pipeline, selfies.
    async fn check_components(&self) -> Vec<ComponentHealth>;
    /// Returns what the processes of the service do.
    async fn list_processes(&self) -> Result<Vec<Process>, StoreError>;
    /// Returns the pipeline stage that limits the throughput, while photos are processed, in whatever process.
    async fn find_bottleneck(&self) -> Option<String>;
}

/// The health of one component.
#[derive(Clone, Debug)]
pub struct ComponentHealth {
    /// `database`, `storage`, `queue`, `device`, `models`, `pipeline` or `selfies`.
    pub name: &'static str,
    /// Whether the component works.
    pub state: ComponentState,
}

/// Whether a component works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComponentState {
    /// Not ready yet.
    Starting,
    /// Working.
    Running,
    /// Working, with what an operator should know of it.
    RunningWith(String),
    /// Not working, with the reason.
    Down(String),
}
