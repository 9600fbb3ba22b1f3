//! Writes what is known of photos: previews to storage, then everything else to the rows in one transaction for the
//! whole batch. Its answers settle the tickets.

use std::sync::Arc;
use std::time::Duration;

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
use crate::store_call::{PATIENCE, StoreCalls, in_time};

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
        self.calls.many_while_alive(Part::Storage, upload_all(&self.blobs, batch, PATIENCE))?;
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

/// Uploads the previews of a batch, several at once: the time is the storage's, not ours. `patience` is for each upload:
/// a slow storage that answers every one in time is up, and may take minutes for a whole batch.
async fn upload_all(blobs: &Arc<dyn Blobs>, batch: &[ReadPhoto], patience: Duration) -> Result<(), Outage> {
    let mut uploads = JoinSet::new();
    for photo in batch {
        let files = [photo.previews.preview.clone(), photo.previews.thumbnail.clone()];
        for (key, bytes) in preview_keys(photo).into_iter().zip(files) {
            if uploads.len() >= UPLOADS_AT_ONCE {
                one_done(&mut uploads).await?;
            }
            let blobs = Arc::clone(blobs);
            uploads.spawn(async move {
                in_time(Part::Storage, patience, blobs.write(&key, PREVIEW_TYPE, bytes))
                    .await?
                    .map_err(|error| Outage::of_store(Part::Storage, error))
            });
        }
    }
    while !uploads.is_empty() {
        one_done(&mut uploads).await?;
    }
    Ok(())
}

async fn one_done(uploads: &mut JoinSet<Result<(), Outage>>) -> Result<(), Outage> {
    let ended = |ended| {
        let error = StoreError::new(StoreErrorKind::Unavailable, "upload of a preview").because(ended);
        Outage::of_store(Part::Storage, error)
    };
    uploads.join_next().await.unwrap_or(Ok(Ok(()))).map_err(ended)?
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
    error.is_of_the_value()
}

/// A photo whose results cannot be written would otherwise come back for ever.
fn judge(error: StoreError) -> Result<Poison, Outage> {
    if is_a_photos_fault(&error) {
        Ok(Poison::new(FailureReason::ProcessingCrashed, format!("its results cannot be written: {error}")))
    } else {
        Err(Outage::of_store(Part::Database, error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use bytes::Bytes;
    use photofinish_store::ids::{AlbumId, LeaseId, OrganizationId, PhotoId};
    use photofinish_store::photo::PhotoSize;
    use photofinish_store::traits::{Lease, Result, UploadTerms};
    use tokio::runtime::Runtime;
    use url::Url;

    use super::*;
    use crate::budget::Budget;
    use crate::photo::{Facts, Previews};
    use crate::store_call::Kill;
    use crate::testing::config;

    /// Storage that takes so long for each upload; for ever where it is `None`.
    struct Slow {
        takes: Option<Duration>,
        uploads: AtomicUsize,
    }

    impl Slow {
        fn new(takes: Option<Duration>) -> Arc<Self> {
            Arc::new(Self { takes, uploads: AtomicUsize::new(0) })
        }
    }

    #[async_trait]
    impl Blobs for Slow {
        async fn read(&self, _key: &ObjectKey, _at_most: u64) -> Result<Bytes> {
            unreachable!("the stage writes")
        }

        async fn write(&self, _key: &ObjectKey, _content_type: &str, _bytes: Bytes) -> Result<()> {
            match self.takes {
                Some(takes) => tokio::time::sleep(takes).await,
                None => std::future::pending().await,
            }
            self.uploads.fetch_add(1, Ordering::AcqRel);
            Ok(())
        }

        async fn upload_url(&self, _key: &ObjectKey, _upload: UploadTerms<'_>) -> Result<Url> {
            unreachable!("the stage writes")
        }

        async fn download_url(&self, _key: &ObjectKey, _ttl: Duration) -> Result<Url> {
            unreachable!("the stage writes")
        }

        async fn head(&self, _key: &ObjectKey) -> Result<Option<u64>> {
            unreachable!("the stage writes")
        }

        async fn delete(&self, _key: &ObjectKey) -> Result<()> {
            unreachable!("the stage writes")
        }

        async fn delete_album(&self, _organization: OrganizationId, _album: AlbumId) -> Result<()> {
            unreachable!("the stage writes")
        }
    }

    fn photo() -> ReadPhoto {
        let lease = Lease {
            id: LeaseId::generate(),
            photo: PhotoId::generate(),
            album: AlbumId::generate(),
            organization: OrganizationId::generate(),
            config: Arc::new(config()),
            attempt: 1,
            confirmed_at: OffsetDateTime::now_utc(),
        };
        let size = PhotoSize { width: 1, height: 1 };
        ReadPhoto {
            facts: Arc::new(Facts { lease: Arc::new(lease), size, taken_at: None, camera: None }),
            previews: Previews { preview: Bytes::new(), thumbnail: Bytes::new() },
            faces: Vec::new(),
            texts: Vec::new(),
            _held: Arc::new(Budget::new(1).hold(1).unwrap()),
        }
    }

    fn calls() -> (Runtime, StoreCalls) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let calls = StoreCalls { runtime: runtime.handle().clone(), kill: Kill::new() };
        (runtime, calls)
    }

    /// 50 rounds of uploads: together they take twice as long as a single one may, each alone a small part of it.
    #[test]
    fn a_slow_storage_that_answers_each_upload_in_time_is_up() {
        let (_runtime, calls) = calls();
        let slow = Slow::new(Some(Duration::from_millis(40)));
        let blobs: Arc<dyn Blobs> = slow.clone();
        let batch: Vec<ReadPhoto> = (0..400).map(|_| photo()).collect();
        let uploads = upload_all(&blobs, &batch, Duration::from_secs(1));
        calls.many_while_alive(Part::Storage, uploads).unwrap();
        assert_eq!(slow.uploads.load(Ordering::Acquire), 800);
    }

    #[test]
    fn an_upload_without_an_answer_is_an_outage_of_the_storage() {
        let (_runtime, calls) = calls();
        let blobs: Arc<dyn Blobs> = Slow::new(None);
        let batch = [photo()];
        let uploads = upload_all(&blobs, &batch, Duration::from_millis(10));
        let outage = calls.many_while_alive(Part::Storage, uploads).unwrap_err();
        assert_eq!(outage.to_string(), "storage is down: no answer for 10ms");
    }

    #[test]
    fn the_end_of_a_generation_ends_its_uploads() {
        let (_runtime, calls) = calls();
        calls.kill.set();
        let blobs: Arc<dyn Blobs> = Slow::new(None);
        let batch = [photo()];
        let uploads = upload_all(&blobs, &batch, PATIENCE);
        let outage = calls.many_while_alive(Part::Storage, uploads).unwrap_err();
        assert_eq!(outage.to_string(), "storage is down: stopped while waiting for an answer");
    }
}
