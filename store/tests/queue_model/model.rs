//! The model of the queue: the expected state of every photo, compared with the store after each operation and completely
//! at the end.

use std::collections::{BTreeMap, BTreeSet};

use photofinish_store::Store;
use photofinish_store::conformance::{AlbumFixture, face};
use photofinish_store::model::credit::Credits;
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::PhotoState;
use photofinish_store::traits::{FinishOutcome, Lease};

use crate::operation::QueueOperation;

/// The expected state of a photo.
#[derive(Clone, Debug)]
pub struct ExpectedPhoto {
    pub state: PhotoState,
    pub attempts: u32,
    pub lease: Option<Lease>,
    pub lapsed: bool,
    /// Whether a message names this stay in the queue.
    pub published: bool,
    /// The text of the results that the photo shows.
    pub reading: Option<String>,
    /// Whether it was ready once.
    pub paid: bool,
}

impl ExpectedPhoto {
    pub fn is_fresh(&self) -> bool {
        self.state == PhotoState::Queued && self.attempts == 0
    }

    pub fn is_suspect(&self) -> bool {
        (self.state == PhotoState::Queued && self.attempts > 0)
            || (self.state == PhotoState::Processing && self.lapsed)
    }

    pub fn reset_to(&mut self, state: PhotoState) {
        let (published, reading) = (self.published && state != PhotoState::Queued, self.reading.take());
        let paid = self.paid || state == PhotoState::Ready;
        *self = Self { state, attempts: 0, lease: None, lapsed: false, published, reading, paid };
    }
}

pub struct QueueModel {
    pub fixture: AlbumFixture,
    pub photos: BTreeMap<PhotoId, ExpectedPhoto>,
    /// Leases that were lost, released or finished.
    pub past_leases: Vec<Lease>,
    pub readings: usize,
    /// Photos that were ready once and are deleted.
    pub deleted_paid: usize,
}

impl QueueModel {
    pub async fn new(store: &Store) -> Self {
        Self {
            fixture: AlbumFixture::create(store).await,
            photos: BTreeMap::new(),
            past_leases: Vec::new(),
            readings: 0,
            deleted_paid: 0,
        }
    }

    pub fn store(&self) -> &Store {
        &self.fixture.store
    }

    pub fn pick_photo(&self, choice: usize, wanted: impl Fn(&ExpectedPhoto) -> bool) -> Option<PhotoId> {
        let fitting: Vec<PhotoId> =
            self.photos.iter().filter(|(_, photo)| wanted(photo)).map(|(id, _)| *id).collect();
        (!fitting.is_empty()).then(|| fitting[choice % fitting.len()])
    }

    pub fn photo(&mut self, id: PhotoId) -> &mut ExpectedPhoto {
        self.photos.get_mut(&id).unwrap()
    }

    pub async fn apply(&mut self, step: QueueOperation) {
        match step {
            QueueOperation::CreatePhoto => self.expect().await,
            QueueOperation::Confirm(choice) => self.confirm(choice).await,
            QueueOperation::Lease(limit) => self.lease(limit).await,
            QueueOperation::LeaseSuspect => self.lease_suspect().await,
            QueueOperation::LeaseNamed(choice) => self.lease_named(choice).await,
            QueueOperation::Publish => self.publish().await,
            QueueOperation::Republish => self.republish().await,
            QueueOperation::ExpireLease(choice) => self.expire_lease(choice).await,
            QueueOperation::Release(choice) => self.release(choice).await,
            QueueOperation::Finish(choices) => self.finish(&choices).await,
            QueueOperation::Fail(choice) => self.fail(choice).await,
            QueueOperation::WriteWithPastLease(choice) => self.late(choice).await,
            QueueOperation::Delete(choice) => self.delete(choice).await,
            QueueOperation::Retry(choice) => self.retry(choice).await,
            QueueOperation::Reprocess => self.reprocess().await,
        }
        self.compare_with_store().await;
    }

    pub async fn compare_with_store(&self) {
        let counts = self.store().photos.count_by_state(self.fixture.album).await.unwrap();
        let real = [counts.awaiting_upload, counts.queued, counts.processing, counts.ready, counts.failed];
        let of = |state| self.photos.values().filter(|photo| photo.state == state).count() as u64;
        assert_eq!(real, PhotoState::ALL.map(of));
        let balance = self.store().credits.balance(&self.fixture.tenant).await.unwrap();
        let paid = self.photos.values().filter(|photo| photo.paid).count() + self.deleted_paid;
        let is_waiting =
            |photo: &ExpectedPhoto| matches!(photo.state, PhotoState::Queued | PhotoState::Processing);
        let held = self.photos.values().filter(|photo| is_waiting(photo) && !photo.paid).count() as i64;
        assert_eq!(balance.held, Credits::whole(held));
        assert_eq!(balance.spent, Credits::whole(paid as i64));
        let waiting = self.photos.values().filter(|photo| photo.is_fresh() || photo.is_suspect()).count();
        assert_eq!(self.store().queue.depth().await.unwrap(), waiting as u64);
        let unpublished = self.store().outbox_queue.list_unpublished(1000).await.unwrap().photos;
        let real: BTreeSet<PhotoId> = unpublished.iter().map(|waiting| waiting.photo.photo).collect();
        let queued = self.photos.iter().filter(|(_, photo)| photo.state == PhotoState::Queued);
        let expected = queued.filter(|(_, photo)| !photo.published).map(|(id, _)| *id);
        assert_eq!(real, expected.collect());
    }

    /// Finishes every waiting photo, then compares all photos.
    pub async fn finish_and_check(mut self) {
        loop {
            self.lease(3).await;
            self.lease_suspect().await;
            for id in self.photos.keys().copied().collect::<Vec<_>>() {
                if self.photos[&id].lease.is_some() {
                    let lease = self.photos[&id].lease.clone().unwrap();
                    let finished = self.make_results(lease);
                    let reading = finished.texts[0].text.clone();
                    assert_eq!(
                        self.store().queue.finish(vec![finished]).await.unwrap(),
                        [FinishOutcome::Done]
                    );
                    self.photo(id).reading = Some(reading);
                    self.photo(id).reset_to(PhotoState::Ready);
                }
            }
            if self.store().queue.depth().await.unwrap() == 0 {
                break;
            }
        }
        self.compare_with_store().await;
        assert_eq!(self.fixture.check_counts().await.total(), self.photos.len() as u64);
        let probe = face([1.0, 0.0, 0.0, 0.0]).embedding.unwrap();
        let hits = self.store().faces.nearest(self.fixture.album, &probe, 1000, 0.9).await.unwrap();
        let mut found: Vec<PhotoId> = hits.iter().map(|hit| hit.photo).collect();
        found.sort();
        let with_faces = self.photos.iter().filter(|(_, photo)| photo.reading.is_some());
        assert_eq!(found, with_faces.map(|(id, _)| *id).collect::<Vec<_>>());
        for (id, photo) in &self.photos {
            let ends = [PhotoState::AwaitingUpload, PhotoState::Ready, PhotoState::Failed];
            assert!(ends.contains(&photo.state), "{photo:?}");
            let (faces, texts) = self.store().photos.get_detections(self.fixture.album, *id).await.unwrap();
            let texts: Vec<String> = texts.into_iter().map(|seen| seen.text).collect();
            assert_eq!(texts, photo.reading.iter().cloned().collect::<Vec<_>>());
            assert_eq!(faces.len(), texts.len());
        }
        self.fixture.delete().await;
    }
}
