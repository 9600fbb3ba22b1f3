//! The settings as an operator gives them: text, from flags or `PHOTOFINISH_*` variables of the same names.
//! Nothing is judged here; `config` turns them into types and lists every problem at once.

/// Flags and environment variables, as given.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings (each also as an environment variable)")]
pub struct Settings {
    /// Address of the API [127.0.0.1:8080]
    #[arg(long, global = true, env = "PHOTOFINISH_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Address of health and metrics [the API's]
    #[arg(long, global = true, env = "PHOTOFINISH_ADMIN_LISTEN", value_name = "ADDRESS")]
    pub admin_listen: Option<String>,
    /// Folder of the database, the photos and the secrets made at first start [./data]
    #[arg(long, global = true, env = "PHOTOFINISH_DATA_DIR", value_name = "FOLDER")]
    pub data_dir: Option<String>,
    /// What presigned local URLs begin with [http:// and the API's address]
    #[arg(long, global = true, env = "PHOTOFINISH_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<String>,
    /// Rows: sqlite:FILE or postgres://USER:PASSWORD@HOST/DATABASE [sqlite, in the data folder]
    #[arg(long, global = true, env = "PHOTOFINISH_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Postgres: connections at most [16]
    #[arg(long, global = true, env = "PHOTOFINISH_DATABASE_CONNECTIONS", value_name = "COUNT")]
    pub database_connections: Option<String>,
    /// Postgres: how long a call waits for a connection, seconds [10]
    #[arg(long, global = true, env = "PHOTOFINISH_DATABASE_ACQUIRE_SECONDS", value_name = "SECONDS")]
    pub database_acquire_seconds: Option<String>,
    /// Postgres: how long a statement may run, seconds [30]
    #[arg(long, global = true, env = "PHOTOFINISH_DATABASE_STATEMENT_SECONDS", value_name = "SECONDS")]
    pub database_statement_seconds: Option<String>,
    /// Postgres: how long a statement may wait for a lock, seconds [10]
    #[arg(long, global = true, env = "PHOTOFINISH_DATABASE_LOCK_SECONDS", value_name = "SECONDS")]
    pub database_lock_seconds: Option<String>,
    /// Bytes: file:FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX [in the data folder]
    #[arg(long, global = true, env = "PHOTOFINISH_STORAGE_URL", value_name = "URL", hide_env_values = true)]
    pub storage_url: Option<String>,
    /// What presigned URLs begin with, where browsers reach S3 at another address [the service's own endpoint]
    #[arg(long, global = true, env = "PHOTOFINISH_STORAGE_PUBLIC_ENDPOINT", value_name = "URL")]
    pub storage_public_endpoint: Option<String>,
    /// Where S3's URLs name the bucket: auto, path or virtual [auto]
    #[arg(long, global = true, env = "PHOTOFINISH_STORAGE_ADDRESSING", value_name = "NAME")]
    pub storage_addressing: Option<String>,
    /// Bytes that no row needs are removed: daily by role `all`, or off (`photofinish sweep` does it too) [daily]
    #[arg(long, global = true, env = "PHOTOFINISH_SWEEP", value_name = "NAME")]
    pub sweep: Option<String>,
    /// How old such bytes must be, hours [48]
    #[arg(long, global = true, env = "PHOTOFINISH_SWEEP_HOURS", value_name = "HOURS")]
    pub sweep_hours: Option<String>,
    /// The clouds' own variables, under the names that their tools give them.
    #[arg(skip)]
    pub cloud_variables: Vec<(String, String)>,
    /// Work queue: nats://HOST:4222 or tls://HOST:4222, several by commas, with USER:PASSWORD@ or TOKEN@ [the database]
    #[arg(long, global = true, env = "PHOTOFINISH_QUEUE_URL", value_name = "URL", hide_env_values = true)]
    pub queue_url: Option<String>,
    /// Credentials file (.creds) of the work queue [none]
    #[arg(long, global = true, env = "PHOTOFINISH_QUEUE_CREDENTIALS", value_name = "FILE")]
    pub queue_credentials: Option<String>,
    /// Name of the work queue's stream [photofinish]
    #[arg(long, global = true, env = "PHOTOFINISH_QUEUE_STREAM", value_name = "NAME")]
    pub queue_stream: Option<String>,
    /// On how many servers the work queue's stream is kept, 1 to 5 [1]
    #[arg(long, global = true, env = "PHOTOFINISH_QUEUE_REPLICAS", value_name = "COUNT")]
    pub queue_replicas: Option<String>,
    /// production (live keys), sandbox (test keys) or local (both) [local]
    #[arg(long, global = true, env = "PHOTOFINISH_ENVIRONMENT", value_name = "NAME")]
    pub environment: Option<String>,
    /// Folder of the model files [.photofinish/models]
    #[arg(long, global = true, env = "PHOTOFINISH_MODELS_DIR", value_name = "FOLDER")]
    pub models_dir: Option<String>,
    /// zoo (the real networks) or fake (reads marks painted by the test generator) [zoo]
    #[arg(long, global = true, env = "PHOTOFINISH_MODELS", value_name = "KIND")]
    pub models: Option<String>,
    /// With PHOTOFINISH_MODELS=fake: how long the reading of each photo takes, milliseconds [0]
    #[arg(long, global = true, env = "PHOTOFINISH_FAKE_DELAY_MS", value_name = "MILLISECONDS")]
    pub fake_delay_ms: Option<String>,
    /// The ONNX Runtime library, libonnxruntime.so [searched beside the binary, in .photofinish/runtime, /opt]
    #[arg(long, global = true, env = "PHOTOFINISH_ONNXRUNTIME", value_name = "FILE")]
    pub onnxruntime: Option<String>,
    /// auto, cpu, cuda or wgpu [auto]
    #[arg(long, global = true, env = "PHOTOFINISH_DEVICE", value_name = "NAME")]
    pub device: Option<String>,
    /// Precision of the text networks where OpenVINO runs them: bf16 or f32 [bf16]
    #[arg(long, global = true, env = "PHOTOFINISH_TEXT_PRECISION", value_name = "NAME")]
    pub text_precision: Option<String>,
    /// Cores that the pipeline may use [all]
    #[arg(long, global = true, env = "PHOTOFINISH_PROCESSING_THREADS", value_name = "COUNT")]
    pub processing_threads: Option<String>,
    /// Undecoded photos held in memory at once, megabytes [16 a core]
    #[arg(long, global = true, env = "PHOTOFINISH_FILE_BUDGET_MB", value_name = "MEGABYTES")]
    pub file_budget_mb: Option<String>,
    /// Decoded pixels held in memory at once, megabytes [28 a core]
    #[arg(long, global = true, env = "PHOTOFINISH_PIXEL_BUDGET_MB", value_name = "MEGABYTES")]
    pub pixel_budget_mb: Option<String>,
    /// Face vectors held in memory, megabytes [1024]
    #[arg(long, global = true, env = "PHOTOFINISH_FACE_INDEX_MB", value_name = "MEGABYTES")]
    pub face_index_mb: Option<String>,
    /// Largest photo, megabytes [50]
    #[arg(long, global = true, env = "PHOTOFINISH_MAX_PHOTO_MB", value_name = "MEGABYTES")]
    pub max_photo_mb: Option<String>,
    /// Largest selfie, megabytes [10]
    #[arg(long, global = true, env = "PHOTOFINISH_MAX_SELFIE_MB", value_name = "MEGABYTES")]
    pub max_selfie_mb: Option<String>,
    /// Most pixels of a photo, megapixels [200]
    #[arg(long, global = true, env = "PHOTOFINISH_MAX_MEGAPIXELS", value_name = "MEGAPIXELS")]
    pub max_megapixels: Option<String>,
    /// Face confidence threshold of a new album, 0 to 100 [10]
    #[arg(long, global = true, env = "PHOTOFINISH_FACE_THRESHOLD", value_name = "CONFIDENCE")]
    pub face_threshold: Option<String>,
    /// Bib confidence threshold of a new album, 0 to 100 [0]
    #[arg(long, global = true, env = "PHOTOFINISH_TEXT_THRESHOLD", value_name = "CONFIDENCE")]
    pub text_threshold: Option<String>,
    /// How long a worker has a photo before another may take it, seconds [60]
    #[arg(long, global = true, env = "PHOTOFINISH_LEASE_SECONDS", value_name = "SECONDS")]
    pub lease_seconds: Option<String>,
    /// How often a photo may end its worker before it has failed [3]
    #[arg(long, global = true, env = "PHOTOFINISH_ATTEMPT_LIMIT", value_name = "COUNT")]
    pub attempt_limit: Option<String>,
    /// How long photos in flight may take to finish at a stop, seconds [20]
    #[arg(long, global = true, env = "PHOTOFINISH_DRAIN_SECONDS", value_name = "SECONDS")]
    pub drain_seconds: Option<String>,
    /// How long an upload URL holds, seconds [900]
    #[arg(long, global = true, env = "PHOTOFINISH_UPLOAD_SECONDS", value_name = "SECONDS")]
    pub upload_seconds: Option<String>,
    /// How long a preview URL holds, seconds [3600]
    #[arg(long, global = true, env = "PHOTOFINISH_DOWNLOAD_SECONDS", value_name = "SECONDS")]
    pub download_seconds: Option<String>,
    /// How long a selfie's imageId lives, seconds [3600]
    #[arg(long, global = true, env = "PHOTOFINISH_PROBE_SECONDS", value_name = "SECONDS")]
    pub probe_seconds: Option<String>,
    /// How long a request body may take, seconds [30]
    #[arg(long, global = true, env = "PHOTOFINISH_BODY_SECONDS", value_name = "SECONDS")]
    pub body_seconds: Option<String>,
    /// What is logged, as a tracing filter [info,ort=warn]
    #[arg(long, global = true, env = "PHOTOFINISH_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// text or json [text]
    #[arg(long, global = true, env = "PHOTOFINISH_LOG_FORMAT", value_name = "NAME")]
    pub log_format: Option<String>,
    /// OpenTelemetry's own variables, under the names that its tools give them.
    #[arg(skip)]
    pub trace_variables: Vec<(String, String)>,
}
