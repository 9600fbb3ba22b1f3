//! Builds the service from its configuration, runs it until it is told to stop, and stops it in order:
//! the API refuses first, photos in flight end or go back, then the process leaves.

use std::fs::{File, TryLockError};
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use photofinish_api::context::{ApiSettings, Arrived, Context, Draining};
use photofinish_models::traits::ModelFactory;
use photofinish_pipeline::{Limits, Pipeline, PipelineParts, PipelineSettings, ProbeDesk, Threads};
use photofinish_store::album::{AlbumConfig, DEFAULT_BIB_PATTERN, Recognition, RecognitionMode};
use photofinish_store::local::make_folder;
use photofinish_store::traits::Keys;
use photofinish_store::{DatabaseKind, Store, StoreSettings};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::adapters::{Desk, ServiceHealth};
use crate::config::Config;
use crate::logging::Logging;
use crate::{chores, networks, secrets};

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

    fn serves(self) -> bool {
        self != Self::Work
    }

    fn works(self) -> bool {
        self != Self::Serve
    }
}

/// Selfies that may wait for a vector at once; more are told to come again.
const PROBE_SEATS: usize = 32;
/// How long the head of a request may take, from the connection or from the answer before: longer than proxies keep
/// connections that nobody uses, so that it is they who close them.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// How long the store may take to close once nobody uses it.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// From a search in a warm album to an upload over a phone.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// From a photo that finds an idle worker to one behind half a million others.
const WAITS: [f64; 14] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0];

/// Runs a role until SIGTERM or SIGINT.
///
/// # Errors
/// When a part cannot be built: the message says which and what to do.
pub fn run(mut config: Config, role: Role) -> anyhow::Result<ExitCode> {
    config.sweeping.is_daily &= role == Role::All;
    let logging = Logging::start(&config, role)?;
    let ended = block_on(service(config, role, logging.arrived()));
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
        signing_secret: secrets::signing_secret(&config.secrets_dir())?,
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
        let migrated = signals.or_stopped(photofinish_store::migrate(&config.database_url)).await;
        Ok(migrated.context("told to stop before the database was up to date")??)
    })?
}

async fn service(config: Config, role: Role, arrived: Arrived) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let _locks = lock(&config, role)?;
    let metrics = start_metrics(role).context("installing the metrics recorder")?;
    let Some(store) = signals.or_stopped(open_store(&config)).await else { return Ok(ExitCode::SUCCESS) };
    let store = store?;
    let models = networks::factory(&config)?;
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("listening on {} (PHOTOFINISH_LISTEN)", config.listen))?;
    reclaim(role, &store).await;
    let pipeline = role.works().then(|| Arc::new(start_pipeline(&config, &store, models.clone())));
    let desk = role.serves().then(|| ProbeDesk::start(models.clone(), limits(&config), PROBE_SEATS));
    let context = Context {
        store: store.clone(),
        health: Arc::new(ServiceHealth { store: store.clone(), pipeline: pipeline.clone() }),
        settings: Arc::new(api_settings(&config)),
        desk: Arc::new(Desk(desk)),
        metrics: Arc::new({
            let metrics = metrics.clone();
            move || metrics.render()
        }),
        queued: Arc::new({
            let pipeline = pipeline.clone();
            move || pipeline.iter().for_each(|pipeline| pipeline.wake())
        }),
        arrived,
        draining: Draining::default(),
    };
    let (stop, stopped) = watch::channel(false);
    let chores = tokio::spawn(chores::run((store.clone(), config.sweeping), metrics, stopped.clone()));
    let admin = start_admin(&config, &context, stopped.clone()).await?;
    tracing::info!(listen = %config.listen, role = ?role, "ready for requests");
    let api = tokio::spawn({
        let until = until(stopped.clone());
        async move {
            if role.serves() {
                photofinish_api::serve(listener, context, until).await;
            } else {
                photofinish_api::serve_admin(listener, context, until).await;
            }
        }
    });
    signals.received().await;
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
    close(&store).await;
    Ok(ExitCode::SUCCESS)
}

/// A process that alone works on the data folder takes back what one that died had in its hands.
async fn reclaim(role: Role, store: &Store) {
    if let (Role::All, Some(embedded)) = (role, store.embedded()) {
        embedded.reclaim_first().await;
    }
}

async fn close(store: &Store) {
    if tokio::time::timeout(CLOSE_LIMIT, store.close()).await.is_err() {
        tracing::warn!("the database or the queue did not close in time");
    }
}

fn start_pipeline(config: &Config, store: &Store, models: Arc<dyn ModelFactory>) -> Pipeline {
    let threads = Threads::for_cores(config.processing_threads);
    let settings = PipelineSettings {
        decode_threads: threads.decode,
        resize_threads: threads.resize,
        fetch_threads: threads.fetch,
        detect_threads: threads.detect,
        embed_threads: threads.embed,
        read_threads: threads.read,
        file_budget_bytes: config.sizes.file_budget_bytes,
        pixel_budget_bytes: config.sizes.pixel_budget_bytes,
        limits: limits(config),
        lease_ttl: config.times.lease_ttl,
        drain_grace: config.times.drain_grace,
    };
    let parts = PipelineParts {
        queue: store.queue.clone(),
        blobs: store.blobs.clone(),
        models,
        runtime: tokio::runtime::Handle::current(),
    };
    Pipeline::start(settings, parts)
}

fn limits(config: &Config) -> Limits {
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
        calibrations: networks::calibrations(),
        admin_here: config.admin_listen.is_none(),
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
        photofinish_api::serve_admin(listener, context, until(stopped)).await;
    })))
}

/// The data folder, and the rows, which two data folders may share. Rows on a server are for any number of processes;
/// their leases lapse by themselves.
fn lock(config: &Config, role: Role) -> anyhow::Result<Option<[File; 2]>> {
    if DatabaseKind::of_url(&config.database_url) != Some(DatabaseKind::Sqlite) {
        return Ok(None);
    }
    let folder = lock_data_dir(config, role)?;
    let rows = photofinish_store::lock_rows(&config.database_url, role == Role::All)?;
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
fn start_metrics(role: Role) -> Result<PrometheusHandle, BuildError> {
    let sizes: Vec<f64> = (0..9).map(|power| f64::from(1 << power)).collect();
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(
            Matcher::Full(photofinish_pipeline::metric_names::CONFIRM_TO_SEARCHABLE_SECONDS.to_owned()),
            &WAITS,
        )?
        .set_buckets_for_metric(Matcher::Suffix("_batch_size".to_owned()), &sizes)?
        .set_buckets_for_metric(Matcher::Suffix("_together".to_owned()), &sizes)?
        .install_recorder()?;
    photofinish_api::metrics::describe();
    photofinish_pipeline::metric_names::describe();
    photofinish_store::meters::describe();
    // Photos whose workers died are found, and counted as failed, by any process.
    photofinish_store::meters::begin();
    if role.works() {
        photofinish_pipeline::metric_names::begin();
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
    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// What comes of work that may wait for others; `None` when a signal came first.
    async fn or_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.received() => None,
        }
    }
}

/// Until the service is stopped.
pub async fn until(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which only happens at the end too.
    drop(stopped.wait_for(|stopped| *stopped).await);
}
