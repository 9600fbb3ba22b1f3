//! Steps by which a worker comes to hold a photo.

use std::time::Duration;

use photofinish_store::ids::PhotoId;
use photofinish_store::photo::{FailureReason, PhotoState};
use photofinish_store::traits::{Lease, Named, PhotoRef};

use crate::LONG;
use crate::embedded::LIMIT;
use crate::world::World;

/// How often, and after how long, a lease that passed over a row looks again.
const PATIENCE: usize = 3000;
const MOMENT: Duration = Duration::from_millis(10);

impl World {
    pub async fn lease(&mut self, limit: usize) {
        let fresh = self.photos.values().filter(|photo| photo.is_fresh()).count();
        let wanted = fresh.min(limit);
        let mut leases = self.event.leased(limit, LONG).await;
        // Leasing passes over a row that a call before holds a moment longer than its answer.
        for _ in 0..PATIENCE {
            if leases.len() >= wanted {
                break;
            }
            tokio::time::sleep(MOMENT).await;
            leases.extend(self.event.leased(wanted - leases.len(), LONG).await);
        }
        assert_eq!(leases.len(), wanted);
        for lease in leases {
            assert!(self.photo(lease.photo).is_fresh());
            self.hold(lease);
        }
    }

    pub fn hold(&mut self, lease: Lease) {
        let photo = self.photo(lease.photo);
        photo.attempts += 1;
        photo.state = PhotoState::Processing;
        photo.lapsed = false;
        assert_eq!(lease.attempt, photo.attempts);
        if let Some(lost) = photo.lease.replace(lease) {
            self.past.push(lost);
        }
    }

    pub async fn lease_suspect(&mut self) {
        let mut leased = self.event.leased_suspect(LONG).await;
        for _ in 0..PATIENCE {
            if leased.is_some()
                || !self.photos.values().any(|photo| photo.is_suspect() && photo.attempts < LIMIT)
            {
                break;
            }
            tokio::time::sleep(MOMENT).await;
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
                assert!(attempts >= LIMIT);
                assert_eq!(real.failure, Some(FailureReason::ProcessingCrashed));
                let lost = self.photo(id).lease.take();
                self.past.extend(lost);
                self.photo(id).settle(PhotoState::Failed);
                self.photo(id).reading = None;
            } else if taken.is_none() {
                panic!("a suspect with {attempts} attempts was not leased");
            }
        }
        if let Some(lease) = leased {
            assert!(self.photo(lease.photo).attempts < LIMIT);
            self.hold(lease);
        }
    }

    pub async fn lease_named(&mut self, choice: usize) {
        let Some(id) = self.pick(choice, |_| true) else { return };
        let name = PhotoRef { album: self.event.album, photo: id };
        let answer = self.store().work_rows.lease_named(&[name], LONG).await.unwrap().pop().unwrap();
        let photo = self.photo(id);
        let waits = photo.is_fresh() || photo.is_suspect();
        match answer {
            Named::Leased(lease) => {
                assert!(photo.is_fresh());
                self.hold(lease);
            }
            // Nothing has changed: no attempt counts against it.
            Named::Suspect => assert!(photo.is_suspect() && photo.attempts < LIMIT),
            Named::Held => assert!(photo.lease.is_some() && !photo.lapsed),
            Named::Over if waits => {
                assert!(photo.attempts >= LIMIT);
                let lost = photo.lease.take();
                photo.settle(PhotoState::Failed);
                photo.reading = None;
                self.past.extend(lost);
            }
            Named::Over => assert_eq!(photo.lease.as_ref().map(|lease| lease.id), None),
        }
    }
}
