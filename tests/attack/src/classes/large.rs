//! Large albums: many watchers of an album of half a million photos, many visitors of a gallery whose photos are processed,
//! and searches that leave after a second in an album whose faces take longer to load. Another organization's calls tell
//! what that costs everybody else. Not one of the classes of every run: writing the rows takes minutes.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use photofinish_bench::report::statistics::{percentile, to_milliseconds};
use photofinish_store::conformance::{face, test_settings};
use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::photo::{DetectedFace, Embedding, NewPhoto, PhotoSize};
use photofinish_store::traits::{Lease, LeaseKind, LeaseRequest, PhotoResults, PictureSizes};
use photofinish_store::{Store, StoreSettings, panic_message};
use photofinish_tests::harness::Partner;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::class::{Class, no_settings};
use crate::findings::Findings;
use crate::priority::run_at_low_priority;
use crate::site::{Extent, PATIENCE, Site};
use crate::wire::{self, Endpoint};

pub(super) const LARGE: Class = Class {
    name: "large",
    description: "32 clients that ask for the progress of an album of 500,000 photos again and again, 32 that list its cameras, \
                  photos of one and photos of a time, 32 visitors of a gallery of 200,000 photos that wait to be processed, \
                  and 116 searches that leave after a second, again and again, in a cold album of 700,000 faces",
    settings: no_settings,
    stops_service: true,
    run,
};

const WATCHERS: usize = 32;
const IMPATIENT: usize = 116;
/// How long an impatient search waits.
const IMPATIENCE: Duration = Duration::from_secs(1);
/// How long each measurement of the normal client takes.
const MEASURED_TIME: Duration = Duration::from_secs(15);
/// Between two calls of the normal client.
const PAUSE: Duration = Duration::from_millis(20);
/// The cold album must be searchable within this time.
const LOAD_LIMIT: Duration = Duration::from_secs(120);
/// The longest stop and start of the service.
const STOP_LIMIT: Duration = Duration::from_secs(90);
/// Photos per call of the store.
const PHOTOS_PER_CALL: usize = 1_000;
/// Photos per transaction, as workers write them.
const PHOTOS_PER_TRANSACTION: usize = 64;
/// More than at a real event: fewer photos for the same number of faces.
const FACES_PER_PHOTO: usize = 30;
/// How galleries refuse networks that ask too often.
const TOO_MANY: u16 = 429;

/// The albums and their owners.
struct Scene {
    large: Partner,
    /// Its photos are watched.
    watched: String,
    /// Its photos wait, and visitors see those that were processed before.
    visited: String,
    /// The path of its gallery.
    gallery: String,
    /// Its faces are searched.
    searched: String,
    /// A photo in it, with a face.
    known_photo: String,
    /// A selfie that was examined: searches with it wait for the faces alone.
    image: String,
    normal: Partner,
    normal_album: String,
}

/// The sizes of the albums, and what another organization's calls take in a quiet service.
struct Usual {
    photos: usize,
    waiting: usize,
    faces: usize,
    quiet: Vec<Duration>,
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let photos = site.extent.pick(2_000, 500_000);
    let waiting = site.extent.pick(2_000, 200_000);
    let faces = site.extent.pick(900, 700_000);
    let scene = Scene::prepare(site)?;
    let exit = site.service.terminate(STOP_LIMIT);
    findings.check(exit.code == Some(0), || format!("the service ended with {exit:?}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut usual = Usual { photos, waiting, faces, quiet: Vec::new() };
    runtime.block_on(fill(site, &scene, &usual)).context("writing the rows of large albums")?;
    site.service.restart();
    usual.quiet = measure_beside(site, findings, &scene, || std::thread::sleep(measured_time(site)));
    watch_progress(site, findings, &scene, &usual);
    list_by_camera(site, findings, &scene, &usual);
    visit(site, findings, &scene, &usual);
    search_impatiently(site, findings, &scene, &usual);
    Ok(())
}

impl Scene {
    fn prepare(site: &Site) -> anyhow::Result<Self> {
        let (large, normal) = (site.tenant("Large Timing"), site.tenant("Small Timing"));
        let (watched, searched) = (large.create_album("Watched"), large.create_album("Searched"));
        let visited = large.create_album("Visited");
        let settings = json!({ "albumId": visited, "enabled": true, "browse": true });
        let opened = large.call_ok("/albums/gallery/update", &settings);
        let url = opened["url"].as_str().context("the address of a gallery")?;
        let gallery = format!("/g/{}", url.rsplit('/').next().context("a link")?);
        let normal_album = normal.create_album("Normal");
        for (partner, album) in [(&large, &searched), (&normal, &normal_album)] {
            partner.upload_photo(album, "1.jpg", site.material.photo(0));
            partner.wait_until_idle(album);
        }
        let image = large.upload_selfie(&searched, &site.material.selfie);
        large.search_by_image(&searched, &image);
        let known_photo = large.list_photos(&searched)[0]["id"].as_str().expect("an id").to_owned();
        Ok(Self { large, watched, visited, gallery, searched, known_photo, image, normal, normal_album })
    }
}

/// Writes the photos of two albums and the faces of the third, while no service runs.
async fn fill(site: &Site, scene: &Scene, usual: &Usual) -> anyhow::Result<()> {
    let folder = site.service.data_dir();
    let database_url = format!("sqlite:{}", folder.join("photofinish.sqlite").display());
    let store = Store::open(StoreSettings { database_url, ..test_settings(&folder) }).await?;
    let (watched, visited) = (AlbumId(scene.watched.parse()?), AlbumId(scene.visited.parse()?));
    let searched = AlbumId(scene.searched.parse()?);
    for (album, photos) in [(watched, usual.photos), (visited, usual.waiting)] {
        for _ in (0..photos).step_by(PHOTOS_PER_CALL) {
            store.photos.create(album, new_photos(PHOTOS_PER_CALL)).await?;
        }
    }
    let database = folder.join("photofinish.sqlite");
    change_photos(&database, watched, SET_CAMERAS).await?;
    change_photos(&database, visited, LET_WAIT).await?;
    let known = scene.known_photo.parse()?;
    let (found, _) =
        store.photos.get_detections(searched, photofinish_store::model::ids::PhotoId(known)).await?;
    let found = found.into_iter().find_map(|face| face.embedding).context("the photo has no face")?;
    let mut number = 0;
    while number < usual.faces {
        let created = store.photos.create(searched, new_photos(PHOTOS_PER_TRANSACTION)).await?;
        store.queue.confirm(searched, &created).await?;
        let request =
            LeaseRequest { limit: created.len(), ttl: Duration::from_secs(600), kind: LeaseKind::Fresh };
        let leases = store.queue.lease(request).await?;
        anyhow::ensure!(!leases.is_empty(), "photos that were confirmed are not in the queue");
        let results = leases.iter().map(|lease| {
            let faces = (number..number + FACES_PER_PHOTO).map(|number| DetectedFace {
                embedding: Some(make_embedding(&found, number)),
                ..face([1.0, 0.0, 0.0, 0.0])
            });
            number += FACES_PER_PHOTO;
            results_with(lease, faces.collect())
        });
        store.queue.finish(results.collect()).await?;
    }
    store.close().await;
    Ok(())
}

/// Gives the photos of an album one of three cameras and a time of an hour, as their results would.
const SET_CAMERAS: &str = "update photo set camera = 'Camera ' || (abs(random()) % 3), \
     taken_at = created_at - created_at % 3600000000 + abs(random()) % 3600000000 where album = $1";

/// Queues the photos of an album, half of which have pictures from the last time. They are of no organization, so that none is
/// ever leased, and the service is as quiet as without them.
const LET_WAIT: &str = "update photo set state = 'queued', confirmed_at = created_at, organization = zeroblob(16), \
     width = case when hex(id) glob '*[0-7]' then 6000 end, height = case when hex(id) glob '*[0-7]' then 4000 end \
     where album = $1";

async fn change_photos(database: &Path, album: AlbumId, change: &'static str) -> anyhow::Result<()> {
    let mut connection = SqliteConnectOptions::new().filename(database).connect().await?;
    sqlx::query(change).bind(album.0.as_bytes().as_slice()).execute(&mut connection).await?;
    Ok(connection.close().await?)
}

fn new_photos(count: usize) -> Vec<NewPhoto> {
    let photo = |i| NewPhoto { filename: format!("{i}.jpg"), content_type: "image/jpeg".into() };
    (0..count).map(photo).collect()
}

fn results_with(lease: &Lease, faces: Vec<DetectedFace>) -> PhotoResults {
    PhotoResults {
        lease: lease.clone(),
        size: PhotoSize { width: 6000, height: 4000 },
        taken_at: None,
        camera: None,
        faces,
        texts: Vec::new(),
        watermark_version: 0,
        pictures: PictureSizes::default(),
        skipped_runners: 0,
    }
}

/// A unit vector that is different for each number, by the model and of the length of a real one.
fn make_embedding(like: &Embedding, number: usize) -> Embedding {
    let mut state = number as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = like.vector.iter().map(|_| next()).collect();
    let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    Embedding { model: like.model.clone(), vector: values.into_iter().map(|value| value / length).collect() }
}

fn watch_progress(site: &Site, findings: &Findings, scene: &Scene, usual: &Usual) {
    let photos = usual.photos;
    let body = json!({ "albumId": scene.watched }).to_string();
    let looks = Mutex::new(0_usize);
    let beside = measure_beside(site, findings, scene, || {
        let begun = Instant::now();
        attack_with(WATCHERS, |number| {
            while begun.elapsed() < measured_time(site) {
                let request = wire::call("/albums/progress", scene.large.key(), body.as_bytes());
                let reaction = site.endpoint(1 + (number % 8) as u8).send(&request, PATIENCE);
                let answer = findings.expect("the progress of a large album", reaction, &[200]);
                let total = answer.map(|answer| answer.json()["total"].clone());
                findings.check(total == Some(json!(photos)), || format!("{total:?} of {photos} photos"));
                *looks.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
            }
        });
    });
    let looks = looks.into_inner().unwrap_or_default();
    let what = format!("`albums/get` beside {WATCHERS} watchers of {photos} photos ({looks} looks)");
    compare(findings, &what, &usual.quiet, &beside);
}

/// What asks for many photos of an album without their ids: its cameras, those of one, and those of a time. The last reads
/// them all: none was taken then.
fn list_by_camera(site: &Site, findings: &Findings, scene: &Scene, usual: &Usual) {
    let photos = usual.photos;
    let cameras = json!({ "albumId": scene.watched }).to_string();
    let list = |name: &str, value: &str| {
        let mut body = json!({ "albumId": scene.watched, "limit": 100 });
        body[name] = json!(value);
        body.to_string()
    };
    let (of_camera, of_time) = (list("camera", "Camera 1"), list("takenFrom", "2100-01-01T00:00:00Z"));
    let calls = [
        ("/albums/cameras/list", &cameras),
        ("/photos/photo/list", &of_camera),
        ("/photos/photo/list", &of_time),
    ];
    let beside = measure_beside(site, findings, scene, || {
        let begun = Instant::now();
        attack_with(WATCHERS, |number| {
            while begun.elapsed() < measured_time(site) {
                let (path, body) = calls[number % calls.len()];
                let request = wire::call(path, scene.large.key(), body.as_bytes());
                let reaction = site.endpoint(1 + (number % 8) as u8).send(&request, PATIENCE);
                findings.expect("photos of a large album by camera or time", reaction, &[200]);
            }
        });
    });
    let what = format!("`albums/get` beside {WATCHERS} clients that list {photos} photos by camera and time");
    compare(findings, &what, &usual.quiet, &beside);
}

/// Visitors look at the gallery and browse it to its end, again and again, each from a network of its own: each may ask as often
/// as one network is permitted.
fn visit(site: &Site, findings: &Findings, scene: &Scene, usual: &Usual) {
    let headers = [("content-type", "application/json"), ("sec-fetch-site", "same-origin")];
    let beside = measure_beside(site, findings, scene, || {
        let begun = Instant::now();
        attack_with(WATCHERS, |number| {
            let source = Ipv4Addr::new(127, 0, 2 + number as u8, 1);
            let endpoint = Endpoint { source, ..site.endpoint(1) };
            let call = |operation: &str, input: &Value| {
                let target = format!("{}/api/gallery/{operation}", scene.gallery);
                let request = wire::request("POST", &target, &headers, input.to_string().as_bytes());
                let reaction = endpoint.send(&request, PATIENCE);
                let answer = findings.expect("a visitor of a large album", reaction, &[200, TOO_MANY]);
                answer.filter(|answer| answer.status == 200).map(|answer| answer.json())
            };
            let mut input = json!({});
            while begun.elapsed() < measured_time(site) {
                let seen = call("get", &json!({})).map(|gallery| gallery["photos"].clone());
                let Some(page) = call("photos/list", &input) else { continue };
                findings.check(seen.is_none_or(|photos| photos == page["total"] && photos != 0), || {
                    format!("a page tells of {} photos, the gallery of another number", page["total"])
                });
                let next = &page["nextCursor"];
                input = if next.is_null() { json!({}) } else { json!({ "cursor": next }) };
            }
        });
    });
    let photos = usual.waiting;
    let what = format!("`albums/get` beside {WATCHERS} visitors of a gallery of {photos} photos that wait");
    compare(findings, &what, &usual.quiet, &beside);
}

/// Records what another organization's calls took in a quiet service and beside an attack.
fn compare(findings: &Findings, what: &str, quiet: &[Duration], beside: &[Duration]) {
    findings.figure(what, format!("{} quiet, {} beside", describe(quiet), describe(beside)));
    let [quiet, beside] = [quiet, beside].map(|times| percentile(times, 0.99).as_secs_f64());
    findings.slowdown(beside / quiet);
}

fn search_impatiently(site: &Site, findings: &Findings, scene: &Scene, usual: &Usual) {
    let faces = usual.faces;
    let body = json!({ "albumId": scene.searched, "imageId": scene.image }).to_string();
    let request = wire::call("/photos/search/face/list", scene.large.key(), body.as_bytes());
    let (begun, is_loaded) = (Instant::now(), AtomicBool::new(false));
    let first_answer = Mutex::new(None);
    let beside = measure_beside(site, findings, scene, || {
        attack_with(IMPATIENT, |number| {
            while !is_loaded.load(Ordering::SeqCst) && begun.elapsed() < LOAD_LIMIT {
                let reaction = site.endpoint(1 + (number % 8) as u8).send(&request, IMPATIENCE);
                findings.record("an impatient search", &reaction);
                if reaction.answer().is_some_and(|answer| answer.status == 200) {
                    is_loaded.store(true, Ordering::SeqCst);
                    let mut first = first_answer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    first.get_or_insert_with(|| begun.elapsed());
                }
            }
        });
    });
    let first = first_answer.into_inner().unwrap_or_default();
    findings.check(first.is_some(), || {
        format!("no search of {IMPATIENT} that leave after {IMPATIENCE:?} was answered within {LOAD_LIMIT:?}")
    });
    let later = Instant::now();
    let reaction = site.endpoint(1).send(&request, PATIENCE);
    findings.expect("a search in the loaded album", reaction, &[200]);
    let what = format!("{IMPATIENT} searches that leave after a second in a cold album of {faces} faces");
    let first = first
        .map_or("no answer".to_owned(), |first| format!("first answer after {:.1} s", first.as_secs_f64()));
    let later = to_milliseconds(later.elapsed());
    findings.figure(&what, format!("{first}, the next after {later:.0} ms"));
    compare(findings, &format!("`albums/get` beside {what}"), &usual.quiet, &beside);
}

fn measured_time(site: &Site) -> Duration {
    if site.extent == Extent::Quick { Duration::from_secs(1) } else { MEASURED_TIME }
}

/// Runs `attack` on many threads of a low priority; it is given their numbers.
fn attack_with(threads: usize, attack: impl Fn(usize) + Sync) {
    run_at_low_priority(|| {
        std::thread::scope(|scope| {
            for number in 0..threads {
                let attack = &attack;
                scope.spawn(move || attack(number));
            }
        });
    });
}

/// The latencies of another organization's `albums/get` while `work` is done.
fn measure_beside(site: &Site, findings: &Findings, scene: &Scene, work: impl FnOnce()) -> Vec<Duration> {
    let is_over = AtomicBool::new(false);
    let body: Value = json!({ "albumId": scene.normal_album });
    let call = || {
        let mut times = Vec::new();
        while !is_over.load(Ordering::SeqCst) {
            let begun = Instant::now();
            let response = scene.normal.call("/albums/get", &body);
            times.push(if response.status == 200 { begun.elapsed() } else { PATIENCE });
            findings.check(response.status == 200, || format!("another client's call: {}", response.status));
            std::thread::sleep(PAUSE);
        }
        times
    };
    // The first call opens a connection.
    drop(scene.normal.call("/albums/get", &body));
    let _alive = site.service.is_alive();
    std::thread::scope(|scope| {
        let measured = scope.spawn(call);
        work();
        is_over.store(true, Ordering::SeqCst);
        measured.join().unwrap_or_else(|panic| {
            findings.wrong(format!("another client: {}", panic_message(panic.as_ref())));
            Vec::new()
        })
    })
}

fn describe(times: &[Duration]) -> String {
    let [p50, p99] = [0.5, 0.99].map(|fraction| to_milliseconds(percentile(times, fraction)));
    format!("p50 {p50:.1}, p99 {p99:.1} ms")
}
