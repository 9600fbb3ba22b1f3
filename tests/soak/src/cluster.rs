//! The cluster profile on one machine: Postgres, NATS and S3, each behind a proxy that can break the way to it, two APIs
//! behind a front, and workers. All of it goes with its owner.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use photofinish_servers::{
    BUCKET, LoadBalancer, NatsServer, Postgres, Proxy, ProxyFault, S3Server, find_faketime,
};
use photofinish_tests::harness::{Service, ServiceOptions};
use tokio::runtime::Runtime;

use crate::client::Client;

/// Below the bucket. Short, since the S3 server keeps what it knows of an object under one file name.
const PREFIX: &str = "a";

/// How a cluster is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// How many processes read photos.
    pub workers: usize,
    /// How long a worker has a photo before another may take it, seconds: short, so that what a dead worker held is
    /// waited for in no test.
    pub lease_seconds: u64,
    /// How often a photo may end its worker. Above what an installation has: a photo that happens to be in flight at
    /// each of many kills must not be taken for what kills.
    pub attempt_limit: u32,
    /// What the reading of a photo takes at least: a worker's pace.
    pub read_delay: Duration,
    /// How long photos in flight may take to end at a stop, seconds; what is left is given back.
    pub drain_seconds: u64,
    /// Cores that a worker may use.
    pub threads: usize,
    /// Whether the first API's clock is 5 minutes late, and the first worker's 5 minutes early.
    pub skewed_clocks: bool,
    /// Real networks in place of those that read marks.
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

/// The ways to the servers.
pub struct Proxies {
    /// To the rows.
    pub postgres: Proxy,
    /// To the queue.
    pub nats: Proxy,
    /// To the bytes, for the service and for partners.
    pub s3: Proxy,
}

/// A running cluster.
// What is first here ends first: processes before the servers that they use.
pub struct Cluster {
    options: ClusterOptions,
    apis: Vec<Service>,
    workers: Vec<Service>,
    load_balancer: LoadBalancer,
    proxies: Proxies,
    nats: Mutex<NatsServer>,
    s3: Mutex<S3Server>,
    postgres: Postgres,
    key: String,
    /// The ids of the albums that were made.
    albums: Mutex<Vec<String>>,
    runtime: Runtime,
}

impl Cluster {
    /// Starts one, empty; `None`, said loudly, where a server's program is not there.
    ///
    /// # Errors
    /// When something does not start.
    ///
    /// # Panics
    /// Without a program when nothing may be skipped (`REQUIRE_SHARED=1`), and when a process does not become ready.
    pub fn start(shape: &ClusterOptions) -> anyhow::Result<Option<Self>> {
        let (Some(postgres), Some(nats), Some(s3)) =
            (Postgres::start_private(), NatsServer::start(), S3Server::start())
        else {
            return Ok(None);
        };
        let clock = if shape.skewed_clocks { find_faketime() } else { None };
        if shape.skewed_clocks && clock.is_none() {
            return Ok(None);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("proxies")
            .enable_all()
            .build()
            .context("starting the proxies")?;
        let ways = runtime.block_on(async {
            Proxies {
                postgres: Proxy::in_front_of(postgres.address()).await,
                nats: Proxy::in_front_of(nats.address()).await,
                s3: Proxy::in_front_of(s3.address()).await,
            }
        });
        let settings = service_options(shape, &postgres, &s3, &ways)?;
        let process = |role, number: usize, minutes: i32| {
            let options = settings.clone().with_role(role);
            match &clock {
                Some(library) if number == 0 => Service::start(with_clock_offset(options, library, minutes)),
                _ => Service::start(options),
            }
        };
        let apis: Vec<Service> = (0..2).map(|number| process("serve", number, -5)).collect();
        let workers: Vec<Service> = (0..shape.workers).map(|number| process("work", number, 5)).collect();
        let addresses: Vec<SocketAddr> =
            apis.iter().map(|api| (Ipv4Addr::LOCALHOST, api.port()).into()).collect();
        let front = runtime.block_on(LoadBalancer::in_front_of(&addresses, "/readyz"));
        let key = apis[1].create_key(&["search:read", "photo:upload", "album:manage"], "test");
        let (nats, s3) = (Mutex::new(nats), Mutex::new(s3));
        let albums = Mutex::default();
        let shape = shape.clone();
        Ok(Some(Self {
            options: shape,
            apis,
            workers,
            load_balancer: front,
            proxies: ways,
            nats,
            s3,
            postgres,
            key,
            albums,
            runtime,
        }))
    }

    /// How it is set up.
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    /// The processes that answer partners.
    pub fn apis(&self) -> &[Service] {
        &self.apis
    }

    /// The processes that read photos.
    pub fn workers(&self) -> &[Service] {
        &self.workers
    }

    /// The proxy before the APIs.
    pub fn load_balancer(&self) -> &LoadBalancer {
        &self.load_balancer
    }

    /// The ways to the servers.
    pub fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// The rows' server.
    pub fn postgres(&self) -> &Postgres {
        &self.postgres
    }

    /// The queue's server.
    pub fn nats(&self) -> MutexGuard<'_, NatsServer> {
        self.nats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes' server.
    pub fn s3(&self) -> MutexGuard<'_, S3Server> {
        self.s3.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key of every scope.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Waits on this thread for something of the runtime that the proxies run on.
    pub fn block_on<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// A partner's program, through the front.
    pub fn client(&self) -> Client {
        Client::new(format!("http://{}", self.load_balancer.address()), &self.key)
    }

    /// A partner's program that speaks to one API.
    pub fn client_for(&self, api: &Service) -> Client {
        Client::new(api.origin(), &self.key)
    }

    /// Makes an album.
    ///
    /// # Errors
    /// When the cluster does not serve.
    pub fn create_album(&self, title: &str) -> anyhow::Result<String> {
        let album = self.client().album(title)?;
        self.albums.lock().unwrap_or_else(PoisonError::into_inner).push(album.clone());
        Ok(album)
    }

    /// Every object of storage, below the prefix, for example `o/<organization>/a/<album>/p/<photo>/original`.
    pub fn list_objects(&self) -> Vec<String> {
        let below = self.s3().bucket().join(PREFIX);
        let mut found = Vec::new();
        let mut folders = vec![below.clone()];
        while let Some(folder) = folders.pop() {
            // A folder may go while it is looked at.
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

    /// Whether an album of this id was made here.
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

/// What all processes are told alike.
fn service_options(
    shape: &ClusterOptions,
    postgres: &Postgres,
    s3: &S3Server,
    ways: &Proxies,
) -> anyhow::Result<ServiceOptions> {
    let database = postgres.create_database();
    let database = database.rsplit('/').next().context("a database's URL ends with its name")?;
    let mut options = if shape.real_models {
        ServiceOptions::with_real_models().map_err(anyhow::Error::msg)?
    } else {
        ServiceOptions::with_fake_models()
            .with_setting("PHOTOFINISH_FAKE_DELAY_MS", shape.read_delay.as_millis().to_string())
    };
    options = options
        .with_setting("PHOTOFINISH_DATABASE_URL", postgres.url_through(database, ways.postgres.address()))
        .with_setting("PHOTOFINISH_STORAGE_URL", format!("s3://{BUCKET}/{PREFIX}"))
        .with_setting("PHOTOFINISH_QUEUE_URL", format!("nats://{}", ways.nats.address()))
        .with_setting("PHOTOFINISH_LEASE_SECONDS", shape.lease_seconds.to_string())
        .with_setting("PHOTOFINISH_ATTEMPT_LIMIT", shape.attempt_limit.to_string())
        .with_setting("PHOTOFINISH_DRAIN_SECONDS", shape.drain_seconds.to_string())
        .with_setting("PHOTOFINISH_PROCESSING_THREADS", shape.threads.to_string());
    let variables = s3.variables_through(ways.s3.address());
    Ok(variables.into_iter().fold(options, |options, (name, value)| options.with_setting(&name, value)))
}

/// A process whose clock is wrong, and whose stretches of time are right.
fn with_clock_offset(options: ServiceOptions, library: &Path, minutes: i32) -> ServiceOptions {
    options
        .with_setting("LD_PRELOAD", library.to_string_lossy())
        .with_setting("FAKETIME", format!("{minutes:+}m"))
        .with_setting("DONT_FAKE_MONOTONIC", "1")
}

/// Breaks a way for a while and mends it, whatever happens in between.
pub struct ProxyFaultGuard<'a>(&'a Proxy);

impl<'a> ProxyFaultGuard<'a> {
    /// Breaks it.
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
