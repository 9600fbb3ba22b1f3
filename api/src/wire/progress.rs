//! An album's progress on the wire.

use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::photo::StateCounts;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Output, sample};

/// How far an album is.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Progress {
    album_id: Uuid,
    #[schema(value_type = f64, minimum = 0)]
    total: u64,
    #[schema(value_type = f64, minimum = 0)]
    awaiting_upload: u64,
    #[schema(value_type = f64, minimum = 0)]
    queued: u64,
    #[schema(value_type = f64, minimum = 0)]
    processing: u64,
    #[schema(value_type = f64, minimum = 0)]
    ready: u64,
    #[schema(value_type = f64, minimum = 0)]
    failed: u64,
    /// Over the last ten seconds; null when idle.
    #[schema(required, minimum = 0)]
    photos_per_second: Option<f64>,
    /// At that rate; null when idle, and while nothing moves.
    #[schema(required, minimum = 0)]
    seconds_left: Option<f64>,
    /// The stage that holds the others up; null when idle, and when none does.
    #[schema(required)]
    bottleneck: Option<String>,
}

/// Speed of the work on an album.
pub(crate) struct Throughput {
    /// Photos that became ready or failed, per second.
    pub(crate) photos_per_second: f64,
    /// The stage that holds the others up.
    pub(crate) bottleneck: Option<String>,
}

/// Whether no photo waits for a worker or is with one. Photos that wait for their upload are nobody's work yet.
pub(crate) fn is_idle(counts: &StateCounts) -> bool {
    counts.queued == 0 && counts.processing == 0
}

impl Progress {
    /// Counts and, unless idle, the pace.
    pub(crate) fn new(album: AlbumId, counts: &StateCounts, pace: Option<Throughput>) -> Self {
        let left = (counts.queued + counts.processing) as f64;
        let rate = pace.as_ref().map(|pace| pace.photos_per_second);
        let seconds_left = rate.filter(|rate| *rate > 0.0).map(|rate| (left / rate).ceil());
        Self {
            album_id: album.0,
            total: counts.awaiting_upload + counts.queued + counts.processing + counts.ready + counts.failed,
            awaiting_upload: counts.awaiting_upload,
            queued: counts.queued,
            processing: counts.processing,
            ready: counts.ready,
            failed: counts.failed,
            photos_per_second: rate,
            seconds_left,
            bottleneck: pace.and_then(|pace| pace.bottleneck),
        }
    }
}

impl Output for Progress {
    fn example() -> Self {
        let counts = StateCounts { queued: 388, processing: 12, ready: 1080, ..StateCounts::default() };
        let pace = Throughput { photos_per_second: 25.0, bottleneck: Some("read".to_owned()) };
        Self::new(sample::ALBUM, &counts, Some(pace))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_idle_album_has_no_throughput() {
        let counts = StateCounts { ready: 3, failed: 1, awaiting_upload: 2, ..StateCounts::default() };
        assert!(is_idle(&counts));
        let progress = serde_json::to_value(Progress::new(sample::ALBUM, &counts, None)).unwrap();
        assert_eq!(progress["total"], json!(6));
        assert_eq!(progress["photosPerSecond"], json!(null));
        assert_eq!(progress["secondsLeft"], json!(null));
        assert_eq!(progress["bottleneck"], json!(null));
    }

    #[test]
    fn seconds_left_follow_from_the_throughput() {
        let counts = StateCounts { queued: 9, processing: 1, ..StateCounts::default() };
        let pace = Throughput { photos_per_second: 4.0, bottleneck: None };
        let progress = serde_json::to_value(Progress::new(sample::ALBUM, &counts, Some(pace))).unwrap();
        assert_eq!(progress["secondsLeft"], json!(3.0));
    }
}
