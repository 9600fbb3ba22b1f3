//! The operations that lease photos.

use std::time::Duration;

use photofinish_store::model::ids::PhotoId;
use photofinish_store::model::photo::{FailureReason, PhotoState};
use photofinish_store::traits::{Lease, NamedLease, PhotoRef};

use crate::LONG;
use crate::model::QueueModel;
use crate::support::ATTEMPT_LIMIT;

/// How often, and after which pause, to retry a lease that skipped a locked row.
const MAX_RETRIES: usize = 3000;
const RETRY_PAUSE: Duration = Duration::from_millis(10);

impl QueueModel {
    pub async fn lease(&mut self, limit: usize) {
        let fresh = self.photos.values().filter(|photo| photo.is_fresh()).count();
        let wanted = fresh.min(limit);
        let mut leases = self.fixture.lease_fresh(limit, LONG).await;
        // Leasing skips a row whose lock an earlier call releases a moment after its response.
        for _ in 0..MAX_RETRIES {
            if leases.len() >= wanted {
                break;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            leases.extend(self.fixture.lease_fresh(wanted - leases.len(), LONG).await);
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
        let mut leased = self.fixture.lease_suspect(LONG).await;
        for _ in 0..MAX_RETRIES {
            if leased.is_some()
                || !self.photos.values().any(|photo| photo.is_suspect() && photo.attempts < ATTEMPT_LIMIT)
            {
                break;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            leased = self.fixture.lease_suspect(LONG).await;
        }
        let taken = leased.as_ref().map(|lease| lease.photo);
        // Suspects at the limit fail until one below it is found; if there is none, all of them fail.
        let suspects: Vec<PhotoId> =
            self.photos.iter().filter(|(_, photo)| photo.is_suspect()).map(|(id, _)| *id).collect();
        assert!(taken.is_none_or(|taken| suspects.contains(&taken)));
        for id in suspects {
            let real = self.store().photos.get(self.fixture.album, id).await.unwrap();
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
        let name = PhotoRef { album: self.fixture.album, photo: id };
        let answer = self.store().outbox_queue.lease_named(&[name], LONG).await.unwrap().pop().unwrap();
        let photo = self.photo(id);
        let waits = photo.is_fresh() || photo.is_suspect();
        match answer {
            NamedLease::Leased(lease) => {
                assert!(photo.is_fresh());
                self.record_lease(lease);
            }
            // Nothing has changed: no attempt is counted.
            NamedLease::CrashSuspect => assert!(photo.is_suspect() && photo.attempts < ATTEMPT_LIMIT),
            NamedLease::HeldElsewhere => assert!(photo.lease.is_some() && !photo.lapsed),
            NamedLease::Obsolete if waits => {
                assert!(photo.attempts >= ATTEMPT_LIMIT);
                let lost = photo.lease.take();
                photo.reset_to(PhotoState::Failed);
                photo.reading = None;
                self.past_leases.extend(lost);
            }
            NamedLease::Obsolete => assert_eq!(photo.lease.as_ref().map(|lease| lease.id), None),
        }
    }
}
