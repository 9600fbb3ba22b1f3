//! Keeps photos that take many steps of the networks from filling the pipeline: only a few are in flight at once, so that
//! there are always threads and memory for the photos of others. It does not know what makes a photo long.
//!
//! Which photos come is known only when they are leased. Long ones that find no seat wait here, their organizations in
//! turn; what is more than the waiting room takes goes back to the queue without counting an attempt.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use photofinish_store::model::album::AlbumConfig;
use photofinish_store::model::ids::OrganizationId;
use photofinish_store::traits::Lease;

use crate::engine::ticket::{InFlight, Seat};

type LeasedPhoto = InFlight<Arc<Lease>>;

/// Admits long photos.
pub(crate) struct LongPhotos {
    /// Whether photos of an album take many steps.
    is_long: Box<dyn Fn(&AlbumConfig) -> bool + Send>,
    /// How many may be in flight beyond the feed, and as many may wait for that.
    seats: usize,
    seats_taken: Arc<AtomicUsize>,
    /// Leased photos without a seat; the first one is the next.
    waiting: VecDeque<LeasedPhoto>,
}

/// What was done with the photos of a lease call.
pub(crate) struct Admission {
    /// Photos to send on.
    pub(crate) admitted: Vec<LeasedPhoto>,
    /// The number of photos that went back to the queue.
    pub(crate) surplus: usize,
}

impl LongPhotos {
    /// Gives seats to `seats` photos at once, at least to one.
    pub(crate) fn new(seats: usize, is_long: impl Fn(&AlbumConfig) -> bool + Send + 'static) -> Self {
        Self {
            is_long: Box::new(is_long),
            seats: seats.max(1),
            seats_taken: Arc::default(),
            waiting: VecDeque::new(),
        }
    }

    /// Sorts photos that were just leased.
    pub(crate) fn admit(&mut self, photos: Vec<LeasedPhoto>) -> Admission {
        let mut admitted = Vec::with_capacity(photos.len());
        let mut surplus = 0;
        for photo in photos {
            if !(self.is_long)(&photo.item.config) {
                admitted.push(photo);
            } else if self.waiting.len() < self.seats + self.free_seats() {
                self.wait_in_turn(photo);
            } else {
                // An organization that does not wait yet replaces a photo of one that waits more than once.
                surplus += 1;
                if !self.is_waiting(photo.ticket.organization()) && self.remove_repeated() {
                    self.wait_in_turn(photo);
                } else {
                    photo.ticket.return_unused();
                }
            }
        }
        admitted.extend(std::iter::from_fn(|| self.next_with_seat()));
        Admission { admitted, surplus }
    }

    /// Takes the next photo that waits, if there is a seat for it.
    pub(crate) fn next_with_seat(&mut self) -> Option<LeasedPhoto> {
        if !self.has_free_seat() {
            return None;
        }
        let mut photo = self.waiting.pop_front()?;
        photo.ticket.hold(Seat::take(&self.seats_taken));
        Some(photo)
    }

    /// Whether a long photo could be sent on now.
    pub(crate) fn has_free_seat(&self) -> bool {
        self.free_seats() > 0
    }

    fn free_seats(&self) -> usize {
        self.seats.saturating_sub(self.seats_taken.load(Ordering::Acquire))
    }

    /// Gives all photos that wait back to the queue.
    pub(crate) fn give_back(&mut self) {
        self.waiting.drain(..).for_each(|photo| photo.ticket.return_unused());
    }

    /// Adds a photo behind one photo of each other organization for each of its own before it.
    fn wait_in_turn(&mut self, photo: LeasedPhoto) {
        let organization = photo.ticket.organization();
        let round = self.count_of(organization);
        let mut earlier: Vec<OrganizationId> = Vec::new();
        let position = self.waiting.iter().position(|other| {
            let other = other.ticket.organization();
            let its_round = earlier.iter().filter(|seen| **seen == other).count();
            earlier.push(other);
            its_round > round
        });
        self.waiting.insert(position.unwrap_or(self.waiting.len()), photo);
    }

    fn count_of(&self, organization: OrganizationId) -> usize {
        self.waiting.iter().filter(|photo| photo.ticket.organization() == organization).count()
    }

    fn is_waiting(&self, organization: OrganizationId) -> bool {
        self.count_of(organization) > 0
    }

    /// Gives back the last photo of an organization with several. Returns whether there was one.
    fn remove_repeated(&mut self) -> bool {
        let repeated =
            (0..self.waiting.len()).rev().find(|i| self.count_of(self.waiting[*i].ticket.organization()) > 1);
        let removed = repeated.and_then(|i| self.waiting.remove(i));
        removed.map(|photo| photo.ticket.return_unused()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::leases::LeaseTable;
    use crate::engine::ticket::Ticket;
    use crate::testing::lease_of;
    use crate::testing::memory_queue::MemoryQueue;

    fn photos_of(leases: &Arc<LeaseTable>, owners: &[OrganizationId]) -> Vec<LeasedPhoto> {
        let photo = |owner: &OrganizationId| {
            let lease = Arc::new(lease_of(*owner));
            InFlight { ticket: Ticket::open(leases, Arc::clone(&lease)), item: lease }
        };
        owners.iter().map(photo).collect()
    }

    fn empty_table() -> Arc<LeaseTable> {
        Arc::new(LeaseTable::new(Arc::new(MemoryQueue::default())))
    }

    fn owners(photos: &[LeasedPhoto]) -> Vec<OrganizationId> {
        photos.iter().map(|photo| photo.item.organization).collect()
    }

    #[test]
    fn only_as_many_long_photos_are_in_flight_as_there_are_seats() {
        let leases = empty_table();
        let one = OrganizationId::generate();
        let mut long_photos = LongPhotos::new(2, |_| true);
        let admission = long_photos.admit(photos_of(&leases, &[one; 5]));
        assert_eq!((admission.admitted.len(), admission.surplus), (2, 1));
        let later = long_photos.admit(photos_of(&leases, &[one; 3]));
        assert_eq!((later.admitted.len(), later.surplus), (0, 3));
        assert_eq!(leases.ticket_count(), 4, "two in flight and two waiting: {leases:?}");
        assert!(long_photos.next_with_seat().is_none());
        drop(admission);
        assert!(long_photos.next_with_seat().is_some(), "a seat ends with the ticket");
    }

    #[test]
    fn short_photos_need_no_seat() {
        let leases = empty_table();
        let mut long_photos = LongPhotos::new(1, |_| false);
        let admission = long_photos.admit(photos_of(&leases, &[OrganizationId::generate(); 9]));
        assert_eq!((admission.admitted.len(), admission.surplus), (9, 0));
        assert!(long_photos.has_free_seat());
    }

    #[test]
    fn organizations_wait_in_turn_and_one_cannot_keep_the_others_out() {
        let leases = empty_table();
        let (large, small) = (OrganizationId::generate(), OrganizationId::generate());
        let mut long_photos = LongPhotos::new(3, |_| true);
        let seated = long_photos.admit(photos_of(&leases, &[large; 3]));
        assert_eq!(seated.admitted.len(), 3);
        assert_eq!(long_photos.admit(photos_of(&leases, &[large; 3])).surplus, 0);
        let full = long_photos.admit(photos_of(&leases, &[large, small]));
        assert_eq!((full.admitted.len(), full.surplus), (0, 2));
        drop(seated);
        let next: Vec<LeasedPhoto> = std::iter::from_fn(|| long_photos.next_with_seat()).collect();
        assert_eq!(owners(&next), [large, small, large]);
    }
}
