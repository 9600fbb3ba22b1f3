//! A service for one test, with its own data folder, port, organization and keys.

pub mod client;
mod gateway;
pub mod guest;
pub mod raw;
pub mod schema;
mod settings;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use photofinish_api::context::{
    AlbumCache, ApiSettings, BodyBudget, ComponentHealth, ComponentState, Context, Dependencies,
    DownloadPlaces, Draining, EventFeed, Health, ListPlaces, PagePlaces, Passwords, ProbeEmbedder,
    ProbeError, ProbeTurn, RateLimiter, SeatLimits, Seats, SelfieLocks, StreamPlaces,
};
use photofinish_api::key::KeyText;
use photofinish_store::model::cost::{CostMeter, SELFIE_STAGE, Spent};
use photofinish_store::model::credit::CreditSettings;
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::key::{KeyMode, NewKey, Scope};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::photo::{
    BoundingBox, DetectedFace, DetectedText, Embedding, FailureReason, NewPhoto, PhotoSize, TextIndexState,
};
use photofinish_store::model::process::Process;
use photofinish_store::model::rate::RateLimits;
use photofinish_store::search::calibration::Calibration;
use photofinish_store::traits::{
    Lease, LeaseKind, LeaseRequest, PhotoResults, PictureSizes, RateWindows, SelfieScale, Upload,
};
use photofinish_store::{ServerLimits, Store, StoreError, StoreSettings, conformance};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::datetime;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

pub use client::{ApiResponse, Partner};

/// Time limit for everything that a test waits for.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// The model identity of [`TestEmbedder`].
pub const MODEL: &str = "test-faces@1";
/// When all test photos were taken.
pub const TAKEN_AT: OffsetDateTime = datetime!(2026-10-04 09:41:07 UTC);
/// Largest selfie of the tests.
pub const MAX_PROBE_BYTES: u64 = 2_000;
/// Largest photo of the tests.
pub const MAX_PHOTO_BYTES: u64 = 5_000;

/// A running service.
pub struct TestService {
    pub runtime: Runtime,
    pub store: Store,
    pub address: std::net::SocketAddr,
    pub embedder: Arc<TestEmbedder>,
    pub health: Arc<TestHealth>,
    pub draining: Draining,
    pub context: Context,
    /// How often `on_queued` was called.
    pub wakeups: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    server_task: Option<JoinHandle<()>>,
    database_url: String,
    pub folder: tempfile::TempDir,
}

/// What a test may change of its service.
pub struct TestSetup {
    pub settings: ApiSettings,
    pub seats: SeatLimits,
    pub credits: CreditSettings,
    pub body_budget: BodyBudget,
    /// The windows that processes share, in place of those of the database.
    pub rate_windows: Option<Arc<dyn RateWindows>>,
    /// What else is changed of its store.
    pub change_store: Box<dyn FnOnce(&mut Store)>,
}

/// Returns embeddings of fake selfies, whose bytes are words that say what they show.
pub struct TestEmbedder {
    /// Selfies that were examined.
    pub calls: Arc<AtomicUsize>,
    /// Organizations that have no place left.
    pub busy: Mutex<HashSet<OrganizationId>>,
    /// Each selfie `slow` takes a permit before it is examined.
    pub permits: Arc<Semaphore>,
}

struct TestTurn {
    calls: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
}

impl Default for TestEmbedder {
    fn default() -> Self {
        Self { calls: Arc::default(), busy: Mutex::default(), permits: Arc::new(Semaphore::new(0)) }
    }
}

#[async_trait]
impl ProbeEmbedder for TestEmbedder {
    async fn take_turn(&self, organization: OrganizationId) -> Result<Box<dyn ProbeTurn>, ProbeError> {
        if self.busy.lock().unwrap().contains(&organization) {
            return Err(ProbeError::Busy { try_again_in: Duration::from_millis(1500) });
        }
        Ok(Box::new(TestTurn { calls: Arc::clone(&self.calls), permits: Arc::clone(&self.permits) }))
    }
}

#[async_trait]
impl ProbeTurn for TestTurn {
    async fn embed(self: Box<Self>, selfie: Bytes, spent: Arc<CostMeter>) -> Result<Embedding, ProbeError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        spent.add(SELFIE_STAGE, Spent { cpu: Duration::from_millis(30), ..Spent::default() });
        match &*selfie {
            b"face" => Ok(embedding(1.0)),
            b"slow" => {
                self.permits.acquire().await.unwrap().forget();
                Ok(embedding(1.0))
            }
            b"landscape" => Err(ProbeError::NoFace),
            b"down" => Err(ProbeError::Unavailable),
            b"bug" => panic!("the embedder has a bug"),
            b"other model" => Ok(Embedding { model: "unknown@1".to_owned(), ..embedding(1.0) }),
            _ => Err(ProbeError::Unreadable),
        }
    }
}

/// Components with the state that a test sets.
pub struct TestHealth {
    pub parts: Mutex<Vec<ComponentHealth>>,
}

impl TestHealth {
    fn running() -> Self {
        let running = |name| ComponentHealth { name, state: ComponentState::Running };
        Self { parts: Mutex::new(vec![running("database"), running("models")]) }
    }
}

#[async_trait]
impl Health for TestHealth {
    async fn check_components(&self) -> Vec<ComponentHealth> {
        self.parts.lock().unwrap().clone()
    }

    async fn list_processes(&self) -> Result<Vec<Process>, StoreError> {
        Ok(Vec::new())
    }

    async fn find_bottleneck(&self) -> Option<String> {
        Some("read".to_owned())
    }
}

/// Returns a function that counts its calls.
fn count_calls(calls: Arc<AtomicUsize>) -> Arc<dyn Fn() + Send + Sync> {
    Arc::new(move || {
        calls.fetch_add(1, Ordering::SeqCst);
    })
}

/// Returns a unit vector with this cosine to the embedding of the selfie `face`. Vectors of different cosines have
/// nothing else in common, as faces of different strangers.
pub fn embedding(cosine: f32) -> Embedding {
    const OTHER_AXES: u32 = 61;
    let mut vector = vec![0.0; 1 + OTHER_AXES as usize];
    vector[0] = cosine;
    vector[1 + (cosine.to_bits() % OTHER_AXES) as usize] = (1.0 - cosine * cosine).sqrt();
    Embedding { model: MODEL.to_owned(), vector }
}

/// How the tests turn cosines into confidences.
pub const CALIBRATION: Calibration = Calibration { midpoint: 0.5, slope: 10.0, scale: SCALE };
const SCALE: SelfieScale = SelfieScale { sure_cosine: 0.6, bib_weight: 0.2, few_faces_level: 0.0 };

/// The bounding box of every face and text in the tests.
pub const TEST_BOX: BoundingBox = BoundingBox { top: 0.25, left: 0.5, width: 0.125, height: 0.0625 };

/// Returns a searchable face with this cosine to the selfie `face`.
pub fn face(cosine: f32) -> DetectedFace {
    DetectedFace {
        bounding_box: TEST_BOX,
        confidence: 0.98,
        unindexed: None,
        embedding: Some(embedding(cosine)),
    }
}

/// Returns a text that was read.
pub fn text(text: &str, confidence: f64, standing: TextIndexState) -> DetectedText {
    DetectedText { bounding_box: TEST_BOX, index_state: standing, ..conformance::text(text, confidence) }
}

/// Returns a bib that exact searches find.
pub fn bib(number: &str) -> DetectedText {
    text(number, 0.96, TextIndexState::Indexed)
}

impl TestService {
    pub fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// Starts a service with changed settings.
    pub fn start_with(change: impl FnOnce(&mut ApiSettings)) -> Self {
        Self::start_as(|setup| change(&mut setup.settings))
    }

    /// Starts a service with changed settings or limits.
    pub fn start_as(change: impl FnOnce(&mut TestSetup)) -> Self {
        let mut setup = settings::setup();
        change(&mut setup);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let public_url = format!("http://{address}").parse().unwrap();
        let opening =
            StoreSettings { public_url, credits: setup.credits, ..conformance::test_settings(folder.path()) };
        let database_url = opening.database_url.clone();
        let mut store = runtime.block_on(Store::open(opening)).unwrap();
        store.rate_windows = setup.rate_windows.or(store.rate_windows);
        (setup.change_store)(&mut store);
        let (embedder, health) = (Arc::new(TestEmbedder::default()), Arc::new(TestHealth::running()));
        let wakeups: Arc<AtomicUsize> = Arc::default();
        let context = Context::from(Dependencies {
            store: store.clone(),
            probe_embedder: embedder.clone(),
            webhooks: Arc::new(gateway::TestGateway { store: store.clone() }),
            health: health.clone(),
            settings: Arc::new(setup.settings),
            render_metrics: Arc::new(|| "photofinish_test_total 1\n".to_owned()),
            on_queued: count_calls(Arc::clone(&wakeups)),
            trace_hook: Arc::new(|_, _| {}),
            draining: Draining::default(),
            album_cache: AlbumCache::default(),
            selfie_locks: SelfieLocks::default(),
            rate_limiter: RateLimiter::default(),
            event_feed: EventFeed::for_seats(setup.seats),
            progress_streams: StreamPlaces::of_progress(setup.seats),
            page_places: PagePlaces::default(),
            list_places: ListPlaces::default(),
            body_budget: setup.body_budget,
            download_places: DownloadPlaces::default(),
            passwords: Passwords::default(),
            visitor_secret: store.visitor_secret(),
            seats: Seats::new(setup.seats),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let served = runtime.spawn({
            let context = context.clone();
            async move { photofinish_api::serve(listener, context, async { drop(stopped.await) }).await }
        });
        Self {
            runtime,
            store,
            address,
            embedder,
            health,
            draining: context.draining.clone(),
            context,
            wakeups,
            stop: Some(stop),
            server_task: Some(served),
            database_url,
            folder,
        }
    }

    /// Revokes a key as another process does: without the service's knowledge.
    pub fn revoke_elsewhere(&self, text: &str) {
        let digest = KeyText::parse(text).unwrap().digest();
        self.block_on(async {
            let keys =
                photofinish_store::open_keys(&self.database_url, &ServerLimits::default()).await.unwrap();
            let key = keys.find(&digest).await.unwrap().unwrap();
            keys.revoke(key.id).await.unwrap();
        });
    }

    /// Begins the shutdown.
    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits until the service has stopped.
    pub fn wait_until_stopped(&mut self) {
        let served = self.server_task.take().unwrap();
        self.runtime.block_on(async { tokio::time::timeout(DEADLINE, served).await }).unwrap().unwrap();
    }

    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Creates a live key with all scopes and returns a client that uses it.
    pub fn partner(&self) -> Partner {
        self.partner_with("Lake Timing", KeyMode::Live, &Scope::ALL)
    }

    pub fn partner_with(&self, organization: &str, mode: KeyMode, scopes: &[Scope]) -> Partner {
        let text = KeyText::generate(mode);
        self.create_key(organization, &text, |key| key.scopes = scopes.to_vec());
        Partner::new(self, Some(text.reveal().to_owned()))
    }

    /// Stores a key, with what the test changes of it; returns its id.
    pub fn create_key(
        &self,
        organization: &str,
        text: &KeyText,
        change: impl FnOnce(&mut NewKey),
    ) -> photofinish_store::model::ids::KeyId {
        self.block_on(async {
            let mut key = NewKey {
                organization: self.store.keys.get_or_create_organization(organization).await.unwrap(),
                mode: text.mode(),
                label: "test".to_owned(),
                hint: text.hint(),
                scopes: Scope::ALL.to_vec(),
                limits: RateLimits::default(),
                expires_at: None,
                digest: text.digest(),
            };
            change(&mut key);
            self.store.keys.create(key).await.unwrap().id
        })
    }

    /// Creates a photo that is uploaded and confirmed.
    pub fn queued_photo(&self, partner: &Partner, album: AlbumId) -> PhotoId {
        self.block_on(async {
            let photo = NewPhoto { filename: "a.jpg".to_owned(), content_type: "image/jpeg".to_owned() };
            let id = self.store.photos.create(album, vec![photo]).await.unwrap()[0];
            for role in [ObjectRole::Original, ObjectRole::Preview, ObjectRole::Thumbnail] {
                let key = ObjectKey::photo(partner.organization_id(self).await, album, id, role);
                self.store.blobs.write(&key, "image/jpeg", Bytes::from_static(b"pixels")).await.unwrap();
            }
            let upload = Upload { photo: id, size_bytes: Some(b"pixels".len() as u64) };
            assert_eq!(self.store.queue.confirm_uploads(album, &[upload]).await.unwrap().photos, [id]);
            id
        })
    }

    /// Creates a ready photo with these detections.
    pub fn ready_photo(
        &self,
        partner: &Partner,
        album: AlbumId,
        faces: Vec<DetectedFace>,
        texts: Vec<DetectedText>,
    ) -> PhotoId {
        let id = self.queued_photo(partner, album);
        let lease = self.lease(id);
        let finished = PhotoResults {
            lease,
            size: PhotoSize { width: 6000, height: 4000 },
            taken_at: Some(TAKEN_AT),
            camera: Some("NIKON Z 9".to_owned()),
            watermark_version: 0,
            pictures: PictureSizes { picture_bytes: 2 * b"pixels".len() as u64, marked_bytes: None },
            skipped_runners: 3,
            faces,
            texts,
        };
        self.block_on(self.store.queue.finish(vec![finished])).unwrap();
        id
    }

    /// Creates a failed photo.
    pub fn failed_photo(&self, partner: &Partner, album: AlbumId) -> PhotoId {
        let id = self.queued_photo(partner, album);
        let lease = self.lease(id);
        self.block_on(self.store.queue.fail(&lease, FailureReason::CorruptImage, "ends early")).unwrap();
        id
    }

    fn lease(&self, id: PhotoId) -> Lease {
        let request = LeaseRequest { limit: 100, ttl: Duration::from_secs(60), kind: LeaseKind::Fresh };
        let leases = self.block_on(self.store.queue.lease(request)).unwrap();
        leases.into_iter().find(|lease| lease.photo == id).unwrap()
    }
}

/// Returns a valid id of no object.
pub fn unknown_id() -> Value {
    json!("01932c07-93a1-7c40-8b1f-2d5e6f708192")
}
