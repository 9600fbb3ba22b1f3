//! Builds the service from its configuration, runs it until it is told to stop, and stops it in order:
//! the API refuses first, photos in flight end or go back, then the process leaves.

use std::fs::{File, TryLockError};
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use photofinish_api::context::{ApiSettings, Context, Draining, ProgressCache, TraceHook};
use photofinish_models::traits::ModelFactory;
use photofinish_pipeline::{
    Limits, Pipeline, PipelineDependencies, PipelineSettings, ProbeService, ThreadCounts,
};
use photofinish_store::folder::make_folder;
use photofinish_store::model::album::{AlbumConfig, DEFAULT_BIB_PATTERN, Recognition, RecognitionMode};
use photofinish_store::traits::Keys;
use photofinish_store::{DatabaseKind, Store, StoreSettings};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::adapters::{ProbeAdapter, ServiceHealth};
use crate::config::Config;
use crate::telemetry::logging::Telemetry;
use crate::telemetry::metrics_page;
use crate::{maintenance, models, secrets};

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// API and pipeline.
    All,
    /// API.
    Serve,
    /// Pipeline.
    Work,
}

impl Role {
    /// Its name on the command line.
    #[cfg(feature = "otlp")]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Serve => "serve",
            Self::Work => "work",
        }
    }

    fn has_api(self) -> bool {
        self != Self::Work
    }

    fn has_pipeline(self) -> bool {
        self != Self::Serve
    }
}

/// Selfies that may wait for a vector at once; more are told to come again.
const PROBE_QUEUE_CAPACITY: usize = 32;
/// How long the head of a request may take, from the connection or from the answer before: longer than proxies keep
/// connections that nobody uses, so that it is they who close them.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// How long the store may take to close once nobody uses it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// From a search in a warm album to an upload over a phone.
const LATENCY_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// From a photo that finds an idle worker to one behind half a million others.
const QUEUE_WAIT_BUCKETS: [f64; 14] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0];

/// Runs a role until SIGTERM or SIGINT.
///
/// # Errors
/// When a part cannot be built: the message says which and what to do.
pub fn run(mut config: Config, role: Role) -> anyhow::Result<ExitCode> {
    config.gc.is_daily &= role == Role::All;
    let logging = Telemetry::start(&config, role)?;
    let ended = block_on(run_service(config, role, logging.trace_hook()));
    // Whatever ended it: what led there is of interest most.
    logging.stop();
    ended?
}

/// Runs a future on a runtime of its own.
///
/// # Errors
/// When the runtime cannot start.
pub fn block_on<F: Future>(future: F) -> anyhow::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("runtime")
        .enable_all()
        .build()
        .context("starting the async runtime")?;
    Ok(runtime.block_on(future))
}

/// Opens (and makes, at first start) what the service remembers.
///
/// # Errors
/// When the folder, the database or the storage cannot be used.
pub async fn open_store(config: &Config) -> anyhow::Result<Store> {
    make_folder(&config.data_dir)
        .with_context(|| format!("making the data folder {}", config.data_dir.display()))?;
    let settings = StoreSettings {
        database_url: config.database_url.clone(),
        server_limits: config.server_limits,
        storage_url: config.storage_url.clone(),
        cloud: config.cloud.clone(),
        public_url: config.public_url.clone(),
        signing_secret: secrets::load_or_create_signing_secret(&config.secrets_dir())?,
        attempt_limit: config.attempt_limit,
        face_index_bytes: config.sizes.face_index_bytes,
        queue: config.queue.clone(),
    };
    Ok(Store::open(settings).await?)
}

/// Opens the rows for their keys alone: where photos are kept does not matter to them, nor whether it is there.
///
/// # Errors
/// When the database cannot be used.
pub async fn open_keys(config: &Config) -> anyhow::Result<Arc<dyn Keys>> {
    make_folder(&config.data_dir)
        .with_context(|| format!("making the data folder {}", config.data_dir.display()))?;
    Ok(photofinish_store::open_keys(&config.database_url, &config.server_limits).await?)
}

/// Brings the database up to date.
///
/// # Errors
/// When the database cannot be used.
pub fn migrate(config: &Config) -> anyhow::Result<()> {
    make_folder(&config.data_dir)
        .with_context(|| format!("making the data folder {}", config.data_dir.display()))?;
    block_on(async {
        let mut signals = Signals::listen()?;
        let migrated = signals.run_until_signal(photofinish_store::migrate(&config.database_url)).await;
        Ok(migrated.context("told to stop before the database was up to date")??)
    })?
}

async fn run_service(config: Config, role: Role, arrived: TraceHook) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let _locks = lock_embedded_store(&config, role)?;
    let metrics = install_metrics(role).context("installing the metrics recorder")?;
    let Some(store) = signals.run_until_signal(open_store(&config)).await else {
        return Ok(ExitCode::SUCCESS);
    };
    let store = store?;
    let models = models::open_models(&config)?;
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("listening on {} (PHOTOFINISH_LISTEN)", config.listen))?;
    reclaim_leases(role, &store).await;
    let pipeline = role.has_pipeline().then(|| Arc::new(start_pipeline(&config, &store, models.clone())));
    let desk = role
        .has_api()
        .then(|| ProbeService::start(models.clone(), photo_limits(&config), PROBE_QUEUE_CAPACITY));
    let context = Context {
        store: store.clone(),
        health: Arc::new(ServiceHealth { store: store.clone(), pipeline: pipeline.clone() }),
        settings: Arc::new(api_settings(&config)),
        probe_embedder: Arc::new(ProbeAdapter(desk)),
        render_metrics: Arc::new({
            let metrics = metrics.clone();
            move || metrics_page::render(&metrics)
        }),
        on_queued: Arc::new({
            let pipeline = pipeline.clone();
            move || pipeline.iter().for_each(|pipeline| pipeline.wake())
        }),
        trace_hook: arrived,
        draining: Draining::default(),
        progress_cache: ProgressCache::default(),
    };
    let (stop, stopped) = watch::channel(false);
    let chores = tokio::spawn(maintenance::run((store.clone(), config.gc), metrics, stopped.clone()));
    let admin = start_admin(&config, &context, stopped.clone()).await?;
    tracing::info!(listen = %config.listen, role = ?role, "ready for requests");
    let api = tokio::spawn({
        let until = wait_until_stopped(stopped.clone());
        async move {
            if role.has_api() {
                photofinish_api::serve(listener, context, until).await;
            } else {
                photofinish_api::serve_admin(listener, context, until).await;
            }
        }
    });
    signals.wait().await;
    tracing::info!("stopping");
    stop.send_replace(true);
    if let Some(pipeline) = pipeline {
        let report = tokio::task::spawn_blocking(move || pipeline.stop()).await?;
        tracing::info!(?report, "pipeline stopped");
    }
    api.await?;
    if let Some(admin) = admin {
        admin.await?;
    }
    chores.await?;
    close_store(&store).await;
    Ok(ExitCode::SUCCESS)
}

/// A process that alone works on the data folder takes back what one that died had in its hands.
async fn reclaim_leases(role: Role, store: &Store) {
    if let (Role::All, Some(embedded)) = (role, store.embedded()) {
        embedded.schedule_reclaim().await;
    }
}

async fn close_store(store: &Store) {
    if tokio::time::timeout(CLOSE_TIMEOUT, store.close()).await.is_err() {
        tracing::warn!("the database or the queue did not close in time");
    }
}

fn start_pipeline(config: &Config, store: &Store, models: Arc<dyn ModelFactory>) -> Pipeline {
    let threads = ThreadCounts::for_cores(config.processing_threads);
    let settings = PipelineSettings {
        decode_threads: threads.decode,
        resize_threads: threads.resize,
        fetch_threads: threads.fetch,
        detect_threads: threads.detect,
        embed_threads: threads.embed,
        read_threads: threads.read,
        file_budget_bytes: config.sizes.file_budget_bytes,
        pixel_budget_bytes: config.sizes.pixel_budget_bytes,
        limits: photo_limits(config),
        lease_ttl: config.times.lease_ttl,
        drain_grace: config.times.drain_grace,
    };
    let parts = PipelineDependencies {
        queue: store.queue.clone(),
        blobs: store.blobs.clone(),
        models,
        runtime: tokio::runtime::Handle::current(),
    };
    Pipeline::start(settings, parts)
}

fn photo_limits(config: &Config) -> Limits {
    Limits { max_file_bytes: config.sizes.max_photo_bytes, max_pixels: config.sizes.max_pixels }
}

fn api_settings(config: &Config) -> ApiSettings {
    let recognition = |confidence_threshold| Recognition {
        enabled: true,
        confidence_threshold,
        mode: RecognitionMode::Photo,
        grid: None,
    };
    ApiSettings {
        environment: config.environment,
        album_defaults: AlbumConfig {
            face: recognition(config.face_threshold),
            text: recognition(config.text_threshold),
            preview_max_dimension: 2048,
            thumbnail_max_dimension: 512,
            bib_pattern: DEFAULT_BIB_PATTERN.to_owned(),
        },
        // The longest batch that a partner means: 1000 names of 255 characters, each escaped in six bytes, and more.
        max_body_bytes: 4 << 20,
        head_timeout: HEAD_TIMEOUT,
        body_timeout: config.times.body_timeout,
        max_photo_bytes: config.sizes.max_photo_bytes,
        max_probe_bytes: config.sizes.max_probe_bytes,
        upload_ttl: config.times.upload_ttl,
        download_ttl: config.times.download_ttl,
        probe_ttl: config.times.probe_ttl,
        media_types: ["image/jpeg", "image/png", "image/webp"].map(str::to_owned).to_vec(),
        calibrations: models::calibrations(),
        admin_on_api_port: config.admin_listen.is_none(),
    }
}

async fn start_admin(
    config: &Config,
    context: &Context,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<Option<tokio::task::JoinHandle<()>>> {
    let Some(address) = config.admin_listen else { return Ok(None) };
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("listening on {address} (PHOTOFINISH_ADMIN_LISTEN)"))?;
    let context = context.clone();
    Ok(Some(tokio::spawn(async move {
        photofinish_api::serve_admin(listener, context, wait_until_stopped(stopped)).await;
    })))
}

/// The data folder, and the rows, which two data folders may share. Rows on a server are for any number of processes;
/// their leases lapse by themselves.
fn lock_embedded_store(config: &Config, role: Role) -> anyhow::Result<Option<[File; 2]>> {
    if DatabaseKind::from_url(&config.database_url) != Some(DatabaseKind::Sqlite) {
        return Ok(None);
    }
    let folder = lock_data_dir(config, role)?;
    let rows = photofinish_store::lock_database(&config.database_url, role == Role::All)?;
    Ok(rows.map(|rows| [folder, rows]))
}

/// One process works on an embedded data folder: at its start it may take back every lease.
fn lock_data_dir(config: &Config, role: Role) -> anyhow::Result<File> {
    make_folder(&config.data_dir)
        .with_context(|| format!("making the data folder {}", config.data_dir.display()))?;
    let path = config.data_dir.join("photofinish.lock");
    let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    let locked = if role == Role::All { file.try_lock() } else { file.try_lock_shared() };
    match locked {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            anyhow::bail!("another photofinish works on the data folder {}", config.data_dir.display())
        }
        Err(TryLockError::Error(error)) => Err(error).context("locking the data folder"),
    }
}

/// Histograms have buckets, so that those of several processes can be added up.
fn install_metrics(role: Role) -> Result<PrometheusHandle, BuildError> {
    let sizes: Vec<f64> = (0..9).map(|power| f64::from(1 << power)).collect();
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &LATENCY_BUCKETS)?
        .set_buckets_for_metric(
            Matcher::Full(photofinish_pipeline::metrics::CONFIRM_TO_SEARCHABLE_SECONDS.to_owned()),
            &QUEUE_WAIT_BUCKETS,
        )?
        .set_buckets_for_metric(Matcher::Suffix("_batch_size".to_owned()), &sizes)?
        .set_buckets_for_metric(Matcher::Suffix("_together".to_owned()), &sizes)?
        .install_recorder()?;
    photofinish_api::metrics::describe();
    photofinish_pipeline::metrics::describe();
    photofinish_store::metric_names::describe();
    // Photos whose workers died are found, and counted as failed, by any process.
    photofinish_store::metric_names::register_counters();
    if role.has_pipeline() {
        photofinish_pipeline::metrics::init_counters();
    }
    Ok(recorder)
}

/// What tells a service to stop. Listened for from its first moment: as process 1 of a container it has no handler but
/// its own, and a signal that came while networks were loaded would be lost.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listening for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listening for SIGINT")?,
        })
    }

    /// Waits for one; returns at once when it came before.
    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// What comes of work that may wait for others; `None` when a signal came first.
    async fn run_until_signal<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.wait() => None,
        }
    }
}

/// Until the service is stopped.
pub async fn wait_until_stopped(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which only happens at the end too.
    drop(stopped.wait_for(|stopped| *stopped).await);
}
