//! The cluster profile on one machine: Postgres, NATS and S3, each behind a proxy that can break connections to it, two
//! APIs behind a load balancer, and workers. Everything ends when it is dropped.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use photofinish_client::{Client, ClientOptions, RetriedUploadStatuses, RetryPolicy};
use photofinish_servers::{
    BUCKET, LoadBalancer, NatsServer, Postgres, Proxy, ProxyFault, S3Server, find_faketime,
};
use photofinish_tests::harness::{ALL_SCOPES, Service, ServiceOptions};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::partner::Partner;

/// The prefix of all objects in the bucket. Short: the S3 server puts the metadata of an object into one file name.
const PREFIX: &str = "a";

/// The longest request: a cluster that is cut off responds late or never.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time for which a client tries again: longer than any fault, and than a cluster takes to recover from it.
const GIVE_UP_AFTER: Duration = Duration::from_secs(240);
/// Between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(150);

/// The key that seals the secrets of webhooks.
const SECRET_KEY: &str = "c29hayBzb2FrIHNvYWsgc29hayBzb2FrIHNvYWsgc28=";
/// Test keys never run out of so many credits.
const MOCK_CREDITS: &str = "1000000";
/// The options of a careful partner's program: it tries every request again until it succeeds, and counts only successes as
/// done.
pub fn client_options(timeout: Duration) -> ClientOptions {
    ClientOptions {
        timeout,
        upload_timeout: timeout,
        min_upload_rate: u64::MAX,
        // A connection for each request: an API that the load balancer deregisters gets no more over an open one.
        idle_connections: 0,
        retry: RetryPolicy {
            max_attempts: u32::MAX,
            give_up_after: GIVE_UP_AFTER,
            first_delay: RETRY_DELAY,
            max_delay: RETRY_DELAY,
            upload_statuses: RetriedUploadStatuses::All,
        },
    }
}

/// How a cluster is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// How many processes read photos.
    pub workers: usize,
    /// How long a worker leases a photo, seconds: short, so that no test waits long for the photos of a dead worker.
    pub lease_seconds: u64,
    /// Attempts before a photo fails. More than an installation has: a photo that happens to be in flight at each of many
    /// kills must not be taken for their cause.
    pub attempt_limit: u32,
    /// The least time that reading a photo takes, which sets the rate of a worker.
    pub read_delay: Duration,
    /// How long photos in flight may take to finish at a stop, seconds; the rest is released.
    pub drain_seconds: u64,
    /// Cores that a worker may use.
    pub threads: usize,
    /// Whether the clock of the first API is 5 minutes slow and that of the first worker 5 minutes fast.
    pub skewed_clocks: bool,
    /// Real models in place of the fake ones, which read painted marks.
    pub real_models: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            workers: 2,
            lease_seconds: 4,
            attempt_limit: 50,
            read_delay: Duration::from_millis(150),
            drain_seconds: 20,
            threads: 2,
            skewed_clocks: false,
            real_models: false,
        }
    }
}

/// The proxies in front of the servers.
pub struct Proxies {
    /// To the database.
    pub postgres: Proxy,
    /// To the queue.
    pub nats: Proxy,
    /// To the storage, for the service and for partners.
    pub s3: Proxy,
}

/// A running cluster.
// Fields are dropped in this order: processes end before the servers that they use.
pub struct Cluster {
    options: ClusterOptions,
    apis: Vec<Service>,
    workers: Vec<Service>,
    load_balancer: LoadBalancer,
    proxies: Proxies,
    nats: Mutex<NatsServer>,
    s3: Mutex<S3Server>,
    postgres: Postgres,
    partner: Partner,
    key: String,
    /// The ids of the albums that were created.
    albums: Mutex<Vec<String>>,
    runtime: Runtime,
}

impl Cluster {
    /// Starts one, empty. `None`, with a line that says so, where the program of a server is missing.
    ///
    /// # Errors
    /// When something does not start.
    ///
    /// # Panics
    /// When a program is missing and nothing may be skipped (`REQUIRE_SHARED=1`), or a process does not become ready.
    pub fn start(options: &ClusterOptions) -> anyhow::Result<Option<Self>> {
        let (Some(postgres), Some(nats), Some(s3)) =
            (Postgres::start_private(), NatsServer::start(), S3Server::start())
        else {
            return Ok(None);
        };
        let faketime = if options.skewed_clocks { find_faketime() } else { None };
        if options.skewed_clocks && faketime.is_none() {
            return Ok(None);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("proxies")
            .enable_all()
            .build()
            .context("starting the proxies")?;
        let proxies = runtime.block_on(async {
            Proxies {
                postgres: Proxy::in_front_of(postgres.address()).await,
                nats: Proxy::in_front_of(nats.address()).await,
                s3: Proxy::in_front_of(s3.address()).await,
            }
        });
        let partner = Partner::start();
        let service_options = service_options(options, &postgres, &s3, &proxies)?;
        let service_options = service_options.with_setting("PHOTOFINISH_WEBHOOK_ALLOW", partner.address());
        let process = |role, number: usize, minutes: i32| {
            let options = service_options.clone().with_role(role);
            match &faketime {
                Some(library) if number == 0 => Service::start(with_clock_offset(options, library, minutes)),
                _ => Service::start(options),
            }
        };
        let apis: Vec<Service> = (0..2).map(|number| process("serve", number, -5)).collect();
        let workers: Vec<Service> = (0..options.workers).map(|number| process("work", number, 5)).collect();
        let addresses: Vec<SocketAddr> =
            apis.iter().map(|api| (Ipv4Addr::LOCALHOST, api.port()).into()).collect();
        let load_balancer = runtime.block_on(LoadBalancer::in_front_of(&addresses, "/readyz"));
        let key = apis[1].create_key(&ALL_SCOPES, "test");
        let (nats, s3) = (Mutex::new(nats), Mutex::new(s3));
        let albums = Mutex::default();
        let cluster = Self {
            options: options.clone(),
            apis,
            workers,
            load_balancer,
            proxies,
            nats,
            s3,
            postgres,
            partner,
            key,
            albums,
            runtime,
        };
        cluster.create_webhook()?;
        Ok(Some(cluster))
    }

    fn create_webhook(&self) -> anyhow::Result<()> {
        let types = ["photo.ready", "photo.failed"];
        let webhook = json!({ "url": self.partner.url(), "types": types });
        self.client().call::<Value>("webhooks/create", &webhook).context("creating a webhook").map(drop)
    }

    /// The partner's program that receives webhooks.
    pub fn partner(&self) -> &Partner {
        &self.partner
    }

    /// The API that waits for the partner's answer to a webhook, if one does.
    pub fn find_sender(&self) -> Option<&Service> {
        let running = self.apis.iter().filter(|api| !api.has_exited());
        let mut senders = running.filter(|api| self.partner.waits_for_answer(api.process_id()));
        senders.next()
    }

    /// How it is set up.
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// The processes that respond to partners.
    pub fn apis(&self) -> &[Service] {
        &self.apis
    }

    /// The processes that read photos.
    pub fn workers(&self) -> &[Service] {
        &self.workers
    }

    /// The load balancer in front of the APIs.
    pub fn load_balancer(&self) -> &LoadBalancer {
        &self.load_balancer
    }

    /// The proxies in front of the servers.
    pub fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// The database server.
    pub fn postgres(&self) -> &Postgres {
        &self.postgres
    }

    /// The queue server.
    pub fn nats(&self) -> MutexGuard<'_, NatsServer> {
        self.nats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The storage server.
    pub fn s3(&self) -> MutexGuard<'_, S3Server> {
        self.s3.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key of every scope.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Waits on this thread for a future, on the runtime of the proxies.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// A partner's program, through the load balancer.
    pub fn client(&self) -> Client {
        let origin = format!("http://{}", self.load_balancer.address());
        Client::new(&origin, &self.key, client_options(REQUEST_TIMEOUT))
    }

    /// A partner's program that calls one process.
    pub fn client_for(&self, process: &Service) -> Client {
        Client::new(&process.origin(), &self.key, client_options(REQUEST_TIMEOUT))
    }

    /// The metrics of a process, in the Prometheus text format; empty when it does not respond.
    pub fn metrics_of(&self, process: &Service) -> String {
        let response = self.client_for(process).raw("GET", "/metrics", &[], b"");
        response.ok().filter(|response| response.status == 200).map_or_else(String::new, |page| page.text())
    }

    /// Creates an album.
    ///
    /// # Errors
    /// When the cluster does not respond.
    pub fn create_album(&self, title: &str) -> anyhow::Result<String> {
        let album = self.client().create_album(title, None)?.id;
        self.albums.lock().unwrap_or_else(PoisonError::into_inner).push(album.clone());
        Ok(album)
    }

    /// Every object of storage, below the prefix, for example `o/<organization>/a/<album>/p/<photo>/original`.
    pub fn list_objects(&self) -> Vec<String> {
        let below = self.s3().bucket().join(PREFIX);
        let mut found = Vec::new();
        let mut folders = vec![below.clone()];
        while let Some(folder) = folders.pop() {
            // A folder may be removed while it is listed.
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Ok(name) = path.strip_prefix(&below) {
                    found.push(name.to_string_lossy().into_owned());
                }
            }
        }
        found
    }

    /// Whether an album of this id was created here.
    pub fn has_album(&self, album: &str) -> bool {
        self.albums.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|known| known == album)
    }

    /// Every process with its name.
    pub fn processes(&self) -> impl Iterator<Item = (String, &Service)> {
        let apis = self.apis.iter().enumerate().map(|(number, api)| (format!("api-{}", number + 1), api));
        let workers = self.workers.iter().enumerate();
        apis.chain(workers.map(|(number, worker)| (format!("worker-{}", number + 1), worker)))
    }

    /// Writes every process's log into a folder.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn save_logs(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        for (name, process) in self.processes() {
            let file = folder.join(format!("{name}.log"));
            std::fs::write(&file, process.log()).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    }
}

/// The settings that all processes share.
fn service_options(
    options: &ClusterOptions,
    postgres: &Postgres,
    s3: &S3Server,
    proxies: &Proxies,
) -> anyhow::Result<ServiceOptions> {
    let database = postgres.create_database();
    let database = database.rsplit('/').next().context("a database's URL ends with its name")?;
    let service = if options.real_models {
        ServiceOptions::with_real_models().map_err(anyhow::Error::msg)?
    } else {
        ServiceOptions::with_fake_models()
            .with_setting("PHOTOFINISH_FAKE_DELAY_MS", options.read_delay.as_millis().to_string())
    };
    let service = service
        .with_setting("PHOTOFINISH_DATABASE_URL", postgres.url_through(database, proxies.postgres.address()))
        .with_setting("PHOTOFINISH_STORAGE_URL", format!("s3://{BUCKET}/{PREFIX}"))
        .with_setting("PHOTOFINISH_QUEUE_URL", format!("nats://{}", proxies.nats.address()))
        .with_setting("PHOTOFINISH_LEASE_SECONDS", options.lease_seconds.to_string())
        .with_setting("PHOTOFINISH_ATTEMPT_LIMIT", options.attempt_limit.to_string())
        .with_setting("PHOTOFINISH_SECRET_KEY", SECRET_KEY)
        .with_setting("PHOTOFINISH_WEBHOOK_HTTP", "on")
        .with_setting("PHOTOFINISH_CREDITS", "on")
        .with_setting("PHOTOFINISH_MOCK_CREDITS", MOCK_CREDITS)
        .with_setting("PHOTOFINISH_DRAIN_SECONDS", options.drain_seconds.to_string())
        .with_setting("PHOTOFINISH_PROCESSING_THREADS", options.threads.to_string());
    let variables = s3.variables_through(proxies.s3.address());
    Ok(variables.into_iter().fold(service, |service, (name, value)| service.with_setting(&name, value)))
}

/// The options of a process whose clock is wrong by some minutes; its monotonic clock stays right.
fn with_clock_offset(options: ServiceOptions, library: &Path, minutes: i32) -> ServiceOptions {
    options
        .with_setting("LD_PRELOAD", library.to_string_lossy())
        .with_setting("FAKETIME", format!("{minutes:+}m"))
        .with_setting("DONT_FAKE_MONOTONIC", "1")
}

/// A fault of a proxy, which ends when this is dropped.
pub struct ProxyFaultGuard<'a>(&'a Proxy);

impl<'a> ProxyFaultGuard<'a> {
    /// Begins the fault.
    pub fn inject(proxy: &'a Proxy, fault: ProxyFault) -> Self {
        proxy.set_fault(fault);
        Self(proxy)
    }
}

impl Drop for ProxyFaultGuard<'_> {
    fn drop(&mut self) {
        self.0.set_fault(ProxyFault::None);
    }
}

/// The error when a server is missing; which one was printed before.
pub fn missing_server_error() -> anyhow::Error {
    anyhow::anyhow!("a server of the cluster is missing, see above; `cargo xtask setup --all` sets them up")
}
