//! Writes what is known of photos: previews to storage, then everything else to the rows in one transaction for the
//! whole batch. Its answers settle the tickets.

use std::sync::Arc;

use bytes::Bytes;
use photofinish_store::error::{StoreError, StoreErrorKind};
use photofinish_store::object::{ObjectKey, ObjectRole};
use photofinish_store::photo::FailureReason;
use photofinish_store::traits::{Blobs, Finish, Finished, Queue};
use time::OffsetDateTime;
use tokio::task::JoinSet;

use crate::fault::{Outage, Part, Poison};
use crate::metric_names as names;
use crate::photo::ReadPhoto;
use crate::spans::Outcome;
use crate::stage::{Answers, Stage};
use crate::store_call::StoreCalls;

/// The stage `index`.
pub(crate) struct Index {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) calls: StoreCalls,
}

/// The preview of every album.
const PREVIEW_TYPE: &str = "image/jpeg";

impl Stage for Index {
    type In = ReadPhoto;
    type Out = Finish;

    fn run(&mut self, batch: &[ReadPhoto]) -> Result<Answers<Finish>, Outage> {
        // First the objects: rows must never name what is not there.
        self.calls
            .ask_while_alive(Part::Storage, upload_all(Arc::clone(&self.blobs), batch))?
            .map_err(|error| Outage::of_store(Part::Storage, error))?;
        match self.finish(batch.iter().map(finished).collect())? {
            Ok(answers) => {
                self.settle(batch, &answers)?;
                Ok(answers.into_iter().map(Ok).collect())
            }
            Err(error) if batch.len() == 1 => judge(error).map(|poison| vec![Err(poison)]),
            // One of them cannot be written: which one shows when each is written alone.
            Err(error) if is_a_photos_fault(&error) => {
                batch.iter().map(|photo| self.finish_alone(photo)).collect()
            }
            Err(error) => Err(Outage::of_store(Part::Database, error)),
        }
    }
}

impl Index {
    /// What an answer means for the photo's way through the pipeline.
    pub(crate) fn outcome(answer: &Finish) -> Outcome {
        match answer {
            Finish::Done => Outcome::Ready,
            Finish::Superseded | Finish::Gone => Outcome::Superseded,
        }
    }

    fn finish(&self, photos: Vec<Finished>) -> Result<Result<Vec<Finish>, StoreError>, Outage> {
        self.calls.ask(Part::Database, self.queue.finish(photos))
    }

    fn finish_alone(&self, photo: &ReadPhoto) -> Result<Result<Finish, Poison>, Outage> {
        match self.finish(vec![finished(photo)])? {
            Ok(answers) => {
                self.settle(std::slice::from_ref(photo), &answers)?;
                let answer = answers.into_iter().map(Ok).next();
                answer
                    .ok_or_else(|| Outage::because(Part::Database, "a photo was finished without an answer"))
            }
            Err(error) => judge(error).map(Err),
        }
    }

    /// Every answer ends the photo here: superseded means that somebody else has it.
    fn settle(&self, batch: &[ReadPhoto], answers: &[Finish]) -> Result<(), Outage> {
        for (photo, answer) in batch.iter().zip(answers) {
            match answer {
                Finish::Done => count_searchable(photo),
                Finish::Superseded | Finish::Gone => metrics::counter!(names::PHOTOS_SUPERSEDED).increment(1),
            }
        }
        let gone = batch.iter().zip(answers).filter(|(_, answer)| **answer == Finish::Gone);
        self.remove_previews(gone.map(|(photo, _)| photo))
    }

    /// Whoever deleted the photo looked for its objects before these were written.
    fn remove_previews<'a>(&self, gone: impl Iterator<Item = &'a ReadPhoto>) -> Result<(), Outage> {
        for key in gone.flat_map(preview_keys) {
            self.calls
                .ask(Part::Storage, self.blobs.delete(&key))?
                .map_err(|error| Outage::of_store(Part::Storage, error))?;
        }
        Ok(())
    }
}

/// From now on searches find it.
fn count_searchable(photo: &ReadPhoto) {
    metrics::counter!(names::PHOTOS_FINISHED).increment(1);
    let waited = OffsetDateTime::now_utc() - photo.facts.lease.confirmed_at;
    // The clock of the machine that took the confirmation may be ahead of this one.
    metrics::histogram!(names::CONFIRM_TO_SEARCHABLE_SECONDS).record(waited.as_seconds_f64().max(0.0));
}

/// Preview, then thumbnail.
fn preview_keys(photo: &ReadPhoto) -> [ObjectKey; 2] {
    let lease = &photo.facts.lease;
    [ObjectRole::Preview, ObjectRole::Thumbnail]
        .map(|role| ObjectKey::photo(lease.organization, lease.album, lease.photo, role))
}

/// How many uploads go at once: enough to hide the storage's answer time, few enough that each moves on a slow line.
const UPLOADS_AT_ONCE: usize = 16;

/// Uploads the previews of a batch, several at once: the time is the storage's, not ours.
async fn upload_all(blobs: Arc<dyn Blobs>, batch: &[ReadPhoto]) -> Result<(), StoreError> {
    let mut uploads = JoinSet::new();
    for photo in batch {
        let files = [photo.previews.preview.clone(), photo.previews.thumbnail.clone()];
        for (key, bytes) in preview_keys(photo).into_iter().zip(files) {
            if uploads.len() >= UPLOADS_AT_ONCE {
                one_done(&mut uploads).await?;
            }
            let blobs: Arc<dyn Blobs> = Arc::clone(&blobs);
            uploads.spawn(async move { write(blobs.as_ref(), &key, bytes).await });
        }
    }
    while !uploads.is_empty() {
        one_done(&mut uploads).await?;
    }
    Ok(())
}

async fn one_done(uploads: &mut JoinSet<Result<(), StoreError>>) -> Result<(), StoreError> {
    let ended = |ended| StoreError::new(StoreErrorKind::Unavailable, "upload of a preview").because(ended);
    uploads.join_next().await.unwrap_or(Ok(Ok(()))).map_err(ended)?
}

async fn write(blobs: &dyn Blobs, key: &ObjectKey, bytes: Bytes) -> Result<(), StoreError> {
    blobs.write(key, PREVIEW_TYPE, bytes).await
}

fn finished(photo: &ReadPhoto) -> Finished {
    Finished {
        lease: photo.facts.lease.as_ref().clone(),
        size: photo.facts.size,
        taken_at: photo.facts.taken_at,
        camera: photo.facts.camera.clone(),
        faces: photo.faces.clone(),
        texts: photo.texts.clone(),
    }
}

fn is_a_photos_fault(error: &StoreError) -> bool {
    !matches!(error.kind, StoreErrorKind::Unavailable)
}

/// A photo whose results cannot be written would otherwise come back for ever.
fn judge(error: StoreError) -> Result<Poison, Outage> {
    if is_a_photos_fault(&error) {
        Ok(Poison::new(FailureReason::ProcessingCrashed, format!("its results cannot be written: {error}")))
    } else {
        Err(Outage::of_store(Part::Database, error))
    }
}
