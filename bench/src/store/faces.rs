//! The face index of a very large album: the first search, which loads it; the next searches; and catching up with photos
//! that other processes have read in between.

use std::time::{Duration, Instant};

use photofinish_store::conformance::{AlbumFixture, face};
use photofinish_store::model::photo::{DetectedFace, Embedding};
use photofinish_store::traits::FaceIndex;

use super::backends::{Backend, BenchDatabase};
use super::setup::{PHOTOS_PER_CALL, StoreOptions};
use crate::process;
use crate::report::goals::Goal;
use crate::report::statistics::{median, to_milliseconds};
use crate::report::{Report, Table};

/// Length of the default model's embeddings.
const DIMENSION: usize = 256;
/// More faces per photo than at a real event: fewer photos to insert for the same number of faces.
const FACES_PER_PHOTO: usize = 30;
/// Photos of a catch-up: as many as a worker finishes at once.
const CATCH_UP_PHOTOS: usize = 64;
const WARM_SEARCHES: usize = 20;
const HITS: usize = 100;
/// The album in memory, everything included.
const TARGET_BYTES_PER_FACE: f64 = 400.0;

/// Adds the table of the face index to the report.
pub async fn measure(
    options: &StoreOptions,
    backends: &[Backend],
    report: &mut Report,
) -> anyhow::Result<()> {
    let caption = format!(
        "Face search in one album, vectors of {DIMENSION}; a catch-up is {CATCH_UP_PHOTOS} photos with {} faces",
        CATCH_UP_PHOTOS * FACES_PER_PHOTO
    );
    let columns = [
        "database",
        "faces",
        "first search s",
        "next searches ms",
        "100 hits of other vectors ms",
        "catch-up ms",
        "bytes per face in memory",
    ];
    let mut table = Table::new(&caption, &columns);
    for backend in backends.iter().filter(|backend| backend.is_database_alone()) {
        let database = backend.create_database(options.folder.as_deref())?;
        let fixture = fill_album(&database, options.faces).await?;
        // Another process, which has not loaded the album.
        let searcher = database.open_store().await?;
        let before = process::read_memory(std::process::id())?.resident;
        let cold = timed_search(&*searcher.faces, &fixture).await?;
        let after = process::read_memory(std::process::id())?.resident;
        let mut warm = Vec::new();
        for _ in 0..WARM_SEARCHES {
            warm.push(to_milliseconds(timed_search(&*searcher.faces, &fixture).await?));
        }
        let warm = median(&warm);
        let far = measure_far_searches(&*searcher.faces, &fixture, options.faces).await?;
        let bytes_per_face = after.saturating_sub(before) as f64 / options.faces as f64;
        add_photos(&fixture, CATCH_UP_PHOTOS, options.faces).await?;
        let catch_up = timed_search(&*searcher.faces, &fixture).await?;
        table.add_row([
            backend.name.to_owned(),
            options.faces.to_string(),
            format!("{:.1}", cold.as_secs_f64()),
            format!("{warm:.1}"),
            format!("{far:.1}"),
            format!("{:.1}", (to_milliseconds(catch_up) - warm).max(0.0)),
            format!("{bytes_per_face:.0}"),
        ]);
        let what = format!("bytes per face in memory, {}", backend.name);
        report.goals.push(Goal::at_most(&what, bytes_per_face.round(), TARGET_BYTES_PER_FACE));
        searcher.close().await;
        fixture.store.close().await;
    }
    report.tables.push(table);
    Ok(())
}

async fn timed_search(index: &dyn FaceIndex, fixture: &AlbumFixture) -> anyhow::Result<Duration> {
    let probe = make_embedding(1);
    let start = Instant::now();
    let hits = index.nearest(fixture.album, &probe, HITS, 0.5).await?;
    anyhow::ensure!(!hits.is_empty(), "a search does not find the photo of its own face");
    Ok(start.elapsed())
}

/// Measures searches for vectors that are in no photo, without a least similarity: the hardest case, in which nothing
/// separates the hits from the rest, and all hits are read from the database.
async fn measure_far_searches(
    index: &dyn FaceIndex,
    fixture: &AlbumFixture,
    faces: usize,
) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for number in 0..WARM_SEARCHES {
        let probe = make_embedding(2 * faces + number);
        let start = Instant::now();
        let hits = index.nearest(fixture.album, &probe, HITS, -1.0).await?;
        anyhow::ensure!(hits.len() == HITS.min(faces.div_ceil(FACES_PER_PHOTO)), "{} hits", hits.len());
        times.push(to_milliseconds(start.elapsed()));
    }
    Ok(median(&times))
}

async fn fill_album(database: &BenchDatabase, faces: usize) -> anyhow::Result<AlbumFixture> {
    let fixture = AlbumFixture::create(&database.open_store().await?).await;
    let photos = faces.div_ceil(FACES_PER_PHOTO);
    for first in (0..photos).step_by(PHOTOS_PER_CALL) {
        add_photos(&fixture, PHOTOS_PER_CALL.min(photos - first), first * FACES_PER_PHOTO).await?;
    }
    Ok(fixture)
}

/// Adds photos whose embeddings are made from consecutive numbers, beginning with `first`.
async fn add_photos(fixture: &AlbumFixture, photos: usize, first: usize) -> anyhow::Result<()> {
    fixture.queue_photos(photos).await;
    for batch in (0..photos).step_by(CATCH_UP_PHOTOS) {
        let leases =
            fixture.lease_fresh(CATCH_UP_PHOTOS.min(photos - batch), Duration::from_secs(3600)).await;
        let seen = leases.iter().enumerate().map(|(i, lease)| {
            let from = first + (batch + i) * FACES_PER_PHOTO;
            let faces = (from..from + FACES_PER_PHOTO).map(|number| DetectedFace {
                embedding: Some(make_embedding(number)),
                ..face([1.0, 0.0, 0.0, 0.0])
            });
            super::queue::finish_with_faces(lease, faces.collect())
        });
        fixture.store.queue.finish(seen.collect()).await?;
    }
    Ok(())
}

/// Makes the unit vector of a number; different numbers have different vectors.
pub fn make_embedding(number: usize) -> Embedding {
    let mut state = number as u64 + 1;
    let values: Vec<f32> = (0..DIMENSION)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect();
    let length = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    Embedding { model: "bench@1".into(), vector: values.into_iter().map(|value| value / length).collect() }
}
