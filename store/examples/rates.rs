//! Prints what the embedded store does per second on this machine:
//! `cargo run -p photofinish-store --example rates [FOLDER]`. The folder, on the disk to be measured, is for files
//! that are removed at the end.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use photofinish_store::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::object::{ObjectKey, ObjectRole};
use photofinish_store::photo::{Embedding, PhotoSize, SeenFace};
use photofinish_store::remote::CloudSettings;
use photofinish_store::suite::{Event, face, text};
use photofinish_store::traits::{Finished, Lease, TextQuery};
use photofinish_store::{ServerLimits, Store, StoreSettings};
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(3600);
const PHOTOS: usize = 16_000;
const CALLERS: usize = 8;
const BATCH: usize = 64;
const FACES_A_PHOTO: usize = 3;
const DIMENSION: usize = 256;
const COLD_FACES: usize = 100_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args_os().nth(1).map(PathBuf::from).unwrap_or_else(std::env::temp_dir);
    let folder = parent.join(format!("photofinish-rates-{}", Uuid::now_v7()));
    std::fs::create_dir_all(&folder)?;
    let measured = measure(&folder).await;
    std::fs::remove_dir_all(&folder)?;
    measured
}

async fn measure(folder: &Path) -> Result<(), Box<dyn Error>> {
    let store = open(folder).await?;
    let event = Arc::new(Event::make(&store).await);
    let photos = expect(&event).await?;
    confirm_by_eight(&event, &photos).await?;
    let leases = lease_all(&event, photos.len()).await?;
    finish_all(&event, leases).await?;
    search_texts(&event).await?;
    search_faces(&event).await?;
    write_previews(&store).await?;
    let start = Instant::now();
    store.albums.delete(&event.tenant, event.album).await?;
    println!("delete the album: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

async fn open(folder: &Path) -> Result<Store, Box<dyn Error>> {
    let settings = StoreSettings {
        database_url: format!("sqlite:{}", folder.join("photofinish.db").display()),
        server_limits: ServerLimits::default(),
        storage_url: format!("file:{}", folder.join("objects").display()),
        cloud: CloudSettings::default(),
        public_url: "http://127.0.0.1:8080".parse()?,
        signing_secret: [7; 32],
        attempt_limit: 3,
        face_index_bytes: 1 << 30,
        scratch: folder.join("scratch"),
        queue: None,
    };
    Ok(Store::open(settings).await?)
}

fn rate(what: &str, count: usize, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {:.0} a second ({count} in {seconds:.2} s)", count as f64 / seconds);
}

async fn expect(event: &Event) -> Result<Vec<PhotoId>, Box<dyn Error>> {
    let start = Instant::now();
    let mut photos = Vec::new();
    while photos.len() < PHOTOS {
        photos.extend(event.expected(500).await);
    }
    rate("expect, 500 a call", photos.len(), start);
    Ok(photos)
}

async fn confirm_by_eight(event: &Arc<Event>, photos: &[PhotoId]) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let callers: Vec<_> = photos
        .chunks(photos.len().div_ceil(CALLERS))
        .map(|own| {
            let (event, own) = (Arc::clone(event), own.to_vec());
            tokio::spawn(async move {
                let mut slowest = Vec::with_capacity(own.len());
                for photo in own {
                    let start = Instant::now();
                    event.store.queue.confirm(event.album, &[photo]).await?;
                    slowest.push(start.elapsed());
                }
                Ok::<_, photofinish_store::StoreError>(slowest)
            })
        })
        .collect();
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await??);
    }
    rate("confirm, one a call, 8 callers", photos.len(), start);
    println!("  p50 {:?}, p99 {:?}", percentile(&mut took, 0.5), percentile(&mut took, 0.99));
    Ok(())
}

fn percentile(took: &mut [Duration], part: f64) -> Duration {
    took.sort_unstable();
    took[((took.len() - 1) as f64 * part) as usize]
}

async fn lease_all(event: &Event, count: usize) -> Result<Vec<Lease>, Box<dyn Error>> {
    let start = Instant::now();
    let mut leases = Vec::new();
    while leases.len() < count {
        leases.extend(event.leased(BATCH, LONG).await);
    }
    rate("lease, 64 a call", leases.len(), start);
    Ok(leases)
}

async fn finish_all(event: &Event, leases: Vec<Lease>) -> Result<(), Box<dyn Error>> {
    let batches: Vec<Vec<Finished>> = leases
        .chunks(BATCH)
        .enumerate()
        .map(|(batch, leases)| {
            leases.iter().enumerate().map(|(i, lease)| read(lease, batch * BATCH + i)).collect()
        })
        .collect();
    let start = Instant::now();
    for batch in batches {
        event.store.queue.finish(batch).await?;
    }
    rate("finish, 64 a call, 3 faces and 2 texts each", leases.len(), start);
    Ok(())
}

fn read(lease: &Lease, number: usize) -> Finished {
    Finished {
        lease: lease.clone(),
        size: PhotoSize { width: 6000, height: 4000 },
        taken_at: None,
        camera: Some("Canon EOS R5".into()),
        faces: (0..FACES_A_PHOTO).map(|i| with_vector(vector(number * FACES_A_PHOTO + i))).collect(),
        texts: vec![text(&format!("{}", number % 20_000), 0.95), text(&format!("A{number}"), 0.95)],
    }
}

fn with_vector(vector: Vec<f32>) -> SeenFace {
    SeenFace { embedding: Some(Embedding { model: "rates@1".into(), vector }), ..face([1.0, 0.0, 0.0, 0.0]) }
}

/// A unit vector that no other seed gives.
fn vector(seed: usize) -> Vec<f32> {
    let mut state = seed as u64 + 1;
    let values: Vec<f32> = (0..DIMENSION)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect();
    let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    values.into_iter().map(|value| value / length).collect()
}

async fn search_texts(event: &Event) -> Result<(), Box<dyn Error>> {
    for (what, exact) in [("exact", true), ("fuzzy", false)] {
        let start = Instant::now();
        let mut hits = 0;
        for bib in 1000..1200 {
            let query = TextQuery { text: bib.to_string(), exact };
            hits += event.store.texts.search(event.album, &query).await?.len();
        }
        let each = start.elapsed() / 200;
        println!("bib search, {what}: {each:?} each, {} hits", hits / 200);
    }
    Ok(())
}

async fn search_faces(event: &Event) -> Result<(), Box<dyn Error>> {
    // The album has 48,000 faces; the rest comes in large photos.
    let more = COLD_FACES - PHOTOS * FACES_A_PHOTO;
    for chunk in 0..more / 500 {
        event.queued(1).await;
        let faces = (0..500).map(|i| with_vector(vector(1_000_000 + chunk * 500 + i))).collect();
        event.read(faces, Vec::new()).await;
    }
    let probe = Embedding { model: "rates@1".into(), vector: vector(1_000_000) };
    let start = Instant::now();
    let search = || event.store.faces.nearest(event.album, &probe, 100, 0.5);
    let hits = search().await?;
    println!("nearest of {COLD_FACES} x {DIMENSION}, cold: {:?}, {} hits", start.elapsed(), hits.len());
    let start = Instant::now();
    for _ in 0..50 {
        search().await?;
    }
    println!("nearest of {COLD_FACES} x {DIMENSION}, warm: {:?}", start.elapsed() / 50);
    event.queued(1).await;
    event.read(vec![with_vector(vector(1_000_000))], Vec::new()).await;
    let start = Instant::now();
    let hits = search().await?;
    println!("nearest after one more photo: {:?}, {} hits", start.elapsed(), hits.len());
    Ok(())
}

async fn write_previews(store: &Store) -> Result<(), Box<dyn Error>> {
    let (organization, album) = (OrganizationId::generate(), AlbumId::generate());
    let bytes = Bytes::from(vec![7; 400_000]);
    for at_once in [1, 8] {
        let start = Instant::now();
        let writers = (0..at_once).map(|_| async {
            for _ in 0..400 / at_once {
                let key = ObjectKey::photo(organization, album, PhotoId::generate(), ObjectRole::Preview);
                store.blobs.write(&key, "image/jpeg", bytes.clone()).await?;
            }
            Ok::<_, photofinish_store::StoreError>(())
        });
        futures_util::future::try_join_all(writers).await?;
        rate(&format!("write previews of 400 KB, {at_once} at once"), 400, start);
    }
    Ok(())
}
