//! Steps by which a worker comes to hold a photo.

use std::time::Duration;

use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::{FailureReason, PhotoState};
use photofinish_store::traits::{Lease, Named, PhotoRef};

use crate::LONG;
use crate::model::QueueModel;
use crate::support::ATTEMPT_LIMIT;

/// How often, and after how long, a lease that passed over a row looks again.
const MAX_RETRIES: usize = 3000;
const RETRY_PAUSE: Duration = Duration::from_millis(10);

impl QueueModel {
    pub async fn lease(&mut self, limit: usize) {
        let fresh = self.photos.values().filter(|photo| photo.is_fresh()).count();
        let wanted = fresh.min(limit);
        let mut leases = self.event.leased(limit, LONG).await;
        // Leasing passes over a row that a call before holds a moment longer than its answer.
        for _ in 0..MAX_RETRIES {
            if leases.len() >= wanted {
                break;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            leases.extend(self.event.leased(wanted - leases.len(), LONG).await);
        }
        assert_eq!(leases.len(), wanted);
        for lease in leases {
            assert!(self.photo(lease.photo).is_fresh());
            self.record_lease(lease);
        }
    }

    pub fn record_lease(&mut self, lease: Lease) {
        let photo = self.photo(lease.photo);
        photo.attempts += 1;
        photo.state = PhotoState::Processing;
        photo.lapsed = false;
        assert_eq!(lease.attempt, photo.attempts);
        if let Some(lost) = photo.lease.replace(lease) {
            self.past_leases.push(lost);
        }
    }

    pub async fn lease_suspect(&mut self) {
        let mut leased = self.event.leased_suspect(LONG).await;
        for _ in 0..MAX_RETRIES {
            if leased.is_some()
                || !self.photos.values().any(|photo| photo.is_suspect() && photo.attempts < ATTEMPT_LIMIT)
            {
                break;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            leased = self.event.leased_suspect(LONG).await;
        }
        let taken = leased.as_ref().map(|lease| lease.photo);
        // Those at the limit fail on the way to the first that is not; without one all of them do.
        let suspects: Vec<PhotoId> =
            self.photos.iter().filter(|(_, photo)| photo.is_suspect()).map(|(id, _)| *id).collect();
        assert!(taken.is_none_or(|taken| suspects.contains(&taken)));
        for id in suspects {
            let real = self.store().photos.get(self.event.album, id).await.unwrap();
            let attempts = self.photo(id).attempts;
            if real.state == PhotoState::Failed {
                assert!(attempts >= ATTEMPT_LIMIT);
                assert_eq!(real.failure, Some(FailureReason::ProcessingCrashed));
                let lost = self.photo(id).lease.take();
                self.past_leases.extend(lost);
                self.photo(id).reset_to(PhotoState::Failed);
                self.photo(id).reading = None;
            } else if taken.is_none() {
                panic!("a suspect with {attempts} attempts was not leased");
            }
        }
        if let Some(lease) = leased {
            assert!(self.photo(lease.photo).attempts < ATTEMPT_LIMIT);
            self.record_lease(lease);
        }
    }

    pub async fn lease_named(&mut self, choice: usize) {
        let Some(id) = self.pick_photo(choice, |_| true) else { return };
        let name = PhotoRef { album: self.event.album, photo: id };
        let answer = self.store().work_rows.lease_named(&[name], LONG).await.unwrap().pop().unwrap();
        let photo = self.photo(id);
        let waits = photo.is_fresh() || photo.is_suspect();
        match answer {
            Named::Leased(lease) => {
                assert!(photo.is_fresh());
                self.record_lease(lease);
            }
            // Nothing has changed: no attempt counts against it.
            Named::Suspect => assert!(photo.is_suspect() && photo.attempts < ATTEMPT_LIMIT),
            Named::HeldElsewhere => assert!(photo.lease.is_some() && !photo.lapsed),
            Named::Obsolete if waits => {
                assert!(photo.attempts >= ATTEMPT_LIMIT);
                let lost = photo.lease.take();
                photo.reset_to(PhotoState::Failed);
                photo.reading = None;
                self.past_leases.extend(lost);
            }
            Named::Obsolete => assert_eq!(photo.lease.as_ref().map(|lease| lease.id), None),
        }
    }
}
