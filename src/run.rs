//! Runs a role: builds the service from its configuration, waits for a stop signal, and stops everything in order. The
//! API refuses new work first, photos in flight finish or return to the queue, then the store closes.

use std::convert::Infallible;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use metrics_exporter_prometheus::PrometheusHandle;
use photofinish_api::context::{
    AlbumCache, BodyBudget, Context, Dependencies, DownloadPlaces, Draining, EventFeed, ListPlaces,
    PagePlaces, Passwords, RateLimiter, SeatLimits, Seats, SelfieLocks, StreamPlaces, TraceHook,
};
use photofinish_models::traits::ModelFactory;
use photofinish_pipeline::{
    DEVICE_CALL_LIMIT, Limits, Pipeline, PipelineDependencies, PipelineSettings, ProbeService, ProbeSettings,
    ReservedCores, ThreadCounts,
};
use photofinish_store::{GcOptions, Store};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinError;

use crate::adapters::{ProbeAdapter, ServiceHealth};
use crate::api_settings::{api_settings, find_storage_origin};
use crate::config::{Config, GcSchedule};
use crate::events::client::{SystemLookup, WebhookClients};
use crate::events::sender::WebhookSender;
use crate::file_limit::FileLimit;
use crate::own_process::{OwnProcess, RunningPipeline};
use crate::role::Role;
use crate::servers::{Listeners, Servers};
use crate::shutdown::{Signals, end_process};
use crate::store::{self, EmbeddedLocks};
use crate::tasks::Tasks;
use crate::telemetry::{self, Telemetry};
use crate::{maintenance, memory, models};

/// Selfies of one organization that may wait for their embedding; the API responds "busy" to more.
const PROBE_PLACES: usize = 16;
/// How long examining one selfie may take. It takes less than a second, and a few on a machine whose cores are all busy.
const PROBE_TIME_LIMIT: Duration = Duration::from_secs(30);
/// How often the pipeline and the probes are asked whether their devices are gone for good.
const DEVICE_POLL: Duration = Duration::from_secs(1);
/// How much of the memory of an NVIDIA GPU hot albums may take: a fourth of that of the smallest ones in use.
const CUDA_FACE_BYTES: u64 = 4_096_000_000;
/// How long the store may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// What uses the devices of this process, as far as its role has it.
struct DeviceUsers {
    pipeline: Option<Arc<Pipeline>>,
    probes: Option<Arc<ProbeService>>,
}

impl DeviceUsers {
    /// Waits until one of them has given all devices up, and returns why.
    async fn wait_for_failure(&self) -> String {
        loop {
            let of_photos = self.pipeline.as_ref().and_then(|pipeline| pipeline.device_failure());
            let of_selfies = self.probes.as_ref().and_then(|probes| probes.device_failure());
            if let Some(reason) = of_photos.or(of_selfies) {
                return reason.to_owned();
            }
            tokio::time::sleep(DEVICE_POLL).await;
        }
    }
}

/// Runs a role until SIGTERM or SIGINT, and ends the process.
///
/// # Errors
/// When log, traces or the async runtime cannot be set up. Later errors are printed, because the process ends here.
pub fn run(config: Config, role: Role) -> anyhow::Result<Infallible> {
    let telemetry = Telemetry::start(&config, role)?;
    memory::warn_if_short(&config, role);
    let runtime = build_runtime()?;
    let result = runtime.block_on(run_service(config, role, telemetry.trace_hook()));
    // Also after an error: the spans that led to it matter most.
    telemetry.stop();
    // The runtime is not dropped: that would wait for blocking calls that may never return.
    end_process(result)
}

/// Returns what wakes the pipeline of this process, if it has one, after photos were queued.
fn wake_when_queued(pipeline: Option<Arc<Pipeline>>) -> Arc<dyn Fn() + Send + Sync> {
    Arc::new(move || pipeline.iter().for_each(|pipeline| pipeline.wake()))
}

/// Applies all pending migrations, or stops at a signal.
///
/// # Errors
/// When the database cannot be used, or a signal arrived before the end.
pub fn migrate(config: &Config) -> anyhow::Result<ExitCode> {
    block_on(async {
        let mut signals = Signals::listen()?;
        let migrated = signals.run_until_signal(store::migrate(config)).await;
        migrated.context("stopped by a signal before the database was up to date")?
    })??;
    println!("the database is up to date");
    Ok(ExitCode::SUCCESS)
}

/// Runs a future on an async runtime of its own.
///
/// # Errors
/// When the runtime cannot start.
pub fn block_on<F: Future>(future: F) -> anyhow::Result<F::Output> {
    Ok(build_runtime()?.block_on(future))
}

fn build_runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .thread_name("runtime")
        .enable_all()
        .build()
        .context("starting the async runtime")
}

/// Opens what every role has.
async fn open(config: &Config) -> anyhow::Result<(Store, Vec<Arc<dyn ModelFactory>>)> {
    let store = store::open_for_service(config).await?;
    Ok((store, models::open_in_background(config).await?))
}

async fn run_service(config: Config, role: Role, trace_hook: TraceHook) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let _locks = EmbeddedLocks::acquire(&config, role)?;
    let metrics = telemetry::metrics::install(role).context("installing the metrics recorder")?;
    let seats = Seats::new(raise_file_limit());
    let opening = open(&config);
    let Some((store, models)) = signals.run_until_signal(opening).await.transpose()? else { return Ok(()) };
    // All that may fail comes before photos are taken: what ends a process counts as an attempt for those that it has.
    let listeners = Listeners::bind(&config, role).await?;
    let webhooks = prepare_webhooks(&config, &store)?;
    let settings = api_settings(&config, find_storage_origin(&store).await);
    reclaim_leases(role, &store).await;
    let (pipeline, probes) = start_processing(&config, role, &store, &models);
    search_faces_on_gpu(&config, role, &store, &models);
    let running = pipeline.clone().map(|pipeline| RunningPipeline::new(pipeline, &models));
    let own = Arc::new(OwnProcess::new(role, running));
    let device_users = DeviceUsers { pipeline: pipeline.clone(), probes: probes.clone() };
    let context = Context::from(Dependencies {
        store: store.clone(),
        health: Arc::new(ServiceHealth::new(&store, pipeline.as_ref(), probes.as_ref(), &own)),
        settings: Arc::new(settings),
        probe_embedder: Arc::new(ProbeAdapter(probes)),
        webhooks: Arc::new(webhooks.clone()),
        render_metrics: metrics_renderer(&metrics),
        on_queued: wake_when_queued(pipeline.clone()),
        trace_hook,
        draining: Draining::default(),
        album_cache: AlbumCache::default(),
        selfie_locks: SelfieLocks::default(),
        rate_limiter: RateLimiter::default(),
        event_feed: EventFeed::for_seats(seats.limits()),
        progress_streams: StreamPlaces::of_progress(seats.limits()),
        page_places: PagePlaces::default(),
        list_places: ListPlaces::default(),
        body_budget: BodyBudget::default(),
        download_places: DownloadPlaces::default(),
        passwords: Passwords::default(),
        visitor_secret: store.visitor_secret(),
        seats,
    });
    let (stop, stopped) = watch::channel(false);
    let is_idle = idle_check(pipeline.clone());
    let gc = daily_gc(&config, role);
    let upkeep = maintenance::run(store.clone(), own.id, gc, metrics, is_idle, stopped.clone());
    let maintenance = tokio::spawn(upkeep);
    let mut tasks = Tasks::start(&config, own, webhooks, &stopped);
    let mut servers = listeners.serve(role, &context, &stopped);
    tracing::info!(listen = %config.settings.service.listen, role = %role, "ready for requests");

    let failure = wait_for_end(signals.wait(), &device_users, &mut servers).await;
    tracing::info!("stopping");
    stop.send_replace(true);
    // At once: the pipeline takes no more photos, and gives back what it has even where another task has panicked.
    let (ended_tasks, pipeline) = tokio::join!(tasks.stop(), stop_pipeline(pipeline));
    let (servers, maintenance) = tokio::join!(servers.wait_for_all(), maintenance);
    tasks.finish().await;
    close_store(&store).await;
    ended_tasks.and(pipeline).and(servers).and(maintenance)?;
    failure.map_or(Ok(()), |reason| Err(anyhow::anyhow!("{reason}: another process has to take its place")))
}

/// Stops a pipeline. Takes up to the drain grace; the pipeline logs its own report.
async fn stop_pipeline(pipeline: Option<Arc<Pipeline>>) -> Result<(), JoinError> {
    match pipeline {
        Some(pipeline) => tokio::task::spawn_blocking(move || pipeline.stop()).await.map(drop),
        None => Ok(()),
    }
}

/// Waits for a signal, or until this process cannot use its devices any more or serves nobody: then returns why. Whoever runs
/// the process has to start another.
async fn wait_for_end(
    signal: impl Future<Output = ()>,
    device_users: &DeviceUsers,
    servers: &mut Servers,
) -> Option<String> {
    tokio::select! {
        () = signal => None,
        reason = device_users.wait_for_failure() => Some(reason),
        reason = servers.wait_for_failure() => Some(reason),
    }
}

/// Prepares to send events to webhooks.
fn prepare_webhooks(config: &Config, store: &Store) -> anyhow::Result<WebhookSender> {
    let rules = config.settings.webhooks.address_rules();
    let clients = WebhookClients::new(rules, Arc::new(SystemLookup));
    Ok(WebhookSender::new(store.clone(), clients.context("preparing the HTTP client of webhooks")?))
}

fn metrics_renderer(metrics: &PrometheusHandle) -> Arc<dyn Fn() -> String + Send + Sync> {
    let metrics = metrics.clone();
    Arc::new(move || telemetry::metrics_page::render(&metrics))
}

/// Raises the limit of open files; returns how many connections it allows.
fn raise_file_limit() -> SeatLimits {
    let files = FileLimit::raise();
    let limits = SeatLimits::for_open_files(files.current);
    let (open_files, connections) = (files.current, limits.total);
    match files.error {
        None => tracing::info!(open_files, connections, "raised the limit of open files as far as allowed"),
        Some(error) => {
            tracing::warn!(open_files, connections, %error, "failed to raise the limit of open files");
        }
    }
    limits
}

/// Role `all` is the only process on an embedded store, so every lease found at its start belongs to a dead process.
async fn reclaim_leases(role: Role, store: &Store) {
    if let (Role::All, Some(embedded)) = (role, store.embedded()) {
        embedded.schedule_reclaim().await;
    }
}

/// What role `all` collects once a day; nothing in other roles.
fn daily_gc(config: &Config, role: Role) -> Option<GcOptions> {
    let gc = config.settings.gc;
    let is_daily = role == Role::All && gc.sweep == GcSchedule::Daily;
    is_daily.then_some(GcOptions { min_age: gc.min_age, is_dry_run: false })
}

async fn close_store(store: &Store) {
    if tokio::time::timeout(CLOSE_TIMEOUT, store.close()).await.is_err() {
        tracing::warn!("failed to close the store in {} s", CLOSE_TIMEOUT.as_secs());
    }
}

/// Whether no photo is in flight in this process.
fn idle_check(pipeline: Option<Arc<Pipeline>>) -> impl Fn() -> bool {
    move || pipeline.iter().all(|pipeline| pipeline.in_flight() == 0)
}

/// Starts what photos and what selfies need, as far as the role has them.
fn start_processing(
    config: &Config,
    role: Role,
    store: &Store,
    models: &[Arc<dyn ModelFactory>],
) -> (Option<Arc<Pipeline>>, Option<Arc<ProbeService>>) {
    let cores = ReservedCores::default();
    let start_pipeline = || Arc::new(start_pipeline(config, store, models.to_vec(), cores.clone()));
    let pipeline = role.has_pipeline().then(start_pipeline);
    let start_probes =
        || Arc::new(ProbeService::start(models.to_vec(), probe_settings(config), cores.clone()));
    (pipeline, role.has_api().then(start_probes))
}

/// Lets searches use the GPU of the models, which the networks open; of several the first.
fn search_faces_on_gpu(config: &Config, role: Role, store: &Store, models: &[Arc<dyn ModelFactory>]) {
    let Some(models) = models.first() else { return };
    // Batches are for CUDA: elsewhere the GPU may be one that shares the memory of the host, or software.
    let default = if models.batch_sizes().are_single() { 0 } else { CUDA_FACE_BYTES };
    let bytes = config.settings.api.face_device_bytes.unwrap_or(default);
    if role.has_api() && bytes > 0 {
        let models = Arc::clone(models);
        store.search_faces_on(Box::new(move || models.lend_gpu()), bytes as usize);
    }
}

fn start_pipeline(
    config: &Config,
    store: &Store,
    models: Vec<Arc<dyn ModelFactory>>,
    reserved_cores: ReservedCores,
) -> Pipeline {
    let cores = config.capacity.processing_threads;
    let threads = match models.iter().all(|models| models.batch_sizes().are_single()) {
        true => ThreadCounts::for_cores(cores),
        false => ThreadCounts::for_device(cores),
    };
    let settings = PipelineSettings {
        cores,
        decode_threads: threads.decode,
        resize_threads: threads.resize,
        fetch_threads: threads.fetch,
        detect_threads: threads.detect,
        embed_threads: threads.embed,
        read_threads: threads.read,
        file_budget_bytes: config.capacity.file_budget_bytes,
        pixel_budget_bytes: config.capacity.pixel_budget_bytes,
        limits: photo_limits(config),
        max_grid_cells: config.settings.pipeline.max_grid_cells,
        max_runners: config.settings.pipeline.max_runners,
        lease_ttl: config.settings.pipeline.lease_ttl,
        device_call_limit: DEVICE_CALL_LIMIT,
        drain_grace: config.settings.pipeline.drain_grace,
    };
    let dependencies = PipelineDependencies {
        watermarks: Arc::clone(&store.watermarks),
        queue: store.queue.clone(),
        blobs: store.blobs.clone(),
        models,
        runtime: tokio::runtime::Handle::current(),
        reserved_cores,
    };
    // A start that fails later than this counts an attempt for each photo that it has taken.
    tracing::debug!(devices = dependencies.models.len(), "starting the pipeline");
    Pipeline::start(settings, dependencies)
}

fn probe_settings(config: &Config) -> ProbeSettings {
    ProbeSettings {
        limits: photo_limits(config),
        places: PROBE_PLACES,
        time_limit: PROBE_TIME_LIMIT,
        device_call_limit: DEVICE_CALL_LIMIT,
    }
}

fn photo_limits(config: &Config) -> Limits {
    let storage = &config.settings.storage;
    Limits {
        max_file_bytes: storage.max_photo_bytes,
        max_pixels: storage.max_pixels,
        reads_heic: storage.reads_heic(),
    }
}

#[cfg(test)]
mod tests {
    use photofinish_models::traits::{BatchSizes, BibReader, FaceDetector, FaceEmbedder, ModelError};
    use tokio::task::JoinSet;

    use super::*;

    /// Models on a device that is lost.
    struct LostModels;

    fn lost<T>() -> Result<T, ModelError> {
        Err(ModelError::Device { device: "cuda".into(), detail: "it fell off the bus".into() })
    }

    impl ModelFactory for LostModels {
        fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
            lost()
        }

        fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
            lost()
        }

        fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
            lost()
        }

        fn batch_sizes(&self) -> BatchSizes {
            BatchSizes { detect: 1, embed: 1, read: 1 }
        }
    }

    #[test]
    fn a_process_without_a_pipeline_ends_with_its_device() {
        let limits = Limits { max_file_bytes: 1 << 20, max_pixels: 1_000_000, reads_heic: false };
        let settings = ProbeSettings {
            limits,
            places: 1,
            time_limit: Duration::from_secs(60),
            device_call_limit: DEVICE_CALL_LIMIT,
        };
        let probes = ProbeService::start(vec![Arc::new(LostModels)], settings, ReservedCores::default());
        let users = DeviceUsers { pipeline: None, probes: Some(Arc::new(probes)) };
        let limit = Duration::from_secs(600);
        let reason = block_on(async { tokio::time::timeout(limit, users.wait_for_failure()).await });
        let reason = reason.unwrap().unwrap();
        assert!(reason.contains("it fell off the bus"), "{reason}");
    }

    /// A process that nobody can reach would go on for ever.
    #[test]
    fn a_server_that_ends_ends_the_process() {
        let users = DeviceUsers { pipeline: None, probes: None };
        let reason = block_on(async {
            let mut tasks = JoinSet::<()>::new();
            tasks.spawn(std::future::pending());
            tasks.spawn(async {});
            let mut servers = Servers::from(tasks);
            let no_signal = std::future::pending();
            let end = wait_for_end(no_signal, &users, &mut servers);
            tokio::time::timeout(Duration::from_secs(60), end).await
        });
        assert_eq!(reason.unwrap().unwrap().as_deref(), Some("a server ended"));
    }

    #[test]
    fn a_signal_ends_the_process_without_a_failure() {
        let users = DeviceUsers { pipeline: None, probes: None };
        let reason = block_on(async {
            let mut tasks = JoinSet::<()>::new();
            tasks.spawn(std::future::pending());
            wait_for_end(std::future::ready(()), &users, &mut Servers::from(tasks)).await
        });
        assert_eq!(reason.unwrap(), None);
    }
}
