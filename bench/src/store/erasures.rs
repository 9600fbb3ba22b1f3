//! How long erasures take in a large album: until nothing is found, and until the receipt is signed.

use std::time::{Duration, Instant};

use photofinish_store::conformance::{AlbumFixture, face, text};
use photofinish_store::model::erasure::{
    ComparedSelfie, Erasure, ErasureState, ErasureSubject, FacePlace, NewErasure, PhotoFate,
};
use photofinish_store::model::ids::{ErasureId, PhotoId};
use photofinish_store::model::photo::{BoundingBox, DetectedFace, DetectedText};
use photofinish_store::traits::PhotoResults;

use super::backends::{Backend, BenchDatabase};
use super::faces::make_embedding;
use super::setup::{PHOTOS_PER_CALL, StoreOptions};
use crate::report::goals::Goal;
use crate::report::{Report, Table};

/// Faces of each photo, each of another person.
const FACES_PER_PHOTO: usize = 3;
/// Photos of the runner who is erased.
const PHOTOS_OF_RUNNER: usize = 40;
const RUNNER: usize = usize::MAX >> 1;
const BIB: &str = "1207";
/// Photos of one transaction.
const BATCH: usize = 64;

/// Adds the table of erasures to the report.
pub async fn measure(
    options: &StoreOptions,
    backends: &[Backend],
    report: &mut Report,
) -> anyhow::Result<()> {
    let photos = options.erased_photos;
    let caption = format!("Erasures in an album of {photos} photos and {} faces", photos * FACES_PER_PHOTO);
    let columns = [
        "database",
        "what",
        "faces, texts, photos removed",
        "not found any more after s",
        "receipt after s",
        "looked at",
        "left",
    ];
    let mut table = Table::new(&caption, &columns);
    for backend in backends {
        let database = backend.create_database(options.folder.as_deref())?;
        let (fixture, of_runner) = fill_album(&database, photos).await?;
        for what in [Erased::Runner, Erased::Bib, Erased::Album] {
            let (found_until, erasure, signed_after) = what.time(&fixture, &of_runner).await?;
            let receipt = erasure.receipt.as_ref().ok_or_else(|| anyhow::anyhow!("no receipt"))?;
            let looked: u64 = receipt.scan.stores.iter().map(|store| store.looked).sum();
            let removed = erasure.removed;
            table.add_row([
                backend.name.to_owned(),
                what.name().to_owned(),
                format!("{}, {}, {}", removed.faces, removed.texts, removed.photos),
                format!("{:.2}", found_until.as_secs_f64()),
                format!("{:.2}", signed_after.as_secs_f64()),
                looked.to_string(),
                receipt.scan.left.to_string(),
            ]);
            let goal = format!("left after an erasure, {}, {}", backend.name, what.name());
            report.goals.push(Goal::at_most(&goal, receipt.scan.left as f64, 0.0));
        }
        fixture.store.close().await;
    }
    report.tables.push(table);
    Ok(())
}

#[derive(Clone, Copy)]
enum Erased {
    Runner,
    Bib,
    Album,
}

impl Erased {
    fn name(self) -> &'static str {
        match self {
            Self::Runner => "the faces of a runner in 40 photos",
            Self::Bib => "the runner's bib",
            Self::Album => "the album",
        }
    }

    /// Returns how long it was found, the erasure, and how long its receipt took.
    async fn time(
        self,
        fixture: &AlbumFixture,
        of_runner: &[PhotoId],
    ) -> anyhow::Result<(Duration, Erasure, Duration)> {
        let store = &fixture.store;
        let begin = Instant::now();
        let id = self.begin(fixture, of_runner).await?;
        let found_until = begin.elapsed();
        store.erasures.remove_objects(id).await?;
        while store.erasures.finish(&[id]).await? == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let signed_after = begin.elapsed();
        let erasure = store.erasures.get(&fixture.tenant, id).await?;
        anyhow::ensure!(erasure.state == ErasureState::Done, "the erasure is not done");
        Ok((found_until, erasure, signed_after))
    }

    async fn begin(self, fixture: &AlbumFixture, of_runner: &[PhotoId]) -> anyhow::Result<ErasureId> {
        let subject = match self {
            Self::Album => {
                let erasures = &fixture.store.erasures;
                return Ok(erasures.begin_album(&fixture.tenant, fixture.album, fixture.key.id).await?);
            }
            Self::Runner => {
                let place = |photo: &PhotoId| FacePlace { photo: *photo, bounding_box: place_of(0) };
                let places = of_runner.iter().map(place).collect();
                ErasureSubject::Faces {
                    places,
                    selfie: Some(ComparedSelfie { embedding: make_embedding(RUNNER), min_cosine: 0.9 }),
                    searched_at: i64::MAX,
                }
            }
            Self::Bib => ErasureSubject::Bib { bib: BIB.to_owned(), with_faces: true },
        };
        let erasure = NewErasure {
            tenant: fixture.tenant,
            album: fixture.album,
            asked_by: fixture.key.id,
            subject,
            photos: PhotoFate::Keep,
            report: None,
        };
        Ok(fixture.store.erasures.begin(erasure).await?)
    }
}

/// The place of the `i`th face of every photo.
fn place_of(i: usize) -> BoundingBox {
    BoundingBox { top: 0.1, left: 0.3 * i as f64, width: 0.1, height: 0.2 }
}

/// Fills an album; returns the photos of the runner, spread over it.
async fn fill_album(database: &BenchDatabase, photos: usize) -> anyhow::Result<(AlbumFixture, Vec<PhotoId>)> {
    let fixture = AlbumFixture::create(&database.open_store().await?).await;
    let (mut number, mut of_runner) = (0, Vec::new());
    let every = (photos / PHOTOS_OF_RUNNER).max(1);
    for first in (0..photos).step_by(PHOTOS_PER_CALL) {
        let count = PHOTOS_PER_CALL.min(photos - first);
        fixture.queue_photos(count).await;
        for batch in (0..count).step_by(BATCH) {
            let leases = fixture.lease_fresh(BATCH.min(count - batch), Duration::from_secs(3600)).await;
            let mut results = Vec::new();
            for lease in &leases {
                let is_runner = number % every == 0 && of_runner.len() < PHOTOS_OF_RUNNER;
                if is_runner {
                    of_runner.push(lease.photo);
                }
                let seen = super::queue::finish_with_faces(lease, faces_of(number, is_runner));
                results.push(PhotoResults { texts: texts_of(number, is_runner), ..seen });
                number += 1;
            }
            fixture.store.queue.finish(results).await?;
        }
    }
    Ok((fixture, of_runner))
}

fn faces_of(photo: usize, is_runner: bool) -> Vec<DetectedFace> {
    let embedding_of = |i: usize| {
        let number = if is_runner && i == 0 { RUNNER } else { photo * FACES_PER_PHOTO + i };
        Some(make_embedding(number))
    };
    let face_of = |i| DetectedFace {
        bounding_box: place_of(i),
        embedding: embedding_of(i),
        ..face([1.0, 0.0, 0.0, 0.0])
    };
    (0..FACES_PER_PHOTO).map(face_of).collect()
}

fn texts_of(photo: usize, is_runner: bool) -> Vec<DetectedText> {
    let bib = if is_runner { BIB.to_owned() } else { (2000 + photo % 7000).to_string() };
    vec![text(&bib, 0.97)]
}
