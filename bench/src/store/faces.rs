//! The face index of a very large album: the first search, which loads it; the next ones; and catching up with photos
//! that other processes read meanwhile.

use std::time::{Duration, Instant};

use photofinish_store::photo::{Embedding, SeenFace};
use photofinish_store::suite::{Event, face};
use photofinish_store::traits::FaceIndex;

use super::backends::{Backend, Database};
use super::{AT_ONCE, Options};
use crate::process;
use crate::report::{Report, Table};
use crate::statistics::{median, milliseconds};

/// What the default network gives.
const DIMENSION: usize = 256;
/// Of one photo: fewer rows of photos than a real event has, and the same rows of faces.
const FACES_A_PHOTO: usize = 30;
/// Photos of a catch-up, as many as a worker finishes at once.
const NEW_PHOTOS: usize = 64;
const SEARCHES: usize = 20;
const HITS: usize = 100;

/// Adds the table of the face index.
pub async fn measure(options: &Options, backends: &[Backend], report: &mut Report) -> anyhow::Result<()> {
    let caption = format!(
        "Face search in one album, vectors of {DIMENSION}; a catch-up is {NEW_PHOTOS} photos with {} faces",
        NEW_PHOTOS * FACES_A_PHOTO
    );
    let columns =
        ["database", "faces", "first search s", "next searches ms", "catch-up ms", "bytes a face in memory"];
    let mut table = Table::new(&caption, &columns);
    for backend in backends.iter().filter(|backend| backend.is_database_alone()) {
        let database = backend.database(options)?;
        let event = fill(&database, options.faces).await?;
        // A process that never saw the album.
        let searcher = database.open().await?;
        let before = process::memory(std::process::id())?.resident;
        let cold = timed_search(&*searcher.faces, &event).await?;
        let after = process::memory(std::process::id())?.resident;
        let mut warm = Vec::new();
        for _ in 0..SEARCHES {
            warm.push(milliseconds(timed_search(&*searcher.faces, &event).await?));
        }
        let warm = median(&warm);
        add_photos(&event, NEW_PHOTOS, options.faces).await?;
        let behind = timed_search(&*searcher.faces, &event).await?;
        table.row([
            backend.name.to_owned(),
            options.faces.to_string(),
            format!("{:.1}", cold.as_secs_f64()),
            format!("{warm:.1}"),
            format!("{:.1}", (milliseconds(behind) - warm).max(0.0)),
            format!("{:.0}", after.saturating_sub(before) as f64 / options.faces as f64),
        ]);
        searcher.close().await;
        event.store.close().await;
    }
    report.tables.push(table);
    Ok(())
}

async fn timed_search(index: &dyn FaceIndex, event: &Event) -> anyhow::Result<Duration> {
    let probe = embedding(1);
    let begun = Instant::now();
    let hits = index.nearest(event.album, &probe, HITS, 0.5).await?;
    anyhow::ensure!(!hits.is_empty(), "the photo of the face itself is not found");
    Ok(begun.elapsed())
}

async fn fill(database: &Database, faces: usize) -> anyhow::Result<Event> {
    let event = Event::make(&database.open().await?).await;
    let photos = faces.div_ceil(FACES_A_PHOTO);
    for first in (0..photos).step_by(AT_ONCE) {
        add_photos(&event, AT_ONCE.min(photos - first), first * FACES_A_PHOTO).await?;
    }
    Ok(event)
}

/// Photos whose faces are made from numbers that begin with `first`.
async fn add_photos(event: &Event, photos: usize, first: usize) -> anyhow::Result<()> {
    event.queued(photos).await;
    for batch in (0..photos).step_by(NEW_PHOTOS) {
        let leases = event.leased(NEW_PHOTOS.min(photos - batch), Duration::from_secs(3600)).await;
        let seen = leases.iter().enumerate().map(|(i, lease)| {
            let from = first + (batch + i) * FACES_A_PHOTO;
            let faces = (from..from + FACES_A_PHOTO)
                .map(|number| SeenFace { embedding: Some(embedding(number)), ..face([1.0, 0.0, 0.0, 0.0]) });
            super::queue::with_faces(lease, faces.collect())
        });
        event.store.queue.finish(seen.collect()).await?;
    }
    Ok(())
}

/// A unit vector that no other number gives.
fn embedding(number: usize) -> Embedding {
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
