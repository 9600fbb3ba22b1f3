//! Prints what the work queue costs a photo: no-op workers that lease and finish, over rows alone or over rows and NATS:
//! `cargo run --release -p photofinish-store --example queue_rates FOLDER [nats://HOST:PORT]`. The folder, on the disk to
//! be measured, is for files that are removed at the end; the stream `rates` is made anew.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use photofinish_store::photo::PhotoSize;
use photofinish_store::remote::CloudSettings;
use photofinish_store::suite::Event;
use photofinish_store::traits::{Finished, Lease, LeaseRequest};
use photofinish_store::{QueueSettings, ServerLimits, Store, StoreSettings};
use uuid::Uuid;

const PHOTOS: usize = 20_000;
const WORKERS: usize = 2;
const AT_ONCE: usize = 64;
const LONG: Duration = Duration::from_secs(3600);
const STREAM: &str = "rates";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let url = arguments.next();
    let folder = parent.join(format!("photofinish-rates-{}", Uuid::now_v7()));
    std::fs::create_dir_all(&folder)?;
    let measured = measure(&folder, url).await;
    std::fs::remove_dir_all(&folder)?;
    measured
}

async fn measure(folder: &Path, url: Option<String>) -> Result<(), Box<dyn Error>> {
    if let Some(url) = &url {
        let context = async_nats::jetstream::new(async_nats::connect(url).await?);
        // Not there the first time.
        drop(context.delete_stream(STREAM).await);
    }
    let store = open(folder, url).await?;
    let event = Event::make(&store).await;
    let mut photos = Vec::new();
    while photos.len() < PHOTOS {
        photos.extend(event.expected(500).await);
    }
    let start = Instant::now();
    for some in photos.chunks(500) {
        store.queue.confirm(event.album, some).await?;
    }
    let confirmed = start.elapsed();
    let workers = (0..WORKERS).map(|_| work(&store, &event));
    futures_util::future::try_join_all(workers).await?;
    let seconds = start.elapsed().as_secs_f64();
    println!("confirmed, 500 a call: {:.0} a second", PHOTOS as f64 / confirmed.as_secs_f64());
    println!(
        "from confirm to ready: {:.0} photos a second ({PHOTOS} in {seconds:.2} s)",
        PHOTOS as f64 / seconds
    );
    store.close().await;
    Ok(())
}

async fn open(folder: &Path, url: Option<String>) -> Result<Store, Box<dyn Error>> {
    let queue = url.map(|url| QueueSettings {
        url,
        credentials: None,
        stream: STREAM.into(),
        replicas: 1,
        ack_wait: Duration::from_secs(60),
        sweep_every: Duration::from_secs(60),
    });
    let settings = StoreSettings {
        database_url: format!("sqlite:{}", folder.join("photofinish.db").display()),
        server_limits: ServerLimits::default(),
        storage_url: format!("file:{}", folder.join("objects").display()),
        cloud: CloudSettings::default(),
        public_url: "http://127.0.0.1:8080".parse()?,
        signing_secret: [7; 32],
        attempt_limit: 3,
        face_index_bytes: 1 << 20,
        scratch: folder.join("scratch"),
        queue,
    };
    let store = Store::open(settings).await?;
    while store.check_queue().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(store)
}

/// Leases and finishes until every photo is ready.
async fn work(store: &Store, event: &Event) -> Result<(), Box<dyn Error>> {
    loop {
        let request = LeaseRequest { limit: AT_ONCE, ttl: LONG, suspects: false };
        let leases = store.queue.lease(request).await?;
        if leases.is_empty() && store.photos.counts(event.album).await?.ready == PHOTOS as u64 {
            return Ok(());
        }
        store.queue.finish(leases.iter().map(nothing_seen).collect()).await?;
    }
}

fn nothing_seen(lease: &Lease) -> Finished {
    Finished {
        lease: lease.clone(),
        size: PhotoSize { width: 6000, height: 4000 },
        taken_at: None,
        camera: None,
        faces: Vec::new(),
        texts: Vec::new(),
    }
}
