//! All other operations: those of partners and of the outbox, and the ends of leases.

use std::collections::HashMap;
use std::time::Duration;

use photofinish_store::conformance::{face, text};
use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::{FailureReason, PhotoSize, PhotoState};
use photofinish_store::traits::{FinishOutcome, Lease, PhotoResults, PictureSizes};

use crate::LONG;
use crate::model::{ExpectedPhoto, QueueModel};

impl QueueModel {
    pub async fn expect(&mut self) {
        let id = self.fixture.create_photos(1).await[0];
        let state = PhotoState::AwaitingUpload;
        let expected = ExpectedPhoto {
            state,
            attempts: 0,
            lease: None,
            lapsed: false,
            published: false,
            reading: None,
            paid: false,
        };
        self.photos.insert(id, expected);
    }

    pub async fn confirm(&mut self, choice: usize) {
        let Some(id) = self.pick_photo(choice, |_| true) else { return };
        assert_eq!(self.store().queue.confirm(self.fixture.album, &[id]).await.unwrap(), [id]);
        let photo = self.photo(id);
        if matches!(photo.state, PhotoState::AwaitingUpload | PhotoState::Failed) {
            photo.reset_to(PhotoState::Queued);
        }
    }

    pub async fn publish(&mut self) {
        let waiting = self.store().outbox_queue.list_unpublished(1000).await.unwrap().photos;
        self.store().outbox_queue.mark_published(&waiting).await.unwrap();
        for unpublished in waiting {
            self.photo(unpublished.photo.photo).published = true;
        }
    }

    pub async fn republish(&mut self) {
        let mut found = 0;
        for photo in self.photos.values_mut().filter(|photo| photo.published) {
            if photo.state == PhotoState::Queued || (photo.lease.is_some() && photo.lapsed) {
                self.past_leases.extend(photo.lease.take());
                photo.state = PhotoState::Queued;
                photo.lapsed = false;
                photo.published = false;
                found += 1;
            }
        }
        assert_eq!(self.store().outbox_queue.republish(i64::MAX).await.unwrap(), found);
    }

    pub async fn expire_lease(&mut self, choice: usize) {
        let Some(id) = self.pick_photo(choice, |photo| photo.lease.is_some() && !photo.lapsed) else {
            return;
        };
        let lease = self.photo(id).lease.as_ref().unwrap().id;
        assert_eq!(self.store().queue.renew(&[lease], Duration::ZERO).await.unwrap(), [lease]);
        self.photo(id).lapsed = true;
    }

    pub async fn release(&mut self, choice: usize) {
        let Some(id) = self.pick_photo(choice, |photo| photo.lease.is_some()) else { return };
        let lease = self.photo(id).lease.take().unwrap();
        self.store().queue.release(std::slice::from_ref(&lease)).await.unwrap();
        self.past_leases.push(lease);
        let photo = self.photo(id);
        photo.state = PhotoState::Queued;
        photo.attempts -= 1;
        photo.lapsed = false;
        photo.published = false;
    }

    /// Finishes the photos of some running leases in one batch.
    pub async fn finish(&mut self, choices: &[usize]) {
        let mut batch: HashMap<PhotoId, PhotoResults> = HashMap::new();
        for choice in choices {
            if let Some(id) = self.pick_photo(*choice, |photo| photo.lease.is_some()) {
                let lease = self.photo(id).lease.clone().unwrap();
                let finished = self.make_results(lease);
                batch.insert(id, finished);
            }
        }
        let batch: Vec<PhotoResults> = batch.into_values().collect();
        let answers = self.store().queue.finish(batch.clone()).await.unwrap();
        assert_eq!(answers, vec![FinishOutcome::Done; batch.len()]);
        for finished in batch {
            let photo = self.photo(finished.lease.photo);
            photo.reading = Some(finished.texts[0].text.clone());
            photo.reset_to(PhotoState::Ready);
            self.past_leases.push(finished.lease);
        }
    }

    pub fn make_results(&mut self, lease: Lease) -> PhotoResults {
        self.readings += 1;
        PhotoResults {
            lease,
            size: PhotoSize { width: 6000, height: 4000 },
            taken_at: None,
            camera: None,
            watermark_version: 0,
            // Of some a watermark was drawn.
            pictures: PictureSizes {
                picture_bytes: self.readings as u64,
                marked_bytes: self.readings.is_multiple_of(3).then_some(7),
            },
            skipped_runners: 0,
            faces: vec![face([1.0, 0.0, 0.0, 0.0])],
            texts: vec![text(&format!("READING{}", self.readings), 0.99)],
        }
    }

    pub async fn fail(&mut self, choice: usize) {
        let Some(id) = self.pick_photo(choice, |photo| photo.lease.is_some()) else { return };
        let lease = self.photo(id).lease.take().unwrap();
        let answer = self.store().queue.fail(&lease, FailureReason::CorruptImage, "by the model").await;
        assert_eq!(answer.unwrap(), FinishOutcome::Done);
        self.past_leases.push(lease);
        self.photo(id).reset_to(PhotoState::Failed);
        self.photo(id).reading = None;
    }

    pub async fn late(&mut self, choice: usize) {
        if self.past_leases.is_empty() {
            return;
        }
        let lease = self.past_leases[choice % self.past_leases.len()].clone();
        let is_there = self.photos.contains_key(&lease.photo);
        let expected = if is_there { FinishOutcome::Superseded } else { FinishOutcome::Gone };
        let finished = self.make_results(lease.clone());
        assert_eq!(self.store().queue.finish(vec![finished]).await.unwrap(), [expected]);
        let answer = self.store().queue.fail(&lease, FailureReason::TooLarge, "late").await.unwrap();
        assert_eq!(answer, expected);
        self.store().queue.release(std::slice::from_ref(&lease)).await.unwrap();
        assert_eq!(self.store().queue.renew(&[lease.id], LONG).await.unwrap(), []);
    }

    pub async fn delete(&mut self, choice: usize) {
        let Some(id) = self.pick_photo(choice, |_| true) else { return };
        self.store().photos.delete(self.fixture.album, id).await.unwrap();
        let gone = self.photos.remove(&id).unwrap();
        self.deleted_paid += usize::from(gone.paid);
        self.past_leases.extend(gone.lease);
    }

    pub async fn retry(&mut self, choice: usize) {
        let Some(id) = self.pick_photo(choice, |_| true) else { return };
        let retried = self.store().queue.retry(self.fixture.album, id).await;
        let photo = self.photo(id);
        assert_eq!(retried.is_ok(), photo.state == PhotoState::Failed);
        if retried.is_ok() {
            photo.reset_to(PhotoState::Queued);
        }
    }

    pub async fn reprocess(&mut self) {
        let mut queued = 0;
        for photo in self.photos.values_mut() {
            if matches!(photo.state, PhotoState::Ready | PhotoState::Failed) {
                photo.reset_to(PhotoState::Queued);
                queued += 1;
            }
        }
        assert_eq!(self.store().queue.reprocess(self.fixture.album).await.unwrap().queued, queued);
    }
}
