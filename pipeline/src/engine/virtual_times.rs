//! Who has had least of something that organizations share: a stage, or the cores.
//!
//! Time is counted as in start-time fair queueing (P. Goyal, H. M. Vin and H. Cheng, 1996): the clock is the time at which the
//! last work began, in the time of whose it was, and who was away does not save what it left to others. Like the Linux
//! scheduler's sleepers it comes back with a little of it, so that one photo of somebody who has few passes through a
//! stage that works for somebody else all day.

use std::collections::HashMap;
use std::time::Duration;

use photofinish_store::model::ids::OrganizationId;

/// What an organization that was away is ahead of the others when it comes back, and so the longest that all of them wait for it
/// more than for each other. An ordinary photo takes less in every stage.
const HEAD_START: Duration = Duration::from_millis(250);

/// How much time each organization has used.
#[derive(Debug, Default)]
pub(crate) struct VirtualTimes {
    clock: Duration,
    /// Of those that have used more than the least that counts for anybody.
    used: HashMap<OrganizationId, Duration>,
}

impl VirtualTimes {
    /// What an organization has used: who has least is next.
    pub(crate) fn used_by(&self, organization: OrganizationId) -> Duration {
        let used = self.used.get(&organization).copied().unwrap_or_default();
        used.max(self.least())
    }

    /// Adds what an organization has used.
    pub(crate) fn charge(&mut self, organization: OrganizationId, time: Duration) {
        let began_at = self.used_by(organization);
        self.clock = self.clock.max(began_at);
        self.used.insert(organization, began_at + time);
        let least = self.least();
        self.used.retain(|_, used| *used > least);
    }

    fn least(&self) -> Duration {
        self.clock.saturating_sub(HEAD_START)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_away_comes_back_with_a_head_start_and_no_more() {
        let [busy, away] = [(); 2].map(|()| OrganizationId::generate());
        let mut times = VirtualTimes::default();
        times.charge(away, HEAD_START);
        for _ in 0..10 {
            times.charge(busy, HEAD_START);
        }
        // The last of its work began at nine times the head start.
        assert_eq!((times.used_by(busy), times.used_by(away)), (HEAD_START * 10, HEAD_START * 8));
        assert_eq!(times.used.len(), 1, "{times:?}");
        times.charge(away, HEAD_START);
        assert_eq!(
            (times.used_by(away), times.clock),
            (HEAD_START * 9, HEAD_START * 9),
            "others' clocks do not go back"
        );
        times.charge(away, HEAD_START);
        assert_eq!(times.used_by(away), times.used_by(busy));
    }
}
